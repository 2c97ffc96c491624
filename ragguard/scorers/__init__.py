"""Scorers: probes and metrics over a run. One file a family, and the pipeline that runs them together."""

"""Capture: reports what happened in a pipeline as events, without effect on the pipeline."""

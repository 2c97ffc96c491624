"""Capture: what happened in the pipeline, as events, without the pipeline noticing."""

"""Readers of data sets: one module for each format; `dataset.py` finds the format of a path."""

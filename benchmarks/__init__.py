"""Measures the package beside other libraries and its targets; no part of the package."""

"""Measures whether a metric predicts the answer, on a world with known truth or on the user's data."""

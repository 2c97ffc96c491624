"""Measures whether a metric predicts the answer: the papers' experiments, on a world with known truth or on one's own
data."""

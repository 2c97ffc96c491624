"""Estimates how fast this machine computes a small model, before it is loaded."""

from __future__ import annotations

from time import perf_counter

import numpy as np

_FLOPS = 0.21e9
"""The operations of smol for one token: two for each weight of its layers."""
_REACHED = 0.6
"""The share of a matrix product's speed that the model reaches, about: the rest is attention and norms."""
_ROWS, _INNER, _OUTER = 128, 576, 1536


def tokens_a_second() -> float:
    """Returns the tokens that smol reads in a second, by a matrix product of its shape: some milliseconds of work."""
    left, right = np.ones((_ROWS, _INNER), np.float32), np.ones((_INNER, _OUTER), np.float32)
    seconds = float("inf")
    for _ in range(5):
        began = perf_counter()
        np.dot(left, right)
        seconds = min(seconds, perf_counter() - began)
    return _REACHED * 2 * _ROWS * _INNER * _OUTER / max(seconds, 1e-6) / _FLOPS

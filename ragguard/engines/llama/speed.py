"""Estimates how fast this machine computes a small model, before it is loaded."""

from __future__ import annotations

import os
from time import thread_time

import numpy as np

from ragguard.engines.llama.network import one_thread

_FLOPS = 0.21e9
"""The operations of smol for one token: two for each weight of its layers."""
_REACHED = 0.6
"""The share of a matrix product's speed that the model reaches, about: the rest is attention and norms."""
_ROWS, _INNER, _OUTER = 128, 576, 1536


def tokens_a_second() -> float:
    """Returns the tokens that smol reads in a second of a core, by a matrix product of its shape: some milliseconds."""
    left, right = np.ones((_ROWS, _INNER), np.float32), np.ones((_INNER, _OUTER), np.float32)
    seconds = float("inf")
    with one_thread():
        for _ in range(5):
            began = thread_time()
            np.dot(left, right)
            seconds = min(seconds, thread_time() - began)
    return _REACHED * 2 * _ROWS * _INNER * _OUTER / max(seconds, 1e-6) / _FLOPS


def waits_for_a_core() -> float:
    """Returns how many times longer work of one thread takes than its computing, as other programs use the cores too;
    1 on a machine with a free core, or one that counts no load."""
    try:
        load = os.getloadavg()[0]
    except (AttributeError, OSError):  # Windows has no such number
        return 1.0
    return max(1.0, (load + 1) / (os.cpu_count() or 1))

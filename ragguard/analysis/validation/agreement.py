"""Measures how well the labels of two raters agree."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike


def cohen_kappa(first: ArrayLike, second: ArrayLike, *, quadratic: bool = False) -> float:
    """Returns Cohen's κ of two raters: agreement beyond chance, (p_o − p_e) / (1 − p_e).

    `quadratic` weighs a disagreement by the square of its distance, for grades. nan where both raters give one and
    the same label throughout: chance alone would agree.
    """
    a, b = (np.asarray(side, dtype=np.float64) for side in (first, second))
    if not a.size:
        return math.nan
    labels = np.unique(np.concatenate([a, b]))
    table = np.zeros((len(labels), len(labels)))
    np.add.at(table, (np.searchsorted(labels, a), np.searchsorted(labels, b)), 1.0 / a.size)
    distance = np.subtract.outer(labels, labels) ** 2 if quadratic else 1.0 - np.eye(len(labels))
    by_chance = float((np.outer(table.sum(axis=1), table.sum(axis=0)) * distance).sum())
    return 1.0 - float((table * distance).sum()) / by_chance if by_chance else math.nan

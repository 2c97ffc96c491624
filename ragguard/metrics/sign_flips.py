"""Tests and intervals of mean differences that hold their level with few questions: sign flips of paired differences.

If two sides do not differ, each question's difference is as likely with the other sign. So the mean is compared with
the means after flipping signs: all patterns up to 14 questions, random ones beyond. For one measure the test is exact
for any symmetric distribution. For several measures the signs of a question are flipped together, and the largest
statistic over the measures is what each is compared with (Westfall and Young's step-down maxT): the chance of calling
any measure different stays at the level, however the measures depend on each other.

The interval holds the differences that the test does not reject. Its ends are quantiles of the means of random subsets
of the questions (Hartigan 1969). Percentiles of a bootstrap, common in their place, are too narrow for few questions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ragguard.errors import InvalidInput
from ragguard.metrics import arrays
from ragguard.metrics.arrays import Floats

ALL_UP_TO = 14
"""The most questions of which every pattern of signs is tried: 8,192 patterns, as a pattern and its reverse agree."""
_TOLERANCE = 1e-9
"""Relative tolerance within which two statistics are equal; rounding must not break a tie."""


class FlipTest(NamedTuple):
    """The result of one measure: the mean difference, its interval, and p alone and among all measures tested."""

    value: float
    low: float
    high: float
    p: float
    p_adjusted: float
    counted: int


def sign_flips(
    differences: Sequence[Floats], draws: int = 9999, seed: int = 0, confidence: float = 0.95
) -> list[FlipTest]:
    """Tests whether the means of paired differences are 0, one list for each measure, all over the same questions.

    Args:
        differences: For each measure one difference a question; nan where a question has none.
        draws: The number of random patterns of signs, where there are too many questions to try all.
        seed: The seed of these patterns.
        confidence: The confidence of the intervals.
    """
    table = _table(differences)
    if not len(table):
        return []
    known = ~np.isnan(table)
    values = np.where(known, table, 0.0)
    signs = _signs(table.shape[1], draws, seed)
    sizes = np.sqrt((values**2).sum(axis=1))
    scaled = values / np.where(sizes > 0, sizes, 1.0)[:, None]
    observed = np.abs(scaled.sum(axis=1))
    flipped = np.abs(scaled @ signs.T)
    exceeds = flipped >= observed[:, None] * (1 - _TOLERANCE)
    alone = exceeds.mean(axis=1)
    counted = known.sum(axis=1)
    return [
        FlipTest(
            float(values[i].sum() / counted[i]) if counted[i] else math.nan,
            *_interval(values[i][known[i]], signs if known[i].all() else None, draws, seed, confidence),
            p=float(alone[i]) if counted[i] else math.nan,
            p_adjusted=float(adjusted) if counted[i] else math.nan,
            counted=int(counted[i]),
        )
        for i, adjusted in enumerate(_step_down(observed, flipped, alone))
    ]


def least_p(questions: int) -> float:
    """Returns the least p that a number of questions can show: all differences have one sign."""
    return 2.0 ** (1 - questions) if questions else 1.0


def _table(differences: Sequence[Floats]) -> Floats:
    lists = [np.asarray(values, dtype=np.float64) for values in differences]
    if any(values.ndim != 1 or len(values) != len(lists[0]) for values in lists):
        raise InvalidInput(
            "differences", [values.shape for values in lists], "lists of one length, one a measure"
        )
    return np.array(lists) if lists else np.empty((0, 0))


def _signs(questions: int, draws: int, seed: int) -> Floats:
    """Returns patterns of signs, one a row: all but reversed ones for few questions, else random ones."""
    rows = arrays.count("draws", draws, 2, arrays.MOST_DRAWS)
    random = np.random.default_rng(arrays.count("seed", seed, 0))
    if questions <= ALL_UP_TO:
        patterns = np.arange(2 ** max(questions - 1, 0))
        bits = patterns[:, None] >> np.arange(questions) & 1
        return np.asarray(1.0 - 2.0 * bits, dtype=np.float64)
    drawn = random.integers(0, 2, size=(rows, questions), dtype=np.int8)
    return np.concatenate([np.ones((1, questions)), 1.0 - 2.0 * drawn])


def _step_down(observed: Floats, flipped: Floats, alone: Floats) -> Floats:
    """Returns Westfall and Young's adjusted p of each measure: compared with the largest among those not clearer."""
    adjusted = np.ones(len(observed))
    order = np.lexsort((alone, -observed))
    largest = np.zeros(flipped.shape[1])
    by_rank = np.empty(len(order))
    for rank in range(len(order) - 1, -1, -1):
        i = order[rank]
        largest = np.maximum(largest, flipped[i])
        by_rank[rank] = (largest >= observed[i] * (1 - _TOLERANCE)).mean()
    adjusted[order] = np.maximum.accumulate(by_rank)
    return adjusted


def _interval(
    values: Floats, signs: Floats | None, draws: int, seed: int, confidence: float
) -> tuple[float, float]:
    """Returns the differences between which the test rejects none; nan where so few questions bound nothing."""
    if not len(values):
        return math.nan, math.nan
    subsets: NDArray[np.bool_] = (_signs(len(values), draws, seed) if signs is None else signs) < 0
    if len(values) <= ALL_UP_TO:
        subsets = np.concatenate([subsets, ~subsets])  # each pattern and its reverse: every subset once
    sizes = subsets.sum(axis=1)
    means = np.sort((subsets @ values)[sizes > 0] / sizes[sizes > 0])
    outside = math.floor((1 - confidence) / 2 * (len(means) + 1) + 1e-9)
    if outside < 1:
        return math.nan, math.nan
    return float(means[outside - 1]), float(means[-outside])

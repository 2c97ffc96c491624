"""Correlations over the contexts of all questions together, as most papers give them.

Contexts of one question are not independent of each other, so the intervals come from drawing whole questions. Where
questions are to be compared only with themselves, `ragguard.metrics.correlate` with groups does it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from ragguard.metrics.agreement import Correlation, Difference, correlate, interval
from ragguard.metrics.arrays import Floats, Integers

Kind = Literal["pearson", "spearman"]
DRAWS = 400


def pooled(
    metric: ArrayLike,
    outcome: ArrayLike,
    questions: ArrayLike,
    kind: Kind = "pearson",
    *,
    draws: int = DRAWS,
    seed: int = 0,
) -> Correlation:
    """Returns the correlation over all contexts, with its p and the middle 95 % of draws of questions.

    One question has no interval (nan).
    """
    xs, ys, labels, left_out = _known(outcome, questions, metric)
    found = correlate(xs[0], ys, kind)
    x, y = (_coded(side) if kind == "spearman" else side for side in (xs[0], ys))
    drawn = [_correlation(x[rows], y[rows], kind) for rows in _draws(labels, draws, seed)]
    _, low, high = interval(np.array(drawn))
    return Correlation(found.value, found.p, low, high, counted=len(ys), skipped=left_out)


def pooled_difference(
    a: ArrayLike,
    b: ArrayLike,
    outcome: ArrayLike,
    questions: ArrayLike,
    kind: Kind = "pearson",
    *,
    draws: int = DRAWS,
    seed: int = 0,
) -> Difference:
    """Returns how much higher the first metric's correlation is, over the contexts for which both have a number.

    One question has neither p nor interval (nan).
    """
    sides, outcomes, labels, left_out = _known(outcome, questions, a, b)
    first, second, ys = (_coded(side) if kind == "spearman" else side for side in (*sides, outcomes))

    def gap(rows: Integers | slice) -> float:
        return _correlation(first[rows], ys[rows], kind) - _correlation(second[rows], ys[rows], kind)

    p, low, high = interval(np.array([gap(rows) for rows in _draws(labels, draws, seed)]))
    return Difference(gap(slice(None)), p, low, high, counted=len(ys), skipped=left_out)


def _known(
    outcome: ArrayLike, questions: ArrayLike, *metrics: ArrayLike
) -> tuple[list[Floats], Floats, Integers, int]:
    """Returns the rows without nan, the index of each row's question, and how many rows were left out."""
    sides = [np.asarray(values, dtype=np.float64) for values in (*metrics, outcome)]
    there = ~np.isnan(np.stack(sides)).any(axis=0)
    *xs, ys = (side[there] for side in sides)
    _, labels = np.unique(np.asarray(questions)[there], return_inverse=True)
    return xs, ys, labels, int((~there).sum())


def _draws(labels: Integers, draws: int, seed: int) -> Iterator[Integers]:
    """Yields the rows of questions drawn with replacement, as many questions as there are; nothing for fewer than two,
    of which every draw would be the same."""
    if not len(labels) or not labels.max():
        return
    members: list[Integers] = [np.flatnonzero(labels == label) for label in range(int(labels.max()) + 1)]
    random = np.random.default_rng(seed)
    for _ in range(draws):
        yield np.concatenate([members[at] for at in random.integers(len(members), size=len(members))])


def _coded(values: Floats) -> Integers:
    """Returns the place of each value among the different values, so that a draw is ranked without sorting."""
    return np.unique(values, return_inverse=True)[1].reshape(values.shape)


def _ranks(codes: Integers) -> Floats:
    """Returns the ranks of coded values; equal ones share the mean of their ranks."""
    counts = np.bincount(codes)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[codes])


def _correlation(xs: Floats | Integers, ys: Floats | Integers, kind: Kind) -> float:
    """Returns the correlation; Spearman's is of coded values."""
    if kind == "spearman" and len(xs):
        xs, ys = _ranks(xs.astype(np.intp)), _ranks(ys.astype(np.intp))
    if len(xs) < 2 or not np.ptp(xs) or not np.ptp(ys):
        return math.nan
    xs, ys = xs - xs.mean(), ys - ys.mean()
    return float(xs @ ys / math.sqrt((xs @ xs) * (ys @ ys)))

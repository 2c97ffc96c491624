"""Prediction-powered inference: corrects the mean of a judge's values by human labels of a few of the items.

The weight of the judge's values is tuned to the labels. docs/how-to/labels.md has the estimator and its formulas.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ragguard.errors import InvalidInput
from ragguard.metrics import arrays
from ragguard.metrics.arrays import Floats

LEAST_LABELS = 10
"""The fewest labels from which a mean is corrected."""
_Z = 1.959963984540054
"""The quantile of the normal distribution for 95 %."""


@dataclass(frozen=True, slots=True)
class CorrectedMean:
    """An estimate of the mean that humans would find if they labelled every item."""

    value: float
    low: float
    """The lower end of the 95 % confidence interval. The runs count as a sample of all runs like them."""
    high: float
    margin: float
    """Half the width of that interval; the interval itself ends where the range of the quantity does."""
    stderr: float
    raw: float
    """The mean of the judge's values without any correction."""
    weight: float
    """How much the judge's values count: 0 uses the labels alone, 1 trusts the judge fully between them."""
    labels: int


def corrected_mean(
    judged: ArrayLike,
    labelled: ArrayLike,
    *,
    shares: ArrayLike | None = None,
    runs: ArrayLike | None = None,
    strata: ArrayLike | None = None,
    constants: ArrayLike | None = None,
    weight: float | None = None,
    range: tuple[float, float] = (-math.inf, math.inf),
) -> CorrectedMean:
    """Estimates the mean over runs. A run's value is the sum of its items' values, each times the item's share.

    Args:
        judged: The value of each item according to the judge.
        labelled: The value of each item according to a human; nan for an item without a label.
        shares: The weight of each item in its run, such as 1 / K. None: 1 / the number of items in its run.
        runs: The number of each item's run, from 0. None: each item is a run of its own.
        strata: The stratum of each item, within which labels were drawn at random. None: one stratum.
        constants: A number added to each run's value whatever its items are. None: 0.
        weight: How much the judge's values count, from 0 to 1. None: the weight that gives the smallest variance.
        range: The least and the largest value that the mean can have; the estimate and its interval end there.
    """
    f = arrays.read("judged", judged)
    y = np.asarray(labelled, dtype=np.float64)
    if f.ndim != 1 or y.shape != f.shape or not f.size:
        raise InvalidInput("labelled", np.shape(labelled), f"one value or nan for each of the {f.size} items")
    run = np.arange(f.size) if runs is None else np.asarray(runs, dtype=np.intp)
    size = np.bincount(run)
    count = len(size)
    share = 1.0 / size[run] if shares is None else np.asarray(shares, dtype=np.float64)
    base = np.zeros(count) if constants is None else np.asarray(constants, dtype=np.float64)
    known = np.isfinite(y)
    if known.sum() < LEAST_LABELS:
        raise InvalidInput("labelled", int(known.sum()), f"{LEAST_LABELS} labels or more")
    group = _merged(np.zeros(f.size, np.intp) if strata is None else np.asarray(strata), known)
    a = share / count
    judged_parts, human_parts = a * f, a * np.where(known, y, 0.0)
    members = [np.flatnonzero(group == one) for one in np.unique(group)]
    drawn = [rows[known[rows]] for rows in members]
    # N² (1 − n/N) / n of each stratum: what a variance within it counts for.
    scale = [
        len(rows) * (len(rows) - len(some)) / len(some) for rows, some in zip(members, drawn, strict=True)
    ]
    lam = _tuned(judged_parts, human_parts, drawn, scale) if weight is None else weight
    rest = human_parts - lam * judged_parts
    # A tuned weight is one more thing that is estimated from the labels.
    tuning = 1.0 if weight is not None else 1 + 1 / max(1, sum(map(len, drawn)) - len(drawn) - 1)
    spread = [tuning * variance for variance in _variances(rest, a, members, drawn)]
    value = float(base.mean()) + lam * float(judged_parts.sum())
    value += sum(len(rows) * float(rest[some].mean()) for rows, some in zip(members, drawn, strict=True))
    of_labels = sum(times * s for times, s in zip(scale, spread, strict=True))
    # The spread of the runs themselves: of what is expected of each, and of what is left open within it.
    expected, left = lam * judged_parts, np.zeros(f.size)
    for rows, some, s in zip(members, drawn, spread, strict=True):
        expected[rows] += float(rest[some].mean())
        shared = float(np.cov(judged_parts[some], rest[some])[0, 1])
        left[rows] = max(0.0, s + 2 * lam * shared)
    by_run = base / count + np.bincount(run, expected, count)
    of_runs = count * float(by_run.var(ddof=1)) + float(left.sum()) if count > 1 else 0.0
    stderr = math.sqrt(of_labels + of_runs)
    parts = [times * s for times, s in zip(scale, spread, strict=True)]
    margin = _t(_freedom(parts, drawn)) * stderr
    raw = float(base.mean()) + float(judged_parts.sum())
    shown, low, high = np.clip((value, value - margin, value + margin), *range).tolist()
    labels = int(known.sum())
    return CorrectedMean(shown, low, high, margin=margin, stderr=stderr, raw=raw, weight=lam, labels=labels)


def rogan_gladen(judged: ArrayLike, labelled: ArrayLike, strata: ArrayLike | None = None) -> float:
    """Estimates the share of items that are right, from the share that the judge calls right.

    The judge's sensitivity and specificity are measured on the labels (Rogan and Gladen 1978). Returns nan if the
    labels are of one class or the judge is no better than chance.

    Args:
        judged: True for each item that the judge calls right.
        labelled: 1 or 0 by a human; nan where an item has no label.
        strata: The stratum of each item, within which labels were drawn at random. None: one stratum.
    """
    says = np.asarray(judged, dtype=np.float64)
    y = np.asarray(labelled, dtype=np.float64)
    known = np.isfinite(y)
    if not known.any():
        return math.nan
    group = _merged(np.zeros(says.size, np.intp) if strata is None else np.asarray(strata), known)
    _, at = np.unique(group, return_inverse=True)
    # Each label stands for as many items of its stratum as there are for a label.
    stands_for = (np.bincount(at) / np.maximum(1, np.bincount(at, known)))[at] * known
    right, wrong = stands_for * (y >= 0.5), stands_for * (y < 0.5)
    if not (right.sum() and wrong.sum()):
        return math.nan
    false_alarms = float(says @ wrong / wrong.sum())
    youden = float(says @ right / right.sum()) - false_alarms
    return float(np.clip((says.mean() - false_alarms) / youden, 0.0, 1.0)) if youden > 0 else math.nan


def _merged(strata: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Joins each stratum with fewer than two labels to its neighbour, since one label has no variance."""
    order = list(np.unique(strata))
    found = strata.copy()
    while len(order) > 1:
        few = [at for at, one in enumerate(order) if known[found == one].sum() < 2]
        if not few:
            break
        at = few[0]
        into = order[at + 1] if at + 1 < len(order) else order[at - 1]
        found[found == order[at]] = into
        del order[at]
    return found


def _tuned(judged: Floats, human: Floats, drawn: list[np.ndarray], scale: list[float]) -> float:
    """Returns the weight of the judge's values, from 0 to 1, that minimises the variance due to the labels."""
    together = alone = 0.0
    for some, times in zip(drawn, scale, strict=True):
        mine, theirs = judged[some] - judged[some].mean(), human[some] - human[some].mean()
        together += times * float(mine @ theirs) / (len(some) - 1)
        alone += times * float(mine @ mine) / (len(some) - 1)
    return min(1.0, max(0.0, together / alone)) if alone > 0 else 1.0


def _variances(
    rest: Floats, shares: Floats, members: list[np.ndarray], drawn: list[np.ndarray]
) -> list[float]:
    """Returns the variance of what is left to correct in each stratum, by a model and at least as it was observed.

    The model: an item's rest is its share times a number of which mean and variance are the stratum's. All shares are
    known, so that a few labels of items with small shares do not hide what those with large ones would add. The
    variance of that number has one observation more of the variance in all strata: a few labels that agree are no
    certainty.
    """
    means = [rest[some].sum() / whole if (whole := shares[some].sum()) else 0.0 for some in drawn]
    sums = [
        float(((rest[some] - mean * shares[some]) ** 2).sum())
        for some, mean in zip(drawn, means, strict=True)
    ]
    weights = [float((shares[some] ** 2).sum()) * (1 - 1 / len(some)) for some in drawn]
    pooled = sum(sums) / sum(weights) if sum(weights) else 0.0
    found = []
    for rows, some, mean, total, weight in zip(members, drawn, means, sums, weights, strict=True):
        square = float((shares[rows] ** 2).mean())
        one_more = (total + square * pooled) / (weight + square) if square else 0.0
        own = total / weight if weight else 0.0
        modelled = mean**2 * float(shares[rows].var()) + square * max(own, one_more)
        found.append(max(modelled, float(rest[some].var(ddof=1))))
    return found


def _freedom(parts: list[float], drawn: list[np.ndarray]) -> float:
    """Returns the degrees of freedom of a sum of variances, by Satterthwaite's formula."""
    below = sum(part**2 / (len(some) - 1) for part, some in zip(parts, drawn, strict=True))
    return sum(parts) ** 2 / below if below > 0 else sum(map(len, drawn)) - len(drawn)


def _t(freedom: float) -> float:
    """Returns the 97.5 % quantile of Student's t distribution, by Cornish and Fisher's expansion."""
    v, z = max(1.0, freedom), _Z
    return (
        z
        + (z**3 + z) / (4 * v)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)
    )

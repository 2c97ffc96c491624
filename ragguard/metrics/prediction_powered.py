"""Prediction-powered inference: corrects the mean of a judge's values by human labels of a few of the items.

The weight of the judge's values is tuned to the labels. docs/background/labels.md has the estimator and its formulas.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ragguard.errors import InvalidInput
from ragguard.metrics import arrays
from ragguard.metrics.arrays import Floats

LEAST_LABELS = 10
"""The fewest labels from which a mean is corrected."""
_Z = 1.959963984540054
"""The quantile of the normal distribution for 95 %."""
_UNSEEN = 1 / 75
"""Labels of each extreme that a stratum counts beside each label that was seen: labels that agree are no certainty."""
_LEAST_COUNT = 0.3
"""The fewest labels that a stratum counts as, so that two labels which differ leave nearly everything open."""
_DRAWS = 4000
"""Draws from the distribution of mean human values: its quantiles are then known to about a fortieth of the reach."""


@dataclass(frozen=True, slots=True)
class CorrectedMean:
    """An estimate of the mean that humans would find if they labelled every item."""

    value: float
    low: float
    """The lower end of the 95 % confidence interval. The runs count as a sample of all runs like them."""
    high: float
    below: float
    """How far the interval reaches under the estimate; `low` itself is no less than the range of the quantity."""
    above: float
    """How far it reaches over the estimate; more or less than `below` where few labels differ from the others."""
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
    lam = _tuned(judged_parts, human_parts, members, drawn) if weight is None else weight
    rest = human_parts - lam * judged_parts
    value = float(base.mean()) + lam * float(judged_parts.sum())
    value += sum(len(rows) * float(rest[some].mean()) for rows, some in zip(members, drawn, strict=True))
    least, most = float(y[known].min()), float(y[known].max())
    span, human = most - least, (y - least) / max(most - least, 1e-12)
    parts = [(a[rows], a[some], rest[some], human[some]) for rows, some in zip(members, drawn, strict=True)]
    strata = _Strata.of(parts)
    freedom = max(1, int(known.sum()) - len(drawn))
    # A tuned weight is one more thing that is estimated from the labels.
    tuning = 1.0 if weight is not None else 1 + 1 / freedom
    factor = tuning * strata.left_by_the_judge(span, freedom)
    under, over = strata.reach(span, factor, _t(freedom))
    # The spread of the runs themselves: of what is expected of each, and of what is left open within it.
    expected, left = lam * judged_parts, np.zeros(f.size)
    for rows, some, variance in zip(members, drawn, strata.variance(span, factor), strict=True):
        expected[rows] += float(rest[some].mean())
        shared = float(np.cov(judged_parts[some], rest[some])[0, 1])
        left[rows] = max(0.0, variance + 2 * lam * shared)
    by_run = base / count + np.bincount(run, expected, count)
    of_runs = count * float(by_run.var(ddof=1)) + float(left.sum()) if count > 1 else 0.0
    of_runs *= _t(max(1, count - 1)) ** 2
    below, above = math.sqrt(under**2 + of_runs), math.sqrt(over**2 + of_runs)
    raw = float(base.mean()) + float(judged_parts.sum())
    shown, low, high = np.clip((value, value - below, value + above), *range).tolist()
    return CorrectedMean(
        shown, low, high, below=below, above=above, stderr=(below + above) / (2 * _Z), raw=raw, weight=lam,
        labels=int(known.sum()),
    )  # fmt: skip


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
    found = strata.copy()
    *others, last = np.unique(strata)
    for one, following in pairwise([*others, last]):
        if known[found == one].sum() < 2:
            found[found == one] = following
    if known[found == last].sum() < 2 and (found < last).any():
        found[found == last] = found[found < last].max()
    return found


def _tuned(judged: Floats, human: Floats, members: list[np.ndarray], drawn: list[np.ndarray]) -> float:
    """Returns the weight of the judge's values, from 0 to 1, that minimises the variance due to the labels."""
    together = alone = 0.0
    for rows, some in zip(members, drawn, strict=True):
        shared = np.cov(judged[some], human[some]) * len(rows) * (len(rows) - len(some)) / len(some)
        together, alone = together + float(shared[0, 1]), alone + float(shared[0, 0])
    return min(1.0, max(0.0, together / alone)) if alone > 0 else 1.0


class _Strata(NamedTuple):
    """The labels and shares of each stratum; human values are counted from 0, the least label, to 1, the largest
    one."""

    items: Floats
    labels: Floats
    mean: Floats
    """The mean human value, each item counted by its share."""
    share: Floats
    """The mean share of the items; all shares are known, also those of items without a label."""
    square: Floats
    """The mean square of these shares."""
    by_shares: Floats
    """The variance of the rest that comes from unequal shares alone."""
    rest: Floats
    """The variance of the rest that is left when unequal shares are accounted for, and the same without a judge, both
    for shares as the labelled items have them."""
    human: Floats

    @classmethod
    def of(cls, strata: Sequence[tuple[Floats, Floats, Floats, Floats]]) -> _Strata:
        """Returns the strata of these shares; of their labelled items the shares, the rests and the human values."""
        found = []
        for shares, labelled, rest, human in strata:
            n, whole = len(human), float(labelled.sum()) or 1.0
            mean, mean_rest = min(1.0, float(labelled @ human) / whole), float(rest.sum()) / whole
            spread = ((rest - mean_rest * labelled) ** 2).sum() / (n - 1)
            judged_by_none = (labelled**2).mean() * mean * (1 - mean) * n / (n - 1)
            sizes = (len(shares), n, mean, shares.mean(), (shares**2).mean())
            found.append((*sizes, mean_rest**2 * shares.var(), spread, judged_by_none))
        return cls(*np.array(found, dtype=np.float64).T)

    @property
    def scale(self) -> Floats:
        """The factor N² (1 − n/N) / n by which a variance within a stratum counts."""
        return self.items * (self.items - self.labels) / self.labels

    def variance(self, span: float, factor: float) -> Floats:
        """Returns the variance of the rest of an item."""
        pure = self.mean * (1 - self.mean) * self.labels / (self.labels - 1)
        return self.by_shares + factor * span**2 * self.square * pure

    def left_by_the_judge(self, span: float, freedom: int) -> float:
        """Returns the share of the variance of human values that the judge leaves, as if one label more had said that
        it leaves all of the largest variance."""
        alone = freedom * float(self.scale @ self.human) * span**2
        left = freedom * float(self.scale @ self.rest)
        most = float(self.scale @ self.square) * span**2 / 4
        return (left + most) / (alone + most) if most else 1.0

    def reach(self, span: float, factor: float, quantile: float) -> tuple[float, float]:
        """Returns how far the interval reaches under and over the estimate for the labels.

        The mean human value of each stratum has a beta distribution, as after that many yes and no. Where nearly all
        labels agree it is skewed towards labels that were not drawn, so that the interval reaches further to that side;
        one of equal reach misses there, since an estimate that is too high comes with a variance that is too small.
        """
        open_ = (self.items > self.labels) & (self.share > 0)
        if not open_.any():
            return 0.0, 0.0
        one = _Strata(*(column[open_] for column in self))
        # As many labels of equal shares from an endless stratum would tell as much.
        n = one.labels * one.items / (one.items - one.labels)
        count, unseen = n * one.share**2 / (one.square * factor), _UNSEEN * one.labels
        # A distribution that counts as many labels less one has the variance that labels show without bias.
        count = np.maximum(count * (one.labels - 1) / one.labels - 1, _LEAST_COUNT)
        random = np.random.default_rng(0)
        drawn = random.beta(one.mean * count + unseen, (1 - one.mean) * count + unseen, (_DRAWS, len(n)))
        low, high = np.quantile((drawn - one.mean) @ (one.items * one.share * span), (0.025, 0.975))
        of_shares = quantile**2 * float(one.scale @ one.by_shares)
        return math.sqrt(min(0.0, low) ** 2 + of_shares), math.sqrt(max(0.0, high) ** 2 + of_shares)


def _t(freedom: float) -> float:
    """Returns the 97.5 % quantile of Student's t distribution, by Cornish and Fisher's expansion."""
    v, z = max(1.0, freedom), _Z
    return (
        z
        + (z**3 + z) / (4 * v)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)
    )

"""Correlations of metrics with outcomes, the area under a ROC curve, Cohen's κ, and differences of correlations and
means.

Over groups, intervals and p come from sign flips of the groups' values (mean_differences.py). SciPy computes
correlations (extra `analysis`); it is imported where it is used.
"""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ragguard.errors import InvalidInput, MissingDependency
from ragguard.metrics import arrays
from ragguard.metrics.arrays import Floats, Integers
from ragguard.metrics.mean_differences import mean_tests, random_draws
from ragguard.runtime.arguments import one_of

Kind = Literal["spearman", "kendall_b", "kendall_c", "pearson", "somers_d"]
"""`somers_d`: of the pairs whose outcomes differ, the share that the metric orders rightly less the share it orders
wrongly. It alone asks of a metric nothing about pairs that came out the same, which others hold against a metric that
tells them apart."""


class Correlation(NamedTuple):
    """The correlation of a metric with an outcome.

    Of groups it is the mean of their correlations, with p and the 95 % interval of sign flips of the groups; without
    groups there is no interval (nan). `skipped` counts the pairs left out for a nan, or groups in which
    one side does not vary.
    """

    value: float
    p: float
    low: float
    high: float
    counted: int
    skipped: int


class Difference(NamedTuple):
    """The amount by which the first of two is higher, with its 95 % interval and p."""

    value: float
    p: float
    low: float
    high: float
    counted: int
    skipped: int


def correlate(
    metric: ArrayLike,
    outcome: ArrayLike,
    kind: Kind = "spearman",
    groups: ArrayLike | None = None,
    draws: int = 2000,
    seed: int = 0,
    flat: float = math.nan,
) -> Correlation:
    """Returns the correlation of a metric with an outcome; with groups, the mean of the correlations within each.

    Pairs with a nan are left out and counted; a side that does not vary has no correlation (nan). `flat` is what a
    metric has that does not vary where the outcome does: 0 says that it predicts nothing there.
    """
    xs, ys, known = _pairs(kind, flat, metric=metric, outcome=outcome)
    if groups is None:
        value, p = _correlation(xs[known], ys[known], kind, flat)
        return Correlation(
            value, p, math.nan, math.nan, counted=int(known.sum()), skipped=int((~known).sum())
        )
    members = _members(groups, xs)
    each = np.array(
        [coefficient(xs[rows][known[rows]], ys[rows][known[rows]], kind, flat) for rows in members]
    )
    return Correlation(*_over_groups(each, draws, seed))


def paired_bootstrap(
    a: ArrayLike,
    b: ArrayLike,
    groups: ArrayLike | None = None,
    outcome: ArrayLike | None = None,
    kind: Kind = "spearman",
    draws: int = 2000,
    seed: int = 0,
    flat: float = math.nan,
) -> Difference:
    """Returns how much higher a is than b, by sign flips of the entries or groups that both share.

    Without `outcome`: the difference of two runs' means, over entries or over the means of groups. With it: the
    difference of two metrics' correlations with the outcome, the mean over groups if there are any; without groups this
    one is bootstrapped over entries. `flat` as for `correlate`.
    """
    first, second, known = _pairs(kind, flat, a=a, b=b)
    if outcome is None:
        gap = np.where(known, first - second, np.nan)
        if groups is not None:
            gap = np.array([arrays.aggregate(gap[rows]).mean for rows in _members(groups, first)])
        return Difference(*_over_groups(gap, draws, seed))
    target = _with_nan("outcome", outcome)
    arrays.same(a=first, outcome=target)
    known &= ~np.isnan(target)

    def gap_of(rows: Integers) -> float:
        there = rows[known[rows]]
        one, other = (coefficient(side[there], target[there], kind, flat) for side in (first, second))
        return one - other

    if groups is not None:
        return Difference(
            *_over_groups(np.array([gap_of(rows) for rows in _members(groups, first)]), draws, seed)
        )
    entries = np.flatnonzero(known)
    n, (rows, random) = len(entries), random_draws(draws, seed)
    drawn = np.array([gap_of(entries[random.integers(n, size=n)]) for _ in range(rows)] if n else [])
    return Difference(gap_of(entries), *interval(drawn), n, int((~known).sum()))


def auc(scores: ArrayLike, positive: ArrayLike) -> float:
    """Returns the area under the ROC curve: how often a positive has the higher score of a pair, ties by half.

    nan where there are no positives or no others.
    """
    values, truth = arrays.read("scores", scores), arrays.read("positive", positive)
    arrays.same(scores=values, positive=truth)
    good = truth.astype(bool)
    n, m = int(good.sum()), int((~good).sum())
    if not n or not m:
        return math.nan
    return float((arrays.ranks(values)[good].sum() - n * (n + 1) / 2) / (n * m))


def cohen_kappa(first: ArrayLike, second: ArrayLike, *, quadratic: bool = False) -> float:
    """Returns Cohen's κ of two raters: agreement beyond chance, (p_o − p_e) / (1 − p_e).

    `quadratic` weighs a disagreement by the square of its distance, for grades. nan where both raters give one and
    the same label throughout: chance alone would agree.
    """
    a, b = (np.asarray(side, dtype=np.float64) for side in (first, second))
    labels = np.unique(np.concatenate([a, b]))
    table = np.zeros((len(labels), len(labels)))
    np.add.at(table, (np.searchsorted(labels, a), np.searchsorted(labels, b)), 1.0)
    table /= a.size
    distance = np.subtract.outer(labels, labels) ** 2 if quadratic else 1.0 - np.eye(len(labels))
    by_chance = float((np.outer(table.sum(axis=1), table.sum(axis=0)) * distance).sum())
    return 1.0 - float((table * distance).sum()) / by_chance if by_chance else math.nan


def _pairs(kind: Kind, flat: float, **sides: ArrayLike) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Returns two lists of one length, and True for each entry that is known in both; checks the settings as well."""
    one_of("kind", kind, get_args(Kind))
    if not isinstance(flat, int | float):
        raise InvalidInput("flat", flat, "a number, or nan")
    lists = {argument: _with_nan(argument, values) for argument, values in sides.items()}
    arrays.same(**lists)
    first, second = lists.values()
    return first, second, ~(np.isnan(first) | np.isnan(second))


def _with_nan(argument: str, values: ArrayLike) -> Floats:
    """Returns a list of numbers in which nan stands for what is undefined."""
    array = arrays.numbers(argument, values)
    if array.ndim != 1:
        raise InvalidInput(f"{argument}.shape", array.shape, "one list")
    missing = np.isnan(array)
    read = arrays.read(argument, np.where(missing, 0.0, array))
    return np.where(missing, np.nan, read)


def _members(groups: ArrayLike, values: Floats) -> list[Integers]:
    """Returns the indices of the entries of each group."""
    try:
        labels = np.asarray(groups)
        _, index = np.unique(labels, return_inverse=True)
    except Exception as error:  # labels of the caller's, which may be neither comparable nor readable
        raise InvalidInput("groups", groups, "one label an entry, all of one kind") from error
    if labels.shape != values.shape:
        raise InvalidInput("groups.shape", labels.shape, f"{values.shape}, one group an entry")
    order = np.argsort(index, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(index[order])) + 1) if len(order) else []


def _correlation(xs: Floats, ys: Floats, kind: Kind, flat: float) -> tuple[float, float]:
    """Returns the coefficient and its p; nan where a side does not vary."""
    value = coefficient(xs, ys, kind, flat)
    if math.isnan(value) or not _varies(xs):
        return value, math.nan
    return value, float(_scipys(xs, ys, kind).pvalue)


def coefficient(xs: Floats, ys: Floats, kind: Kind, flat: float = math.nan) -> float:
    """Returns a correlation without p, with which SciPy takes two to four times as long; groups may be thousands."""
    if not _varies(ys):
        return math.nan
    if not _varies(xs):
        return flat
    if kind == "somers_d":
        # Kendall's τ-b, divided by the pairs that differ in the outcome alone.
        apart = math.sqrt(_apart(xs) / _apart(ys))
        return float(np.clip(_scipys(xs, ys, kind).statistic * apart, -1, 1))
    if kind in ("kendall_b", "kendall_c"):
        return float(_scipys(xs, ys, kind).statistic)
    if kind == "spearman":
        xs, ys = arrays.ranks(xs), arrays.ranks(ys)
    xs, ys = xs - xs.mean(), ys - ys.mean()
    # Each side is scaled first, so that no product is too large or too small.
    xs, ys = xs / np.abs(xs).max(), ys / np.abs(ys).max()
    return float(np.clip(xs @ ys / math.sqrt((xs @ xs) * (ys @ ys)), -1, 1))


def _scipys(xs: Floats, ys: Floats, kind: Kind) -> Any:
    try:
        stats = import_module("scipy.stats")
    except ImportError as error:
        raise MissingDependency("scipy", "correlating metrics with outcomes", "analysis") from error
    if kind == "spearman":
        return stats.spearmanr(xs, ys)
    if kind == "pearson":
        return stats.pearsonr(xs, ys)
    return stats.kendalltau(xs, ys, variant="c" if kind == "kendall_c" else "b")


def _apart(values: Floats) -> float:
    """Returns how many pairs of values differ."""
    times = np.unique(values, return_counts=True)[1].astype(np.float64)
    return float(len(values) * (len(values) - 1) - times @ (times - 1)) / 2


def _varies(values: Floats) -> bool:
    """Returns whether the values differ by more than rounding."""
    return len(values) > 1 and bool(np.ptp(values) > 1e-12 * np.abs(values).max())


def _over_groups(each: Floats, draws: int, seed: int) -> tuple[float, float, float, float, int, int]:
    """Returns the mean over groups, its p and interval, how many groups count, and how many had no value."""
    (found,) = mean_tests([each], symmetric=True, draws=draws, seed=seed)
    return found.value, found.p, found.low, found.high, found.counted, each.size - found.counted


def interval(drawn: Floats) -> tuple[float, float, float]:
    """Returns the two-sided p that the true value is 0, and the middle 95 % of the draws."""
    drawn = drawn[~np.isnan(drawn)]
    if not drawn.size:
        return math.nan, math.nan, math.nan
    # One more on either side: as many draws as there are cannot show a p of 0.
    side = min(np.count_nonzero(drawn <= 0), np.count_nonzero(drawn >= 0)) + 1
    low, high = np.quantile(drawn, [0.025, 0.975])
    return min(1.0, 2 * side / (drawn.size + 1)), float(low), float(high)

"""Measures of a top-K selection that do not need the number of relevant documents, and F beside them.

The source is Schwartz, Vasilyev and Sawaya, "How important is Recall for Measuring Retrieval Quality?". All
functions work element by element: numbers or arrays that fit each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ragguard.errors import InvalidInput
from ragguard.metrics import arrays
from ragguard.metrics.agreement import coefficient
from ragguard.metrics.arrays import Floats, Value
from ragguard.metrics.registry import Metric, declare

SOURCE = "Schwartz et al."


class BestAlpha(NamedTuple):
    """The α that predicts outcomes best, and its correlation with them."""

    alpha: float
    correlation: float


def t(n_p: ArrayLike, k: ArrayLike, alpha: float = 0.5, delivered: ArrayLike | None = None) -> Value:
    """Returns T = (1 − α) n_p − α n_n / K for n_p relevant and n_n other passages in K places (eq. 3).

    `delivered` = n_p + n_n is how many of the K places hold a passage (default: all). A place that is empty, as a guard
    dropped its passage, counts neither for nor against.
    """
    relevant, size = _selection(n_p, k)
    weight = arrays.parameter("alpha", alpha, 0, 1)
    filled = size
    if delivered is not None:
        filled = arrays.at_least("delivered", delivered, relevant, "n_p")
        if np.any(filled > size):
            raise InvalidInput("delivered", delivered, f"at most k = {size}")
    return arrays.plain((1 - weight) * relevant - weight * np.asarray(arrays.ratio(filled - relevant, size)))


def t_u(n_p: ArrayLike, k: ArrayLike, alpha: float = 0.5) -> Value:
    """Returns T_u = (1 − α) n_p − α n_n for n_p relevant and n_n other passages among k (eq. 4)."""
    relevant, size = _selection(n_p, k)
    weight = arrays.parameter("alpha", alpha, 0, 1)
    value = (1 - weight) * relevant - weight * (size - relevant)
    return arrays.plain(np.where(size > 0, value, np.nan))


def f(n_p: ArrayLike, k: ArrayLike, total: ArrayLike, alpha: float = 0.5) -> Value:
    """Returns F = n_p / (α K + (1 − α) N_p), the weighted harmonic mean of precision and recall (eq. 2); nan where
    nothing is relevant."""
    relevant, size = _selection(n_p, k)
    known = arrays.at_least("total", total, relevant, "n_p")
    return _f(relevant, size, np.where(known > 0, known, np.nan), alpha)


def f_e(n_p: ArrayLike, k: ArrayLike, n_p_2k: ArrayLike, alpha: float = 0.5) -> Value:
    """Returns F with the number of relevant ones in the top 2K in place of N_p; 0 where that number is 0."""
    relevant, size = _selection(n_p, k)
    known = arrays.at_least("n_p_2k", n_p_2k, relevant, "n_p")
    if np.any(known > 2 * size):
        raise InvalidInput("n_p_2k", n_p_2k, f"at most 2k = {2 * size}")
    return arrays.plain(np.where((known == 0) & (size > 0), 0.0, _f(relevant, size, known, alpha)))


declare(
    Metric(
        "t", "T", "(1 − α) times the relevant passages found, minus α times the share of the others; needs no total.",
        range=(-1, float("inf")), unit="passages",
        by_places=True, needs="how many of the k are relevant", source=f"{SOURCE}, eq. 3",
        levels=("step",), function=t,
    ),
    Metric(
        "t_u", "T, unnormalised", "(1 − α) times the relevant passages found, minus α times the number of the others.",
        range=(float("-inf"), float("inf")), unit="passages",
        by_places=True, needs="how many of the k are relevant",
        source=f"{SOURCE}, eq. 4", levels=("step",), function=t_u,
    ),
    Metric(
        "f", "F", "The weighted harmonic mean of precision and recall.", unit="share",
        needs="how many of the k are relevant, how many are in the whole base", source=f"{SOURCE}, eq. 2",
        levels=("step",), function=f,
    ),
    Metric(
        "f_e", "F, estimated", "F with the relevant ones of the top 2k standing in for all relevant ones.",
        unit="share", needs="how many of the k and of the 2k are relevant", source=SOURCE, levels=("step",),
        function=f_e,
    ),
)  # fmt: skip


def best_alpha(measure: Callable[[float], ArrayLike], outcomes: ArrayLike) -> BestAlpha:
    """Returns the α of 101 from 0 to 1 whose measure has the highest Spearman correlation with the outcomes.

    `measure` takes α and gives one value a query. Queries where it is nan for any α are left out for every α: values
    of α are compared on one set of queries.
    """
    if not callable(measure):
        raise InvalidInput("measure", measure, "a function of α")
    known = arrays.read("outcomes", outcomes)
    grid = np.linspace(0, 1, 101)
    table = [arrays.numbers("measure", measure(float(alpha))) for alpha in grid]
    for values in table:
        arrays.same(outcomes=known, measure=values)
    there = ~np.isnan(table).any(axis=0)
    best = BestAlpha(math.nan, math.nan)
    for alpha, values in zip(grid, table, strict=True):
        kept = arrays.read("measure", values[there])
        # Values that are equal but for rounding are equal, and so are correlations: the first such α stands.
        kept = np.round(kept / max(1e-12, np.abs(kept).max(initial=0)), 9)
        correlation = coefficient(kept, known[there], "spearman")
        first = math.isnan(best.correlation) and not math.isnan(correlation)
        if first or correlation > best.correlation + arrays.EXCESS:
            best = BestAlpha(float(alpha), correlation)
    return best


def _f(relevant: Floats, size: Floats, known: Floats, alpha: float) -> Value:
    weight = arrays.parameter("alpha", alpha, 0, 1)
    return arrays.ratio(relevant, weight * size + (1 - weight) * known)


def _selection(n_p: ArrayLike, k: ArrayLike) -> tuple[Floats, Floats]:
    relevant = arrays.read("n_p", n_p, low=0, axes=0)
    size = arrays.read("k", k, low=0, axes=0)
    arrays.fit(n_p=relevant.shape, k=size.shape)
    if np.any(relevant > size):
        raise InvalidInput("n_p", n_p, f"at most k = {size}")
    return relevant, size

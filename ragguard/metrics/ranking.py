"""The classical ranking measures, and measures of a top-K selection that do not need the number of relevant documents.

Relevance and gains come in ranked order, best first. The classical ones equal trec_eval's where that is defined; where
a query has no relevant item at all they are nan, which trec_eval counts as 0.

The source of T, T_u, F and F_e is Schwartz, Vasilyev and Sawaya, "How important is Recall for Measuring Retrieval
Quality?". These functions work element by element: numbers or arrays that fit each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ragguard.errors import InvalidInput
from ragguard.metrics import arrays
from ragguard.metrics.arrays import EXCESS, Booleans, Floats, Value
from ragguard.metrics.registry import Metric, declare

SOURCE = "Trappolini et al. 2025, appendix A"


def precision(rel: ArrayLike, k: int | None = None, mask: ArrayLike | None = None) -> Value:
    """Returns the share of the first k that is relevant; missing places count as not relevant."""
    relevant = _relevant(rel, mask)
    size = arrays.lengths(relevant, mask) if k is None else arrays.count("k", k)
    return arrays.ratio(_first(relevant, k).sum(axis=-1), size)


def recall(rel: ArrayLike, total: ArrayLike, k: int | None = None, mask: ArrayLike | None = None) -> Value:
    """Returns the share of all relevant items that is among the first k."""
    relevant = _relevant(rel, mask)
    return arrays.ratio(_first(relevant, k).sum(axis=-1), _total(total, relevant))


def hits(rel: ArrayLike, k: int | None = None, mask: ArrayLike | None = None) -> Value:
    """Returns 1 if any of the first k is relevant, else 0."""
    return arrays.plain(_first(_relevant(rel, mask), k).any(axis=-1).astype(np.float64))


def reciprocal_rank(rel: ArrayLike, k: int | None = None, mask: ArrayLike | None = None) -> Value:
    """Returns 1 / rank of the first relevant item, and 0 if there is none among the first k."""
    relevant = _first(_relevant(rel, mask), k)
    if not relevant.shape[-1]:
        return arrays.plain(np.zeros(relevant.shape[:-1]))
    return arrays.plain(np.where(relevant.any(axis=-1), 1 / (relevant.argmax(axis=-1) + 1), 0.0))


def average_precision(
    rel: ArrayLike, total: ArrayLike | None = None, k: int | None = None, mask: ArrayLike | None = None
) -> Value:
    """Returns the sum of the precisions at the relevant ones of the first k, divided by the number of all relevant
    items (default: of those in the list)."""
    relevant = _relevant(rel, mask)
    known = relevant.sum(axis=-1) if total is None else _total(total, relevant)
    first = _first(relevant, k)
    at_rank = np.cumsum(first, axis=-1) / np.arange(1, first.shape[-1] + 1)
    return arrays.ratio((at_rank * first).sum(axis=-1), known)


def ndcg(
    gains: ArrayLike,
    k: int | None = None,
    ideal: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    ideal_mask: ArrayLike | None = None,
) -> Value:
    """Returns Σ gain_r / log2(r + 1) of the first k, divided by that of the best order; `ideal` holds the gains of all
    judged passages."""
    ranked = arrays.front(arrays.read("gains", gains, low=0, mask=mask), mask)
    judged = (
        ranked
        if ideal is None
        else arrays.read("ideal", ideal, low=0, mask=ideal_mask, mask_name="ideal_mask")
    )
    depth = None if k is None else arrays.count("k", k)
    first = ranked[..., :depth]
    reached = first @ arrays.discounts(first.shape[-1])
    best = _largest(judged, depth)
    possible = best @ arrays.discounts(best.shape[-1])
    if ideal is not None:
        arrays.fit(gains=reached.shape, ideal=possible.shape)
        if np.any(reached > possible * (1 + EXCESS)):
            raise InvalidInput(
                "ideal", ideal, "the gains of all judged passages, those of `gains` among them"
            )
    return arrays.ratio(reached, possible)


declare(
    Metric(
        name="precision", title="Precision", range=(0, 1), unit="share", direction="higher",
        description="The share of the first k that is relevant.",
        needs="relevance in ranked order", source=SOURCE, function=precision,
    ),
    Metric(
        name="recall", title="Recall", range=(0, 1), unit="share", direction="higher",
        description="The share of all relevant items that is among the first k.",
        needs="relevance in ranked order, the number of relevant items", source=SOURCE, levels=("step",),
        function=recall,
    ),
    Metric(
        name="hits", title="Hit", range=(0, 1), direction="higher",
        description="Whether any of the first k is relevant.",
        needs="relevance in ranked order", source=SOURCE, function=hits,
    ),
    Metric(
        name="reciprocal_rank", title="Reciprocal rank", range=(0, 1), direction="higher",
        description="1 over the rank of the first relevant item; its mean is MRR.",
        needs="relevance in ranked order", source=SOURCE, function=reciprocal_rank,
    ),
    Metric(
        name="average_precision", title="Average precision", range=(0, 1), direction="higher",
        description="The mean precision at the relevant items; its mean over queries is MAP.",
        needs="relevance in ranked order", source=SOURCE, function=average_precision,
    ),
    Metric(
        name="ndcg", title="nDCG", range=(0, 1), direction="higher",
        description="Gain discounted by rank, beside that of the best order.",
        needs="gains in ranked order", source=SOURCE, function=ndcg,
    ),
)  # fmt: skip


def _largest(values: Floats, k: int | None) -> Floats:
    """Returns the k largest of each list, largest first."""
    width = values.shape[-1]
    if k is not None and k < width:
        values = np.partition(values, width - k, axis=-1)[..., width - k :]
    return np.sort(values, axis=-1)[..., ::-1]


def _relevant(rel: ArrayLike, mask: ArrayLike | None) -> Booleans:
    return arrays.front(arrays.read("rel", rel, low=0, mask=mask), mask) > 0


def _first(relevant: Booleans, k: int | None) -> Booleans:
    return relevant if k is None else relevant[..., : arrays.count("k", k)]


def _total(total: ArrayLike, relevant: Booleans) -> Floats:
    known = arrays.read("total", total, low=0, axes=0)
    listed = relevant.sum(axis=-1)
    arrays.fit(rel=listed.shape, total=known.shape)
    if np.any(listed > known):
        raise InvalidInput("total", total, f"at least the number of relevant items listed, {listed}")
    return known


TOPK_SOURCE = "Schwartz et al."


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
        filled = _at_least("delivered", delivered, relevant)
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
    known = _at_least("total", total, relevant)
    return _f(relevant, size, np.where(known > 0, known, np.nan), alpha)


def f_e(n_p: ArrayLike, k: ArrayLike, n_p_2k: ArrayLike, alpha: float = 0.5) -> Value:
    """Returns F with the number of relevant ones in the top 2K in place of N_p; 0 where that number is 0."""
    relevant, size = _selection(n_p, k)
    known = _at_least("n_p_2k", n_p_2k, relevant)
    if np.any(known > 2 * size):
        raise InvalidInput("n_p_2k", n_p_2k, f"at most 2k = {2 * size}")
    return arrays.plain(np.where((known == 0) & (size > 0), 0.0, _f(relevant, size, known, alpha)))


declare(
    Metric(
        name="t", title="T", range=(-1, float("inf")), unit="passages", direction="higher",
        description="Relevant passages found, less the share of others, traded off by α; needs no total.",
        needs="how many of the k are relevant", source=f"{TOPK_SOURCE}, eq. 3", levels=("step",), function=t,
    ),
    Metric(
        name="t_u", title="T, unnormalised", range=(float("-inf"), float("inf")), unit="passages", direction="higher",
        description="Relevant passages found, less the number of others, traded off by α.",
        needs="how many of the k are relevant", source=f"{TOPK_SOURCE}, eq. 4", levels=("step",), function=t_u,
    ),
    Metric(
        name="f", title="F", range=(0, 1), unit="share", direction="higher",
        description="The weighted harmonic mean of precision and recall.",
        needs="how many of the k are relevant, how many are in the whole base", source=f"{TOPK_SOURCE}, eq. 2",
        levels=("step",), function=f,
    ),
    Metric(
        name="f_e", title="F, estimated", range=(0, 1), unit="share", direction="higher",
        description="F with the relevant ones of the top 2k standing in for all relevant ones.",
        needs="how many of the k and of the 2k are relevant", source=TOPK_SOURCE, levels=("step",), function=f_e,
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
    best = BestAlpha(float("nan"), float("nan"))
    grid = np.linspace(0, 1, 101)
    table = [arrays.numbers("measure", measure(float(alpha))) for alpha in grid]
    for values in table:
        arrays.same(outcomes=known, measure=values)
    there = ~np.isnan(table).any(axis=0)
    for alpha, values in zip(grid, table, strict=True):
        correlation = _spearman(arrays.read("measure", values[there]), known[there])
        # Equal but for rounding is equal: the first such α stands.
        if correlation > best.correlation + arrays.EXCESS or (
            np.isnan(best.correlation) and correlation >= -1
        ):
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


def _at_least(argument: str, value: ArrayLike, relevant: Floats) -> Floats:
    known = arrays.read(argument, value, low=0, axes=0)
    arrays.fit(n_p=relevant.shape, **{argument: known.shape})
    if np.any(known < relevant):
        raise InvalidInput(argument, value, f"at least n_p = {relevant}")
    return known


def _spearman(a: Floats, b: Floats) -> float:
    """Returns Spearman's correlation; nan where one of the two does not vary."""
    if not a.size:
        return float("nan")
    a, b = arrays.ranks(_without_rounding(a)), arrays.ranks(b)
    a, b = a - a.mean(), b - b.mean()
    return float(arrays.ratio(a @ b, np.sqrt((a @ a) * (b @ b))))


def _without_rounding(values: Floats) -> Floats:
    """Returns numbers in the same order in which values that are equal but for rounding are equal."""
    order = np.argsort(values, kind="stable")
    steps = np.diff(values[order]) > arrays.EXCESS * np.abs(values).max(initial=0)
    merged = np.empty(values.shape)
    merged[order] = np.concatenate([[0], np.cumsum(steps)])
    return merged

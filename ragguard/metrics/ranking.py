"""The classical ranking measures.

Relevance and gains come in ranked order, best first. They equal trec_eval's where that is defined; where
a query has no relevant item at all they are nan, which trec_eval counts as 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ragguard.errors import InvalidInput
from ragguard.metrics import arrays
from ragguard.metrics.arrays import EXCESS, Booleans, Floats, Mask, Value
from ragguard.metrics.registry import Metric, declare

SOURCE = "Trappolini et al. 2025, appendix A"
_LISTED = "the number of relevant items listed"


def precision(rel: ArrayLike, k: int | None = None, mask: Mask = None) -> Value:
    """Returns the share of the first k that is relevant; missing places count as not relevant."""
    relevant = _relevant(rel, mask)
    size = arrays.lengths(relevant, mask) if k is None else arrays.count("k", k)
    return arrays.ratio(_first(relevant, k).sum(axis=-1), size)


def recall(rel: ArrayLike, total: ArrayLike, k: int | None = None, mask: Mask = None) -> Value:
    """Returns the share of all relevant items that is among the first k."""
    relevant = _relevant(rel, mask)
    known = arrays.at_least("total", total, relevant.sum(axis=-1), _LISTED)
    return arrays.ratio(_first(relevant, k).sum(axis=-1), known)


def hits(rel: ArrayLike, k: int | None = None, mask: Mask = None) -> Value:
    """Returns 1 if any of the first k is relevant, else 0."""
    return arrays.plain(_first(_relevant(rel, mask), k).any(axis=-1).astype(np.float64))


def reciprocal_rank(rel: ArrayLike, k: int | None = None, mask: Mask = None) -> Value:
    """Returns 1 / rank of the first relevant item, and 0 if there is none among the first k."""
    relevant = _first(_relevant(rel, mask), k)
    if not relevant.shape[-1]:
        return arrays.plain(np.zeros(relevant.shape[:-1]))
    return arrays.plain(np.where(relevant.any(axis=-1), 1 / (relevant.argmax(axis=-1) + 1), 0.0))


def average_precision(
    rel: ArrayLike, total: ArrayLike | None = None, k: int | None = None, mask: Mask = None
) -> Value:
    """Returns the sum of the precisions at the relevant ones of the first k, divided by the number of all relevant
    items (default: of those in the list)."""
    relevant = _relevant(rel, mask)
    listed = relevant.sum(axis=-1)
    known = listed if total is None else arrays.at_least("total", total, listed, _LISTED)
    first = _first(relevant, k)
    at_rank = np.cumsum(first, axis=-1) / np.arange(1, first.shape[-1] + 1)
    return arrays.ratio((at_rank * first).sum(axis=-1), known)


def ndcg(
    gains: ArrayLike,
    k: int | None = None,
    ideal: ArrayLike | None = None,
    mask: Mask = None,
    ideal_mask: Mask = None,
) -> Value:
    """Returns Σ gain_r / log2(r + 1) of the first k, divided by that of the best order; `ideal` holds the gains of all
    judged passages."""
    ranked = arrays.front(arrays.read("gains", gains, low=0, mask=mask), mask)
    judged = ranked
    if ideal is not None:
        judged = arrays.read("ideal", ideal, low=0, mask=ideal_mask, mask_name="ideal_mask")
    depth = None if k is None else arrays.count("k", k)
    first = ranked[..., :depth]
    reached = first @ arrays.discounts(first.shape[-1])
    best = _largest(judged, depth)
    possible = best @ arrays.discounts(best.shape[-1])
    if ideal is not None:
        arrays.fit(gains=reached.shape, ideal=possible.shape)
        if np.any(reached > possible * (1 + EXCESS)):
            raise InvalidInput("ideal", ideal, "the gains of all judged passages, those of `gains` as well")
    return arrays.ratio(reached, possible)


declare(
    Metric(
        "precision", "Precision", "The share of the first k that is relevant.", unit="share",
        needs="relevance in ranked order", source=SOURCE, function=precision,
    ),
    Metric(
        "recall", "Recall", "The share of all relevant items that is among the first k.", unit="share",
        needs="relevance in ranked order, the number of relevant items", source=SOURCE, levels=("step",),
        function=recall,
    ),
    Metric(
        "hits", "Hit", "Whether any of the first k is relevant.", needs="relevance in ranked order", source=SOURCE,
        function=hits,
    ),
    Metric(
        "reciprocal_rank", "Reciprocal rank", "1 over the rank of the first relevant item; its mean is MRR.",
        needs="relevance in ranked order", source=SOURCE, function=reciprocal_rank,
    ),
    Metric(
        "average_precision", "Average precision",
        "The mean precision at the relevant items; its mean over queries is MAP.", needs="relevance in ranked order",
        source=SOURCE, function=average_precision,
    ),
    Metric(
        "ndcg", "nDCG", "Gain discounted by rank, divided by that of the best order.", needs="gains in ranked order",
        source=SOURCE, function=ndcg,
    ),
)  # fmt: skip


def _largest(values: Floats, k: int | None) -> Floats:
    """Returns the k largest of each list, largest first."""
    width = values.shape[-1]
    if k is not None and k < width:
        values = np.partition(values, width - k, axis=-1)[..., width - k :]
    return np.sort(values, axis=-1)[..., ::-1]


def _relevant(rel: ArrayLike, mask: Mask) -> Booleans:
    return arrays.front(arrays.read("rel", rel, low=0, mask=mask), mask) > 0


def _first(relevant: Booleans, k: int | None) -> Booleans:
    return relevant if k is None else relevant[..., : arrays.count("k", k)]

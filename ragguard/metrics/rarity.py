"""Metrics that compare a set of passages with the best set that exists; rare grades weigh more.

The source is "Redefining RAG Evaluation: A Set-Based Approach" (arXiv:2511.09545). Grades run from 1 (junk)
to 5 (decisive). The pool is every graded passage of the query, the candidates are what was retrieved, the
chosen are what the model got.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from ragguard.errors import InvalidInput
from ragguard.metrics import arrays
from ragguard.metrics.arrays import Floats, Integers, Mask, Value
from ragguard.metrics.registry import Metric, declare

SOURCE = "arXiv:2511.09545"
BASE = {4: 0.5, 3: 0.1}
"""Base utilities relative to grade 5; those of grades 1 and 2 are 0."""
FALLBACK = {4: 1.0, 3: 0.2}
"""Weights where the pool holds no grade 5, so that rarity has nothing to be relative to."""


def grade_weights(
    pool_grades: ArrayLike, alpha: float = 1.0, cap4: float = 1.0, cap3: float = 0.25, mask: Mask = None
) -> Floats:
    """Returns the weight of each grade from how common the grades are: `weights[..., grade]`, entry 0 is unused.

    w5 = 1, w4 = min(0.5 (n5 / n4)^α, cap4), w3 = min(0.1 (n5 / n3)^α, cap3), w2 = w1 = 0, with n_g passages of grade g
    in the pool; without a grade 5, w4 = 1 and w3 = 0.2.
    """
    return _weights(_counts("pool_grades", pool_grades, mask, "mask"), alpha, cap4, cap3)


def ra_nwg(
    pool: ArrayLike,
    chosen: ArrayLike,
    k: int,
    alpha: float = 1.0,
    cap4: float = 1.0,
    cap3: float = 0.25,
    pool_mask: Mask = None,
    chosen_mask: Mask = None,
) -> Value:
    """Returns Σ w(chosen) / Σ of the k largest w in the pool, with w from `grade_weights`.

    k is the number of places in the prompt; fewer chosen than k leave places empty, which weigh 0.
    """
    known = _counts("pool", pool, pool_mask, "pool_mask")
    taken = _chosen(chosen, k, chosen_mask)
    arrays.fit(pool=known.shape[:-1], chosen=taken.shape[:-1])
    weights = _weights(known, alpha, cap4, cap3)
    return arrays.ratio((taken * weights).sum(axis=-1), _best(known, weights, k))


def proc(
    pool: ArrayLike,
    candidates: ArrayLike,
    k: int,
    alpha: float = 1.0,
    cap4: float = 1.0,
    cap3: float = 0.25,
    pool_mask: Mask = None,
    candidates_mask: Mask = None,
) -> Value:
    """Returns Σ of the k largest w among the candidates / Σ of the k largest w in the pool: what retrieval made
    possible."""
    arrays.count("k", k)
    known = _counts("pool", pool, pool_mask, "pool_mask")
    found = _counts("candidates", candidates, candidates_mask, "candidates_mask")
    arrays.fit(pool=known.shape[:-1], candidates=found.shape[:-1])
    weights = _weights(known, alpha, cap4, cap3)
    return arrays.ratio(_best(found, weights, k), _best(known, weights, k))


def pct_proc(
    pool: ArrayLike,
    candidates: ArrayLike,
    chosen: ArrayLike,
    k: int,
    alpha: float = 1.0,
    cap4: float = 1.0,
    cap3: float = 0.25,
    pool_mask: Mask = None,
    candidates_mask: Mask = None,
    chosen_mask: Mask = None,
) -> Value:
    """Returns RA-nWG / PROC: how much of what retrieval made possible was chosen."""
    reached = ra_nwg(pool, chosen, k, alpha, cap4, cap3, pool_mask, chosen_mask)
    ceiling = proc(pool, candidates, k, alpha, cap4, cap3, pool_mask, candidates_mask)
    arrays.fit(candidates=np.shape(ceiling), chosen=np.shape(reached))
    # An undefined ceiling stays undefined: nan is not 0, and nan over nan is nan.
    return arrays.ratio(reached, ceiling)


def n_recall(
    pool: ArrayLike,
    chosen: ArrayLike,
    k: int,
    at_least: int = 4,
    pool_mask: Mask = None,
    chosen_mask: Mask = None,
) -> Value:
    """Returns h / min(k, R): of R good passages in the pool, h were chosen, of as many as fit into k places."""
    floor = arrays.count("at_least", at_least, 1, 5)
    known = _counts("pool", pool, pool_mask, "pool_mask")
    taken = _chosen(chosen, k, chosen_mask)
    arrays.fit(pool=known.shape[:-1], chosen=taken.shape[:-1])
    return arrays.ratio(taken[..., floor:].sum(axis=-1), np.minimum(k, known[..., floor:].sum(axis=-1)))


def precision_at_grade(chosen: ArrayLike, k: int, at_least: int = 4, chosen_mask: Mask = None) -> Value:
    """Returns the share of the k places that a good passage fills; an empty place counts as not good."""
    floor = arrays.count("at_least", at_least, 1, 5)
    return arrays.ratio(_chosen(chosen, k, chosen_mask)[..., floor:].sum(axis=-1), k)


def harm(chosen: ArrayLike, k: int, at_most: int = 2, chosen_mask: Mask = None) -> Value:
    """Returns the share of the k places that junk fills; an empty place is no junk."""
    ceiling = arrays.count("at_most", at_most, 1, 5)
    return arrays.ratio(_chosen(chosen, k, chosen_mask)[..., 1 : ceiling + 1].sum(axis=-1), k)


_of_places = partial(Metric, unit="share", by_places=True, source=SOURCE, levels=("step",))
"""Declares a share of the k places of a step."""

declare(
    Metric(
        "grade", "Grade", "How useful the passage is for the step's query, from 1 (junk) to 5 (decisive).",
        range=(1, 5), needs="a judge, or given grades", source=SOURCE, levels=("passage",),
    ),
    _of_places(
        "ra_nwg", "RA-nWG",
        "The value of what the model got, divided by that of the best k passages; rare ones count more.",
        needs="grades of the pool and of what was chosen", function=ra_nwg,
    ),
    _of_places(
        "selection_efficiency", "Selection efficiency",
        "RA-nWG with the step's own candidates as the pool: how well the choice among them was made.",
        needs="grades of the candidates and of what was chosen", function=ra_nwg,
    ),
    _of_places(
        "proc", "PROC",
        "The value of the best k retrieved passages, divided by that of the best k passages that exist.",
        needs="grades of the pool and of the candidates", function=proc,
    ),
    _of_places(
        "pct_proc", "%PROC",
        "RA-nWG divided by PROC: how good the choice was, beside the best one among what was retrieved.",
        needs="grades of the pool, the candidates and what was chosen", function=pct_proc,
    ),
    _of_places(
        "n_recall", "N-Recall",
        "The share of the good passages (grade 4 or 5) that was chosen, of as many as fit into k places.",
        needs="grades of the pool and of what was chosen", function=n_recall,
    ),
    _of_places(
        "n_recall_5", "N-Recall, grade 5",
        "The share of the decisive passages (grade 5) that was chosen, of as many as fit into k places.",
        needs="grades of the pool and of what was chosen", function=n_recall,
    ),
    _of_places(
        "precision_at_grade", "Precision at grade",
        "The share of the k places that a good passage (grade 4 or 5) fills.",
        needs="grades of what was chosen", function=precision_at_grade,
    ),
    _of_places(
        "harm", "Harm", "The share of the k places that junk (grade 1 or 2) fills.", direction="lower",
        needs="grades of what was chosen", function=harm,
    ),
    _of_places(
        "harm_1", "Harm, grade 1", "The share of the k places that passages of grade 1 fill.", direction="lower",
        needs="grades of what was chosen", function=harm,
    ),
)  # fmt: skip


def _counts(argument: str, grades: ArrayLike, mask: Mask, mask_name: str) -> Integers:
    """Returns how many passages have each grade, by grade; entry 0 is unused."""
    read = arrays.read(argument, grades, low=1, high=5, mask=mask, mask_name=mask_name)
    values = arrays.whole(argument, read, "a grade: 1, 2, 3, 4 or 5")
    if mask is not None:
        values = values * np.asarray(mask)
    n = int(np.prod(values.shape[:-1]))
    row = np.repeat(np.arange(n) * 6, values.shape[-1])
    found = np.bincount(row + values.reshape(-1), minlength=6 * n).reshape(*values.shape[:-1], 6)
    found[..., 0] = 0
    return found


def _chosen(chosen: ArrayLike, k: int, mask: Mask) -> Integers:
    places = arrays.count("k", k)
    taken = _counts("chosen", chosen, mask, "chosen_mask")
    most = int(taken.sum(axis=-1).max(initial=0))
    if most > places:
        raise InvalidInput("chosen", f"{most} passages", f"at most k = {places}")
    return taken


def _weights(counts: Integers, alpha: float, cap4: float, cap3: float) -> Floats:
    exponent = arrays.parameter("alpha", alpha, 0)
    caps = {4: arrays.parameter("cap4", cap4, 0), 3: arrays.parameter("cap3", cap3, 0)}
    weights = np.zeros(counts.shape)
    weights[..., 5] = 1
    decisive = counts[..., 5]
    for grade, cap in caps.items():
        present = counts[..., grade]
        # p5 / p4 is n5 / n4, N being the same; a large alpha may overflow to infinity, which the cap cuts.
        with np.errstate(over="ignore"):
            relative = BASE[grade] * (decisive / np.maximum(present, 1)) ** exponent
        capped = np.where(present > 0, np.minimum(relative, cap), 0.0)
        weights[..., grade] = np.where(decisive > 0, capped, FALLBACK[grade])
    return weights


def _best(counts: Integers, weights: Floats, k: int) -> Floats:
    """Returns the weight of the k heaviest passages; a grade 3 may weigh more than a 4."""
    order = np.argsort(-weights, axis=-1, kind="stable")
    heaviest = np.take_along_axis(counts, order, axis=-1)
    before = np.cumsum(heaviest, axis=-1) - heaviest
    taken = np.clip(k - before, 0, heaviest)
    return np.asarray((taken * np.take_along_axis(weights, order, axis=-1)).sum(axis=-1))

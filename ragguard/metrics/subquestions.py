"""Metrics of how many sub-questions passages answer, how new each answer is, and in how few words.

The source is Ju et al., "Controlled Retrieval-augmented Context Evaluation for Long-form RAG" (CRUX, 2025).
`ratings[p, q]` from 0 to 5 says how well passage p answers sub-question q; from η on it counts as answered. Sums of
ranked coverage run as in the TREC diversity evaluator, beside the greedy order that it is compared with.
"""

from __future__ import annotations

from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ragguard.errors import InvalidInput
from ragguard.metrics import arrays
from ragguard.metrics.arrays import Booleans, Floats, Integers, Mask, Value
from ragguard.metrics.registry import Metric, declare

BITS = 8
"""The number of sub-questions that the greedy search looks up together."""
TABLE = 1 << BITS
CACHED = 1 << 18
"""The most numbers that the greedy search works on at a time: two megabytes, which fit into a processor's cache."""


def times_before(answers: Booleans) -> Integers:
    """Returns how often each sub-question was answered by the passages before each passage."""
    return np.cumsum(answers, axis=-2, dtype=np.intp) - answers


def gain(answers: Booleans, keep: float, before: Integers | None) -> Value:
    """Returns the discounted gain of passages in order; `before` is how often each sub-question was answered before."""
    depth = answers.shape[-2]
    times, most = times_before(answers), depth
    if before is not None:
        times, most = times + before, depth + int(before.max(initial=0))
    novelty = np.where(answers, _kept(keep, most)[times], 0.0).sum(axis=-1)
    return arrays.plain(novelty @ arrays.discounts(depth))


def greedy_gain(pool: Booleans, keep: float, depth: int | None) -> Value:
    """Returns the discounted gain of the order that takes, at each rank, the passage that adds most; of equal ones the
    first."""
    *queries, passages, questions = pool.shape
    n = int(np.prod(queries))
    flat = pool.reshape(n, passages, questions)
    best = np.zeros(n)
    if not pool.size:
        return arrays.plain(best.reshape(queries))
    discounts = arrays.discounts(passages if depth is None else min(depth, passages))
    if n == 1:
        return arrays.plain(np.full(queries, _greedy_one(flat[0], keep, discounts)))
    width = TABLE + passages * (2 + max(0, questions - BITS))
    for rows in arrays.blocks(n, width, CACHED):
        best[rows] = _greedy_block(flat[rows], keep, discounts)
    return arrays.plain(best.reshape(queries))


def _kept(keep: float, n: int) -> Floats:
    """Returns keep to the power 0, 1, … n, by repeated multiplication as the TREC evaluator computes it."""
    return np.multiply.accumulate(np.concatenate([[1.0], np.full(n, keep)]))


def _greedy_one(answers: Booleans, keep: float, discounts: Floats) -> float:
    """Returns the greedy gain of one query.

    What a passage adds only falls. So a heap of what each passage added when it was last computed gives the best one
    after few computations. Passages that answer the same set are one entry of the heap, the first of them in front.
    """
    of_passage: dict[int, list[int]] = {}
    passages_with, questions_of = answers.nonzero()
    for at, question in zip(passages_with.tolist(), questions_of.tolist(), strict=True):
        of_passage.setdefault(at, []).append(question)
    waiting: dict[tuple[int, ...], list[int]] = {}
    for at in reversed(of_passage):
        waiting.setdefault(tuple(of_passage[at]), []).append(at)
    worth = [1.0] * answers.shape[1]
    heap = [
        (-float(len(questions)), passages.pop(), questions, passages)
        for questions, passages in waiting.items()
    ]
    heapify(heap)
    total = 0.0
    for discount in discounts.tolist():
        while heap:
            seen, at, questions, passages = heap[0]
            adds = 0.0
            for question in questions:
                adds += worth[question]
            if adds == -seen:
                break
            heapreplace(heap, (-adds, at, questions, passages))
        else:
            break
        if not adds:
            break
        total += discount * adds
        for question in questions:
            worth[question] *= keep
        if passages:
            heapreplace(heap, (seen, passages.pop(), questions, passages))
        else:
            heappop(heap)
    return total


def _greedy_block(answers: Booleans, keep: float, discounts: Floats) -> Floats:
    """Returns the greedy gains of several queries.

    What a passage adds is a sum over the sub-questions that it answers. Many passages answer the same set. So the sums
    of all sets of the first eight sub-questions are computed once at each rank and looked up; the others are added.
    Sums run in the order of the sub-questions, as those of the TREC evaluator do, so that equal gains are equal to the
    last bit.
    """
    n, _, questions = answers.shape
    row = np.arange(n)
    worth = np.ones((questions, n))
    sums = np.zeros((1 << min(BITS, questions), n))
    # A set is a smaller one and one sub-question more, so each half of the table comes from the one before.
    halves = [(sums[: 1 << q], worth[q], sums[1 << q : 2 << q]) for q in range(min(BITS, questions))]
    sets = np.packbits(answers[..., :BITS], axis=-1, bitorder="little")[..., 0]
    flat = sets * np.intp(n) + row[:, None]
    others = answers[..., BITS:].transpose(2, 0, 1).astype(np.float64, order="C")
    best = np.zeros(n)
    for discount in discounts:
        for smaller, value, larger in halves:
            np.add(smaller, value, out=larger)
        gain = sums.ravel().take(flat)
        for other, value in zip(others, worth[BITS:], strict=True):
            gain += other * value[:, None]
        pick = gain.argmax(axis=1)
        added = gain[row, pick]
        if not added.any():
            break
        best += discount * added
        worth *= np.where(answers[row, pick].T, keep, 1.0)
        # A passage taken answers nothing more: the empty set's place, and no others.
        flat[row, pick] = row
        if len(others):
            others[:, row, pick] = 0
    return best


SOURCE = "Ju et al. 2025 (CRUX)"


class Subset(NamedTuple):
    """Indices of passages that add an answer, that only repeat answers, and that answer nothing; within each, those
    that answer most come first."""

    required: Integers
    partial: Integers
    redundant: Integers


def answerable_questions(oracle_ratings: ArrayLike, eta: float = 3, mask: Mask = None) -> Booleans:
    """Returns which sub-questions some passage of the oracle answers."""
    return np.asarray(_answers("oracle_ratings", oracle_ratings, eta, mask).any(axis=-2))


def coverage(
    ratings: ArrayLike, eta: float = 3, answerable: ArrayLike | None = None, mask: Mask = None
) -> Value:
    """Returns the share of the (answerable) sub-questions that some passage answers (eq. 3); nan without passages."""
    answers = _answers("ratings", ratings, eta, mask)
    asked = _asked(answers, answerable)
    covered = np.count_nonzero(answers.any(axis=-2) & asked, axis=-1)
    passages = answers.shape[-2] if mask is None else arrays.lengths(answers, mask)
    return arrays.ratio(covered, np.where(np.asarray(passages) > 0, np.count_nonzero(asked, axis=-1), 0))


def contested(
    ratings: ArrayLike, contradictions: ArrayLike, eta: float = 3, answerable: ArrayLike | None = None
) -> float:
    """Returns the share of the (answerable) sub-questions to which two passages that answer it contradict each other.

    `contradictions[p, r, q]`: what passages p and r answer to sub-question q cannot both be true. nan without passages.
    """
    answers = _answers("ratings", ratings, eta, None)
    if answers.ndim != 2:
        raise InvalidInput("ratings", ratings, "a table (passages, sub-questions)")
    passages, asked = len(answers), _asked(answers, answerable)
    contradict = arrays.boolean("contradictions", contradictions, (passages, *answers.shape))
    both = answers[:, None, :] & answers[None, :, :] & (contradict | contradict.swapaxes(0, 1))
    disputed = both.any(axis=(0, 1)) & asked
    return float(arrays.ratio(np.count_nonzero(disputed), np.count_nonzero(asked) if passages else 0))


def marginal_coverage(
    ratings: ArrayLike, eta: float = 3, answerable: ArrayLike | None = None, mask: Mask = None
) -> Floats:
    """Returns what each passage adds to the coverage of those before it; the sum is the coverage."""
    answers = _answers("ratings", ratings, eta, mask)
    asked = _asked(answers, answerable)
    new = np.count_nonzero(answers & (times_before(answers) == 0) & asked[..., None, :], axis=-1)
    return _per_passage(new, np.count_nonzero(asked, axis=-1)[..., None], mask)


def redundancy(ratings: ArrayLike, eta: float = 3, mask: Mask = None) -> Floats:
    """Returns, of what each passage answers, the share that those before it answer too; nan where it answers
    nothing."""
    answers = _answers("ratings", ratings, eta, mask)
    again = np.count_nonzero(answers & (times_before(answers) > 0), axis=-1)
    return _per_passage(again, np.count_nonzero(answers, axis=-1), mask)


def alpha_ndcg(
    ratings: ArrayLike,
    eta: float = 3,
    alpha: float = 0.5,
    ideal: ArrayLike | None = None,
    k: int | None = None,
    mask: Mask = None,
    ideal_mask: Mask = None,
    earlier: ArrayLike | None = None,
    earlier_mask: Mask = None,
) -> Value:
    """Returns ranked coverage (eq. 4–5): Σ_r Σ_q I(q, r) (1 − α)^c(q, r) / log2(r + 1), over the same sum of the ideal.

    I(q, r) says whether the passage at rank r answers sub-question q, and c(q, r) how often q was answered before: at
    lower ranks, and by the passages of `earlier`, such as those of earlier steps. The ideal is the greedy order of
    `ideal` (default: the same passages), in which nothing counts as answered before, as the TREC diversity evaluator
    makes it; so a list that only repeats `earlier` has 1 − α at best. The greedy order is not always the best one, and
    a value may lie a little over 1.
    """
    keep = 1 - arrays.parameter("alpha", alpha, 0, 1)
    depth = None if k is None else arrays.count("k", k)
    answers = arrays.front(_answers("ratings", ratings, eta, mask), mask, axis=-2)
    pool, before = answers, None
    if ideal is not None:
        best = _answers("ideal", ideal, eta, ideal_mask, beside=answers)
        pool = arrays.front(best, ideal_mask, axis=-2)
    if earlier is not None:
        known = _answers("earlier", earlier, eta, earlier_mask, beside=answers)
        before = np.count_nonzero(known, axis=-2)[..., None, :]
    reached = gain(answers[..., :depth, :], keep, before)
    return arrays.ratio(reached, greedy_gain(pool, keep, depth))


def density(
    coverage: ArrayLike,
    tokens: ArrayLike,
    oracle_coverage: ArrayLike,
    oracle_tokens: ArrayLike,
    w: float = 0.5,
) -> Value:
    """Returns ((coverage / tokens) / (oracle_coverage / oracle_tokens))^w (eq. 6)."""
    covered = arrays.read("coverage", coverage, low=0, high=1, axes=0)
    length = arrays.read("tokens", tokens, low=0, axes=0)
    best = arrays.read("oracle_coverage", oracle_coverage, low=0, high=1, axes=0)
    shortest = arrays.read("oracle_tokens", oracle_tokens, low=0, axes=0)
    arrays.fit(
        coverage=covered.shape, tokens=length.shape, oracle_coverage=best.shape, oracle_tokens=shortest.shape
    )
    power = arrays.parameter("w", w, 0)
    with np.errstate(over="ignore"):
        here = np.asarray(arrays.ratio(covered, length))
        there = np.asarray(arrays.ratio(best, shortest))
        value = np.asarray(arrays.ratio(here, there))
        # nan ** 0 would be 1.
        return arrays.plain(np.where(np.isnan(value), np.nan, value**power))


declare(
    Metric(
        "answerability", "Answerability", "How well the passage answers one sub-question, from 0 (not at all) to 5.",
        range=(0, 5), needs="a judge, sub-questions", source=f"{SOURCE}, eq. 2", levels=("passage",),
    ),
    Metric(
        "coverage", "Coverage", "The share of the sub-questions that the passages up to this step answer.",
        unit="share", needs="answerability ratings", source=f"{SOURCE}, eq. 3", levels=("step",), function=coverage,
    ),
    Metric(
        "coverage_total", "Coverage of the run",
        "The share of the sub-questions that all passages of the run together answer.", unit="share",
        needs="answerability ratings", source=f"{SOURCE}, eq. 3", levels=("run",), function=coverage,
    ),
    Metric(
        "answer_coverage", "Coverage of the answer",
        "The share of the sub-questions that the final answer itself answers.", unit="share",
        needs="answerability ratings of the answer", source=f"{SOURCE}, eq. 3", levels=("run",), function=coverage,
    ),
    Metric(
        "contested", "Contested coverage",
        "The share of the sub-questions to which what was read gives answers that contradict each other.",
        direction="lower", unit="share",
        needs="answerability ratings, and the answers that the passages give compared with each other",
        source="ragguard, by the coverage of Ju et al. 2025", levels=("step", "run"), function=contested,
    ),
    Metric(
        "delta_coverage", "Added coverage", "What the step adds to the coverage of the steps before it.", unit="share",
        needs="answerability ratings", source=SOURCE, levels=("step",), function=marginal_coverage,
    ),
    Metric(
        "delta_coverage_selection", "Coverage of the selection",
        "Coverage after the step minus coverage with all candidates: the cost of the selection.", range=(-1, 1),
        unit="share", needs="answerability ratings of a step of which the model got other passages than its candidates",
        source="ragguard, by the coverage of Ju et al. 2025", levels=("step",), function=coverage,
    ),
    Metric(
        "redundancy", "Redundancy",
        "Of the sub-questions the passage answers, the share that earlier passages answer too.", direction="lower",
        unit="share", needs="answerability ratings", source=SOURCE, levels=("passage",), function=redundancy,
    ),
    Metric(
        "alpha_ndcg", "Ranked coverage (α-nDCG)",
        "How early the step answers new sub-questions; answered again counts half. May exceed 1.",
        needs="answerability ratings in ranked order", source=f"{SOURCE}, eq. 4–5", levels=("step",),
        function=alpha_ndcg,
    ),
    Metric(
        "alpha_ndcg_total", "Ranked coverage of the run (α-nDCG)",
        "How early the run's passages answer new sub-questions; answered again counts half. May exceed 1.",
        needs="answerability ratings in ranked order", source=f"{SOURCE}, eq. 4–5", levels=("run",),
        function=alpha_ndcg,
    ),
    Metric(
        "density", "Density", "Coverage per token of the context, divided by that of an ideal context.",
        range=(0, float("inf")), needs="coverage and tokens, of the context and of an oracle",
        source=f"{SOURCE}, eq. 6", levels=("run",), function=density,
    ),
    Metric(
        "answer_density", "Density of the answer",
        "Coverage per token of the answer, divided by that of an ideal context: only the required passages.",
        range=(0, float("inf")), needs="coverage and tokens, of the answer and of an oracle context",
        source=f"{SOURCE}, eq. 6", levels=("run",), function=density,
    ),
)  # fmt: skip


def required_subset(ratings: ArrayLike, eta: float = 3) -> Subset:
    """Returns the passages that together answer all that any passage answers, those that only repeat, and those that
    answer nothing. Passages are taken in the order of how many sub-questions they answer."""
    answers = _answers("ratings", ratings, eta, None)
    if answers.ndim != 2:
        raise InvalidInput("ratings.shape", answers.shape, "one table (passages, sub-questions)")
    answered = np.count_nonzero(answers, axis=-1)
    order = np.argsort(-answered, kind="stable")
    adds = (answers[order] & (times_before(answers[order]) == 0)).any(axis=-1)
    useless = answered[order] == 0
    return Subset(order[adds], order[~adds & ~useless], order[useless])


def _answers(
    argument: str, ratings: ArrayLike, eta: float, mask: Mask, beside: Booleans | None = None
) -> Booleans:
    """Returns which sub-questions each passage answers; refuses a table of other queries or sub-questions than the one
    `beside` it."""
    threshold = arrays.parameter("eta", eta, 0, 5)
    named = "mask" if beside is None else f"{argument}_mask"
    answers = arrays.read(argument, ratings, low=0, high=5, axes=2, mask=mask, mask_name=named) >= threshold
    of = None if beside is None else beside.shape
    if of is not None and (answers.shape[:-2], answers.shape[-1]) != (of[:-2], of[-1]):
        raise InvalidInput(f"{argument}.shape", answers.shape, f"{of} but for the number of passages")
    return answers if mask is None else answers & np.asarray(mask)[..., None]


def _asked(answers: Booleans, answerable: ArrayLike | None) -> Booleans:
    """Returns which sub-questions count, for each query."""
    shape = (*answers.shape[:-2], answers.shape[-1])
    if answerable is None:
        return np.ones(shape, dtype=bool)
    asked = arrays.boolean("answerable", answerable)
    if asked.shape not in (shape, shape[-1:]):
        raise InvalidInput("answerable.shape", asked.shape, f"{shape}, one boolean a sub-question")
    return np.broadcast_to(asked, shape)


def _per_passage(part: Integers, whole: Integers, mask: Mask) -> Floats:
    value = np.asarray(arrays.ratio(part, whole))
    return value if mask is None else np.where(np.asarray(mask), value, np.nan)

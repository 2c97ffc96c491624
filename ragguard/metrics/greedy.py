"""The gain of ranked coverage: of passages in their order, and of the greedy order that it is compared with.

`answers[..., p, q]` says that passage p answers sub-question q. Sums run as in the TREC diversity evaluator.
"""

from __future__ import annotations

from heapq import heapify, heappop, heapreplace

import numpy as np

from ragguard.metrics import arrays
from ragguard.metrics.arrays import Booleans, Floats, Integers, Value

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

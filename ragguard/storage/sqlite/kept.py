"""Tells which passages of a step the model got. A passage that a guard dropped, or that a reranker or a cut left out,
was retrieved and never read. Knows no table and no file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence

from ragguard.records import RetrievalStep


def kept_passages(
    candidates: Sequence[Hashable], given: Sequence[Hashable], dropped: Iterable[int]
) -> tuple[list[bool], list[int]]:
    """Returns for each candidate whether the model got it, and the indices of the given passages that are none of the
    candidates: a postprocessor or a tool has rewritten these for the model.

    Args:
        candidates: The keys of what was retrieved, in the retriever's order.
        given: The keys of what the model got. Each of them stands for one candidate with an equal key.
        dropped: The 1-based ranks of the candidates that a guard dropped.
    """
    kept = _matched(candidates, given)
    for rank in dropped:
        if 0 < rank <= len(kept):
            kept[rank - 1] = False
    known = _matched(given, candidates)
    return kept, [index for index, is_known in enumerate(known) if not is_known]


def unread_positions(step: RetrievalStep) -> list[int]:
    """Returns the 1-based positions of the candidates that the model did not get."""
    candidates, given = (
        [(passage.id, passage.text) for passage in passages]
        for passages in (step.candidates or step.passages, step.passages)
    )
    dropped = () if step.decision is None else [drop.position for drop in step.decision.dropped]
    kept, _ = kept_passages(candidates, given, dropped)
    return [position for position, was_kept in enumerate(kept, 1) if not was_kept]


def _matched(passages: Sequence[Hashable], others: Sequence[Hashable]) -> list[bool]:
    """Returns for each passage whether it is among the others; each of the others matches one."""
    if passages == others:
        return [True] * len(passages)
    left = Counter(others)
    found = []
    for key in passages:
        found.append(left[key] > 0)
        left[key] -= found[-1]
    return found

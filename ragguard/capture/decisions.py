"""Relates a guard's decision to the retrieval that it is about: dropped passages get their ranks among the candidates.

Between a retrieval and its guard other postprocessors may have reordered, cut or rewritten the passages.
A step may have several guards: its own, and those of the retrievers that it consists of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

from ragguard.records import Decision, Dropped, GuardStatus, Passage, RetrievalStep

_TELLING: tuple[GuardStatus, ...] = ("error", "timeout", "unfit", "pruned", "shadow", "kept_all")
"""The order of precedence: the status of several guards together is the first of these that one of them has."""


@dataclass(slots=True, eq=False)
class Verdict:
    """A guard's decision, and the passages that the guard judged, in order."""

    decision: Decision
    judged: list[Passage]
    part: bool = False
    """True where the retrieval has several sub-retrievals and the guard judged the passages of one of them only."""


def decision_about(verdict: Verdict, candidates: Sequence[Passage], *, alone: bool = True) -> Decision:
    """Returns the decision as one about the given candidates.

    Passages of other retrievals are left out. With `alone` there is no other retrieval, and a passage that
    came in after the retrieval has the position 0.
    """
    ranks = _ranks(verdict.judged, candidates)
    gone = {drop.position for drop in verdict.decision.dropped}

    def named(passage: Passage, rank: int) -> Passage:
        return candidates[rank - 1] if rank and not passage.id else passage

    def ranked(drops: Sequence[Dropped]) -> list[Dropped]:
        return [
            replace(drop, position=rank, passage=named(drop.passage, rank))
            for drop in drops
            if (rank := ranks[drop.position - 1]) or alone
        ]

    return replace(
        verdict.decision,
        kept=[
            named(passage, rank)
            for position, (passage, rank) in enumerate(zip(verdict.judged, ranks, strict=True), 1)
            if position not in gone and (alone or rank)
        ],
        dropped=ranked(verdict.decision.dropped),
        would_drop=ranked(verdict.decision.would_drop),
    )


def is_about_passages(decision: object) -> TypeGuard[Decision]:
    """Returns False for what no guard has decided: an application may hand over anything in place of a decision."""
    if type(decision) is not Decision:
        return False
    lists = (decision.kept, decision.dropped, decision.would_drop)
    if not all(type(one) is list for one in lists):
        return False
    drops = [*decision.dropped, *decision.would_drop]
    if not all(type(drop) is Dropped for drop in drops):
        return False
    passages = [*decision.kept, *(drop.passage for drop in drops)]
    return all(type(passage) is Passage and type(passage.text) is str for passage in passages)


def merged_decision(first: Decision | None, second: Decision) -> Decision:
    """Returns the decisions of two guards, one after the other, as one decision about the same candidates."""
    if first is None:
        return second
    reasons = dict.fromkeys(reason for reason in (first.reason, second.reason) if reason)
    return Decision(
        second.kept,
        sorted([*first.dropped, *second.dropped], key=lambda drop: drop.position),
        min((first.status, second.status), key=_TELLING.index),
        first.elapsed_ms + second.elapsed_ms,
        reason="; ".join(reasons),
        engine=second.engine or first.engine,
        started_ns=first.started_ns or second.started_ns,
        would_drop=sorted([*first.would_drop, *second.would_drop], key=lambda drop: drop.position),
    )


def steps_concerned(
    steps: Sequence[RetrievalStep], judged: Sequence[Passage], query: str = ""
) -> list[RetrievalStep]:
    """Returns the retrievals that a decision is about: as few of `steps`, the latest first, as have found the judged
    passages.

    Several hops may find the same passages: a retrieval that found most of them is taken first, then one with the
    same query, then the latest.
    """
    held = {step.id: _found_by(step, judged) for step in steps}
    missing, chosen = set(range(len(judged))), []
    while steps:
        best = max(steps, key=lambda step: (len(held[step.id] & missing), step.query == query))
        if not held[best.id] & missing:
            break
        chosen.append(best)
        missing -= held[best.id]
    return chosen


def _found_by(step: RetrievalStep, judged: Sequence[Passage]) -> set[int]:
    """Returns the indices of the judged passages that a retrieval found, by their ids or texts."""
    ids, texts = {one.id for one in step.candidates if one.id}, {one.text for one in step.candidates}
    return {index for index, passage in enumerate(judged) if passage.id in ids or passage.text in texts}


def joined_decision(verdicts: Sequence[Verdict], found: Sequence[Passage]) -> tuple[list[Passage], Decision]:
    """Returns the candidates of a retrieval that gave `found`, and what the guards inside it decided.

    Candidates are the passages that the retrieval's own first guard was given. Behind them come the passages that
    guards of its sub-retrievals had dropped before, unless another sub-retrieval found them as well.
    """
    whole = next((verdict for verdict in verdicts if not verdict.part), None)
    candidates = list(found if whole is None else whole.judged)
    known = {_key(passage) for passage in (*candidates, *found)}
    decision: Decision | None = None
    for verdict in verdicts:
        reported = verdict
        if verdict.part:
            lost = [drop for drop in verdict.decision.dropped if _key(drop.passage) not in known]
            known |= {_key(drop.passage) for drop in lost}
            candidates += [drop.passage for drop in lost]
            reported = replace(verdict, decision=replace(verdict.decision, dropped=lost))
        decision = merged_decision(decision, decision_about(reported, candidates))
    assert decision is not None
    return candidates, replace(decision, kept=list(found))


def _ranks(judged: Sequence[Passage], candidates: Sequence[Passage]) -> list[int]:
    """Returns the 1-based rank of each judged passage among the candidates; 0 for one that is not among them.

    No rank is returned twice.
    """
    ranks: dict[tuple[str | None, str | None], list[int]] = {}
    for rank, one in enumerate(candidates, 1):
        for key in (_key(one), (one.id, None), (None, one.text)):
            ranks.setdefault(key, []).append(rank)
    used: set[int] = set()
    found = []
    for one in judged:
        # A text that was rewritten on the way keeps its id; a passage that was cut out of a tool's text has none.
        alike = (one.id, None) if one.id else (None, one.text)
        same = (*ranks.get(_key(one), ()), *ranks.get(alike, ()))
        rank = next((rank for rank in same if rank not in used), 0)
        used.add(rank)
        found.append(rank)
    return found


def _key(passage: Passage) -> tuple[str, str]:
    return passage.id, passage.text

"""Relates a guard's decision to the retrieval that it is about: dropped passages get their ranks among the candidates.

Between a retrieval and its guard other postprocessors may have reordered, cut or rewritten the passages.
A step may have several guards: its own, and those of the retrievers that it consists of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from ragguard.records import Decision, Dropped, GuardStatus, Passage

if TYPE_CHECKING:
    from ragguard.engines.base import Engine

Found = TypeVar("Found")
_TELLING: tuple[GuardStatus, ...] = ("error", "timeout", "unfit", "pruned", "shadow", "kept_all")
"""The order of precedence: the status of several guards together is the first of these that one of them has."""


@dataclass(slots=True, eq=False)
class Verdict:
    """A guard's decision, and the passages that the guard judged, in order."""

    decision: Decision
    judged: list[Passage]
    engine: Engine
    """The engine that the guard judges with, by which a RagGuard's report finds what could not be judged."""
    part: bool = False
    """True where the retrieval has several sub-retrievals and the guard judged the passages of one of them only."""


def about(verdict: Verdict, candidates: Sequence[Passage], *, alone: bool = True) -> Decision:
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


def merged(first: Decision | None, second: Decision) -> Decision:
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


@dataclass(slots=True, eq=False)
class EndedRetrieval(Generic[Found]):
    """A retrieval that has ended, and from which guards behind it may still drop passages."""

    step_id: str
    found: Found | None
    """A snapshot of what was found; None where a tool returned one string, which a splitter takes apart."""
    unpack: Callable[[Found], list[Passage]]
    candidates: list[Passage] | None = None
    """The passages that guards choose from; computed from `found` when the first guard has decided."""
    decision: Decision | None = None
    """The joint decision of all guards about this retrieval so far."""
    query: str = ""
    call: str = ""
    """The id of the tool call in which the retrieval was made; empty where none is known."""

    def decided(self, verdict: Verdict, *, alone: bool) -> Decision:
        """Adds a guard's decision, about this retrieval only where `alone`; returns what all guards decided so far."""
        if self.candidates is None:
            self.candidates = verdict.judged if self.found is None else self.unpack(self.found)
        self.decision = merged(self.decision, about(verdict, self.candidates, alone=alone))
        return self.decision


def joined(verdicts: Sequence[Verdict], found: Sequence[Passage]) -> tuple[list[Passage], Decision]:
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
            status = verdict.decision.status
            if status == "pruned" and not lost:
                status = "kept_all"  # another sub-retrieval delivered all that this guard dropped
            reported = replace(verdict, decision=replace(verdict.decision, dropped=lost, status=status))
        decision = merged(decision, about(reported, candidates))
    assert decision is not None
    return candidates, replace(decision, kept=list(found))


def _ranks(judged: Sequence[Passage], candidates: Sequence[Passage]) -> list[int]:
    """Returns the 1-based rank of each judged passage among the candidates; 0 for one that is not among them.

    No rank is returned twice.
    """
    free: dict[tuple[str, str], list[int]] = {}
    by_id: dict[str, list[int]] = {}
    by_text: dict[str, list[int]] = {}
    for rank, candidate in enumerate(candidates, 1):
        free.setdefault(_key(candidate), []).append(rank)
        by_id.setdefault(candidate.id, []).append(rank)
        by_text.setdefault(candidate.text, []).append(rank)
    used: set[int] = set()
    found = []
    for passage in judged:
        same = free.get(_key(passage), [])
        # A text that was rewritten on the way keeps its id.
        named = by_id.get(passage.id, []) if passage.id else []
        # A passage that was cut out of a tool's text has no id.
        nameless = [] if passage.id else by_text.get(passage.text, [])
        rank = next((rank for rank in (*same, *named, *nameless) if rank not in used), 0)
        used.add(rank)
        found.append(rank)
    return found


def _key(passage: Passage) -> tuple[str, str]:
    return passage.id, passage.text

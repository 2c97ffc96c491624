"""The guard over a framework's own objects, documents or nodes: each with its passage, and those come back that stay.

What has no text (images) stays, and so does everything where there is no query; nothing raises but a
cancellation: the guard must not be the reason that an answer is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Generic, TypeVar

from ragguard.capture.decisions import Verdict
from ragguard.capture.faults import describe
from ragguard.errors import InvalidInput
from ragguard.guard.guard import DistractorGuard
from ragguard.records import Decision, Passage

Item = TypeVar("Item")


def checked(guard: object) -> DistractorGuard:
    """The guard, if it is one."""
    if not isinstance(guard, DistractorGuard):
        raise InvalidInput("guard", guard, 'a DistractorGuard, such as DistractorGuard("nano")')
    return guard


def pruned(
    guard: DistractorGuard, query: str, items: Sequence[Item], passages: Sequence[Passage]
) -> tuple[list[Item], Verdict]:
    """The items that stay, in their order, and what the guard says of all; `passages` are their contents."""
    judging = _Judging(items, passages)
    try:
        decision = guard.prune(query, judging.readable) if query.strip() else judging.unasked()
    except Exception as error:  # noqa: BLE001 - whatever it is, the items get through
        decision = judging.failed(error)
    return judging.end(decision)


async def apruned(
    guard: DistractorGuard, query: str, items: Sequence[Item], passages: Sequence[Passage]
) -> tuple[list[Item], Verdict]:
    """As `pruned`, on an event loop."""
    judging = _Judging(items, passages)
    try:
        decision = await guard.aprune(query, judging.readable) if query.strip() else judging.unasked()
    except Exception as error:  # noqa: BLE001 - as above
        decision = judging.failed(error)
    return judging.end(decision)


class _Judging(Generic[Item]):
    """Some items on their way through the guard."""

    def __init__(self, items: Sequence[Item], passages: Sequence[Passage]) -> None:
        self.items, self.passages = list(items), list(passages)
        self.ranks = [rank for rank, one in enumerate(self.passages, 1) if one.text.strip()]
        """Of what the guard can read."""
        self.readable = [self.passages[rank - 1] for rank in self.ranks]

    def unasked(self) -> Decision:
        return Decision(self.readable, reason="no query")

    def failed(self, error: Exception) -> Decision:
        return Decision(self.readable, status="error", reason=describe(error))

    def end(self, decision: Decision) -> tuple[list[Item], Verdict]:
        dropped = [replace(drop, position=self.ranks[drop.position - 1]) for drop in decision.dropped]
        gone = {drop.position for drop in dropped}
        kept = [passage for rank, passage in enumerate(self.passages, 1) if rank not in gone]
        verdict = Verdict(replace(decision, kept=kept, dropped=dropped), self.passages)
        return [item for rank, item in enumerate(self.items, 1) if rank not in gone], verdict

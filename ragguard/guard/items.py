"""Guards the objects of a framework (documents, nodes) by the passages in them."""

from __future__ import annotations

from ragguard.capture.decisions import Verdict
from ragguard.capture.recorder import paused
from ragguard.errors import InvalidInput
from ragguard.guard.guard import DistractorGuard
from ragguard.records import Passage


def checked(guard: object) -> DistractorGuard:
    """Returns the guard; raises `InvalidInput` where it is none."""
    if not isinstance(guard, DistractorGuard):
        raise InvalidInput("guard", guard, 'a DistractorGuard, such as DistractorGuard("nano")')
    return guard


def pruned(guard: DistractorGuard, query: str, passages: list[Passage]) -> Verdict:
    """Returns the guard's verdict about the contents of a framework's objects, which the framework's hooks report;
    `verdict.decision.of(objects)` gives those that stay."""
    with paused():
        return Verdict(guard.prune(query, passages), passages)


async def apruned(guard: DistractorGuard, query: str, passages: list[Passage]) -> Verdict:
    """Does what `pruned` does, on an event loop."""
    with paused():
        return Verdict(await guard.aprune(query, passages), passages)

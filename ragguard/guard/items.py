"""Guards a framework's own objects (documents, nodes) by the passages that they hold.

No function raises anything but a cancellation: a guard must never be the reason that an answer is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from ragguard.capture.decisions import Verdict
from ragguard.capture.enclosing import paused
from ragguard.errors import InvalidInput
from ragguard.guard.guard import DistractorGuard
from ragguard.records import Decision, Passage
from ragguard.runtime.faults import describe

Item = TypeVar("Item")


def checked(guard: object) -> DistractorGuard:
    """Returns the guard; raises `InvalidInput` where it is none."""
    if not isinstance(guard, DistractorGuard):
        raise InvalidInput("guard", guard, 'a DistractorGuard, such as DistractorGuard("nano")')
    return guard


def pruned(
    guard: DistractorGuard, query: str, items: Sequence[Item], passages: list[Passage]
) -> tuple[list[Item], Verdict]:
    """Returns the items that stay, in their order, and the guard's verdict; `passages` are the items' contents."""
    try:
        with paused():  # what a framework's guard decides is kept by the framework's hooks
            decision = guard.prune(query, passages)
    except Exception as error:  # noqa: BLE001 - whatever a guard of the user's own does, the items get through
        decision = Decision(passages, status="error", reason=describe(error))
    return decision.of(items), Verdict(decision, passages)


async def apruned(
    guard: DistractorGuard, query: str, items: Sequence[Item], passages: list[Passage]
) -> tuple[list[Item], Verdict]:
    """Does what `pruned` does, on an event loop."""
    try:
        with paused():
            decision = await guard.aprune(query, passages)
    except Exception as error:  # noqa: BLE001 - as above
        decision = Decision(passages, status="error", reason=describe(error))
    return decision.of(items), Verdict(decision, passages)

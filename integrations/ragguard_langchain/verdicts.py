"""Hands a guard's decision to the handlers that capture the call around the guard.

The handlers are found where LangChain finds them: on the callbacks of that call, whether they came with it or are
attached to the whole process. Nothing is dispatched as an event, so that other handlers and event streams of the
application see nothing of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable
from uuid import UUID

from langchain_core.callbacks import CallbackManager, Callbacks
from langchain_core.runnables.config import ensure_config

from ragguard.capture.decisions import Verdict, about, merged
from ragguard.records import Decision, Passage
from ragguard_langchain.messages import Taken, unpacked


@dataclass(frozen=True, slots=True, eq=False)
class Told:
    """A guard's verdict, with the query and the tool call whose result was judged."""

    verdict: Verdict
    query: str
    tool: str = ""
    """The tool whose result was judged, where it was one."""
    call: str = ""
    """The id of that tool's call."""
    started_ns: int = 0
    """When that call began."""
    heard: list[object] = field(default_factory=list, repr=False)
    """Who took note of it: a handler that is attached twice hears everything twice."""

    def heard_by(self, listener: object) -> bool:
        """Whether that one has heard it before; now it has."""
        before = any(one is listener for one in self.heard)
        self.heard.append(listener)
        return before


@runtime_checkable
class VerdictListener(Protocol):
    """A callback handler that records what guards decide."""

    def guard_decided(self, told: Told, run_id: UUID | None) -> None:
        """Records a decision that was made inside the call with that id; None: outside of any call."""
        ...


def tell(told: Told, callbacks: Callbacks | None) -> None:
    """Hands the verdict to each handler that captures the call around: the call that `callbacks` belong to, or the
    current one where they are None."""
    manager = CallbackManager.configure(_around(callbacks))
    for handler in manager.handlers:
        if isinstance(handler, VerdictListener):
            handler.guard_decided(told, manager.parent_run_id)


def _around(callbacks: Callbacks | None) -> Callbacks:
    return ensure_config().get("callbacks") if callbacks is None else callbacks


@dataclass(slots=True, eq=False)
class Found:
    """A retrieval that has ended, while guards behind it may still take something out."""

    step_id: str
    query: str
    call: str
    taken: Taken | None
    """None for a tool's one string, which is taken apart elsewhere."""
    candidates: list[Passage] | None = None
    decision: Decision | None = None

    def held(self, judged: Sequence[Passage]) -> set[int]:
        """Which of the judged passages it had found, by their places."""
        found = (self.taken or []) if self.candidates is None else self.candidates
        parts = [(one.id, one.text) if isinstance(one, Passage) else (one[1], one[0]) for one in found]
        ids, texts = {id for id, _ in parts if id}, {text for _, text in parts}
        return {place for place, one in enumerate(judged) if one.id in ids or one.text in texts}

    def decided(self, told: Told, *, alone: bool) -> Decision:
        """Takes note of a guard's decision; gives what all guards decided about it so far."""
        if self.candidates is None:
            self.candidates = told.verdict.judged if self.taken is None else unpacked(self.taken)
        self.decision = merged(self.decision, about(told.verdict, self.candidates, alone=alone))
        return self.decision


def concerned(found: Sequence[Found], told: Told) -> list[Found]:
    """The retrievals that a decision is about, of those that have ended: as few as hold what was judged.

    Hops may find the same passages again, so that most of them in one place, the query and the latest
    retrieval count for more than a passage alone. In a tool call it can only be about what happened in that.
    """
    latest = [one for one in reversed([*found]) if not told.call or one.call == told.call]
    held = {one: one.held(told.verdict.judged) for one in latest}
    missing, mine = set(range(len(told.verdict.judged))), []
    while held:
        best = max(held, key=lambda one: (len(held[one] & missing), one.query == told.query))
        if not held[best] & missing:
            break
        mine.append(best)
        missing -= held.pop(best)
    # A tool's string is not known by its passages, and they may have been rewritten on their way through a tool.
    return mine or (latest[:1] if told.call else [])

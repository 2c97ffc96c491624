"""Reports a guard's decision to the handlers that capture the call around the guard.

The handlers are found where LangChain finds them: on the callbacks of that call, whether they came with it or are
attached to the whole process. Nothing is dispatched as an event, so that other handlers and event streams of the
application see nothing of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable
from uuid import UUID

from langchain_core.callbacks import CallbackManager, Callbacks
from langchain_core.runnables.config import ensure_config

from ragguard.capture.decisions import Verdict, about, merged
from ragguard.records import Decision, Passage
from ragguard_langchain.messages import Taken, ids_and_texts, unpacked


@dataclass(frozen=True, slots=True, eq=False)
class VerdictReport:
    """A guard's verdict, with the query and the tool call whose result was judged."""

    verdict: Verdict
    query: str
    tool: str = ""
    """The name of the tool whose result was judged; empty where no tool's result was."""
    call: str = ""
    """The id of the tool call whose result was judged."""
    started_ns: int = 0
    """The time at which the tool call began, in nanoseconds since 1970."""
    metadata: Mapping[str, Any] | None = None
    """The node of the graph and the agent in whose call the tool's result was judged."""
    recorded_by: list[object] = field(default_factory=list, repr=False)
    """The call trees that have recorded the verdict, since a handler that is attached twice is called twice."""

    def was_recorded_by(self, tree: object) -> bool:
        """Returns True where the tree has recorded this verdict before, and notes that it has from now on."""
        before = any(one is tree for one in self.recorded_by)
        self.recorded_by.append(tree)
        return before


@runtime_checkable
class VerdictListener(Protocol):
    """A callback handler that records what guards decide."""

    def guard_decided(self, report: VerdictReport, run_id: UUID | None) -> None:
        """Records a decision that was made inside the call with this id, or outside of any call where it is None."""
        ...


def report(verdict: VerdictReport, callbacks: Callbacks | None) -> None:
    """Reports the verdict to each handler that captures the surrounding call: the call that `callbacks` belong to,
    or the current call where they are None."""
    manager = CallbackManager.configure(_around(callbacks))
    for handler in manager.handlers:
        if isinstance(handler, VerdictListener):
            handler.guard_decided(verdict, manager.parent_run_id)


def _around(callbacks: Callbacks | None) -> Callbacks:
    return ensure_config().get("callbacks") if callbacks is None else callbacks


@dataclass(slots=True, eq=False)
class EndedRetrieval:
    """A retrieval that has ended, and from which guards behind it may still drop passages."""

    step_id: str
    query: str
    call: str
    """The id of the tool call in which the retrieval was made; empty where there is none."""
    taken: Taken | None
    """A snapshot of the documents; None where a tool returned one string, which a splitter takes apart."""
    candidates: list[Passage] | None = None
    decision: Decision | None = None
    """The joint decision of all guards about this retrieval so far."""

    def holds(self, judged: Sequence[Passage]) -> set[int]:
        """Returns the indices of the judged passages that this retrieval returned, found by id or text."""
        parts = ids_and_texts((self.taken or []) if self.candidates is None else self.candidates)
        ids, texts = {id for id, _ in parts if id}, {text for _, text in parts}
        return {index for index, one in enumerate(judged) if one.id in ids or one.text in texts}

    def decided(self, report: VerdictReport, *, alone: bool) -> Decision:
        """Adds a guard's decision, about this retrieval only where `alone`; returns what all guards decided so far."""
        if self.candidates is None:
            self.candidates = report.verdict.judged if self.taken is None else unpacked(self.taken)
        self.decision = merged(self.decision, about(report.verdict, self.candidates, alone=alone))
        return self.decision


def concerned(ended: Sequence[EndedRetrieval], report: VerdictReport) -> list[EndedRetrieval]:
    """Returns the retrievals that a decision is about: as few ended retrievals as have returned the judged passages.

    Several hops may find the same passages: a retrieval that gave most of them is taken first, then one with the same
    query, then the latest. A decision about a tool call's result can only be about retrievals of that call.
    """
    latest = [one for one in reversed([*ended]) if not report.call or one.call == report.call]
    held = {one: one.holds(report.verdict.judged) for one in latest}
    missing, found = set(range(len(report.verdict.judged))), []
    while held:
        best = max(held, key=lambda one: (len(held[one] & missing), one.query == report.query))
        if not held[best] & missing:
            break
        found.append(best)
        missing -= held.pop(best)
    # A tool's string has no known passages yet, and a tool may have rewritten passages.
    return found or (latest[:1] if report.call else [])

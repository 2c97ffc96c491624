"""Hands a guard's decision to the handlers that capture the call around the guard.

The handlers are found where LangChain finds them: on the callbacks of that call, whether they came with it or are
attached to the whole process. Nothing is dispatched as an event, so that other handlers and event streams of the
application see nothing of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, runtime_checkable
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
    """The tool whose result was judged, where it was one."""
    call: str = ""
    """The id of that tool's call."""
    started_ns: int = 0
    """The time at which that call began."""
    metadata: Mapping[str, Any] | None = None
    """The node of the graph and the agent in whose call the tool's result was judged."""
    recorded_by: list[object] = field(default_factory=list, repr=False)
    """The recorders' trees that have recorded it: a handler that is attached twice is called twice."""

    def was_recorded_by(self, tree: object) -> bool:
        """True where the tree has recorded this verdict before; the tree counts as having recorded it from now on."""
        before = any(one is tree for one in self.recorded_by)
        self.recorded_by.append(tree)
        return before


@runtime_checkable
class VerdictListener(Protocol):
    """A callback handler that records what guards decide."""

    def guard_decided(self, report: VerdictReport, run_id: UUID | None) -> None:
        """Records a decision that was made inside the call with that id; None: outside of any call."""
        ...


def report(verdict: VerdictReport, callbacks: Callbacks | None) -> None:
    """Hands the verdict to each handler that captures the call around: the call that `callbacks` belong to, or the
    current one where they are None."""
    manager = CallbackManager.configure(_around(callbacks))
    for handler in manager.handlers:
        if isinstance(handler, VerdictListener):
            handler.guard_decided(verdict, manager.parent_run_id)


def _around(callbacks: Callbacks | None) -> Callbacks:
    return ensure_config().get("callbacks") if callbacks is None else callbacks


Source: TypeAlias = tuple[str, str]
"""The id and the text of a document."""


@dataclass(slots=True, eq=False)
class EndedRetrieval:
    """A retrieval that has ended, and from which guards behind it may still drop passages."""

    step_id: str
    query: str
    call: str
    """The id of the tool call that it was made in, where there is one."""
    taken: Taken | None
    """A snapshot of its documents; None where a tool gave one string, which the recorder's splitter takes apart."""
    candidates: list[Passage] | None = None
    decision: Decision | None = None
    """The decision of all guards about it so far."""
    shown: list[tuple[str, list[Source]]] = field(default_factory=list)
    """The texts for a model that were made of its documents, each with all documents that it was made of."""

    def holds(self, judged: Sequence[Passage]) -> set[int]:
        """The indices of the judged passages that this retrieval gave, told by id or text."""
        parts = ids_and_texts((self.taken or []) if self.candidates is None else self.candidates)
        ids, texts = {id for id, _ in parts if id}, {text for _, text in parts}
        return {index for index, one in enumerate(judged) if one.id in ids or one.text in texts}

    def decided(self, report: VerdictReport, *, alone: bool) -> Decision:
        """Adds a guard's decision, and returns what all guards decided so far; `alone`: it is about no other one."""
        if self.candidates is None:
            self.candidates = report.verdict.judged if self.taken is None else unpacked(self.taken)
        self.decision = merged(self.decision, about(report.verdict, self.candidates, alone=alone))
        return self.decision


def concerned(ended: Sequence[EndedRetrieval], report: VerdictReport) -> list[EndedRetrieval]:
    """The retrievals that a decision is about: as few of the ended ones as gave what was judged.

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
    # A tool's string is not known by its passages, and they may have been rewritten on their way through a tool.
    return found or (latest[:1] if report.call else [])

"""Reports a guard's decision to the handlers that capture the call around the guard.

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

from ragguard.capture.decisions import EndedRetrieval, Verdict
from ragguard.records import Passage
from ragguard_langchain.messages import Taken, ids_and_texts

LangChainRetrieval: TypeAlias = EndedRetrieval[Taken]


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


def concerned(ended: Sequence[LangChainRetrieval], report: VerdictReport) -> list[LangChainRetrieval]:
    """Returns the retrievals that a decision is about: as few ended retrievals as have returned the judged passages.

    Several hops may find the same passages: a retrieval that gave most of them is taken first, then one with the same
    query, then the latest. A decision about a tool call's result can only be about retrievals of that call.
    """
    latest = [one for one in reversed([*ended]) if not report.call or one.call == report.call]
    held = {one: _returned_by(one, report.verdict.judged) for one in latest}
    missing, found = set(range(len(report.verdict.judged))), []
    while held:
        best = max(held, key=lambda one: (len(held[one] & missing), one.query == report.query))
        if not held[best] & missing:
            break
        found.append(best)
        missing -= held.pop(best)
    # A tool's string has no known passages yet, and a tool may have rewritten passages.
    return found or (latest[:1] if report.call else [])


def _returned_by(one: LangChainRetrieval, judged: Sequence[Passage]) -> set[int]:
    """Returns the indices of the judged passages that a retrieval returned, found by id or text."""
    returned = ids_and_texts((one.found or []) if one.candidates is None else one.candidates)
    ids, texts = {id for id, _ in returned if id}, {text for _, text in returned}
    return {index for index, passage in enumerate(judged) if passage.id in ids or passage.text in texts}

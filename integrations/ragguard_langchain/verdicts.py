"""Reports a guard's decision to the handlers that capture the call around the guard.

The handlers are found where LangChain finds them: on the callbacks of that call, whether they came with it or are
attached to the whole process. Nothing is dispatched as an event, so that other handlers and event streams of the
application see nothing of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable
from uuid import UUID

from langchain_core.callbacks import CallbackManager, Callbacks
from langchain_core.runnables.config import ensure_config

from ragguard.capture.decisions import Verdict


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

"""What is known of a call where it stands: its run, its tool, what a guard may still say of both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ragguard.capture.decisions import Verdict
from ragguard.capture.identity import RunIdentity
from ragguard.records import TraceContext
from ragguard_langchain.messages import Taken
from ragguard_langchain.verdicts import EndedRetrieval


@dataclass(slots=True)
class RunNotes:
    """What a tree knows of its run."""

    question: str
    name: str
    metadata: Mapping[str, Any]
    """What the call's config said."""
    owner: bool = True
    """True when the end of the tree is the end of the run."""
    opened: bool = False
    trace: TraceContext | None = None
    identity: RunIdentity | None = None
    """Of a run that was given an id, or that continues one."""
    thread: str = ""
    """Under which the run is resumed, once it was interrupted."""
    resumed: bool = False
    """True when it goes on with a run that was interrupted."""
    interrupted: bool = False
    first_query: str = ""
    found: list[EndedRetrieval] = field(default_factory=list)
    """The latest retrievals, which a guard behind them may still thin out. Trees that join a run share it."""
    verdicts: dict[str, list[Verdict]] = field(default_factory=dict)
    """What guards inside a retrieval decided, while it is open."""


@dataclass(slots=True)
class ToolCall:
    """A tool call under way, and the steps made in it."""

    name: str
    query: str
    id: str
    started_ns: int
    outer: ToolCall | None = None
    found: list[tuple[str, Taken | None]] = field(default_factory=list)

    def add(self, step_id: str, taken: Taken | None) -> None:
        """Remembers a step that was made in this call."""
        call: ToolCall | None = self
        while call is not None:
            call.found.append((step_id, taken))
            call = call.outer


@dataclass(slots=True)
class Scope:
    """What the calls below one inherit from it."""

    run: RunNotes
    graph_node: str = ""
    """LangGraph's name for the node execution that the call is in."""
    tool: ToolCall | None = None

"""The state that calls of a tree share: their run, their tool call, the retrievals that a guard may still judge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ragguard.capture.decisions import Verdict
from ragguard.capture.events import RunIdentity
from ragguard.records import TraceContext
from ragguard_langchain.messages import has_history
from ragguard_langchain.options import NO_OPTIONS, CallOptions


@dataclass(slots=True)
class RunNotes:
    """The facts about its run that a call tree keeps."""

    question: str
    name: str
    metadata: Mapping[str, Any]
    """The metadata of the call's config."""
    owner: bool = True
    """True when the end of the tree is the end of the run."""
    opened: bool = False
    trace: TraceContext | None = None
    identity: RunIdentity | None = None
    """The identity of a run that was given an id, or that continues one."""
    thread: str = ""
    """The thread under which the run is resumed, once it was interrupted."""
    resumed: bool = False
    """True where the tree continues a run that was interrupted."""
    interrupted: bool = False
    first_query: str = ""
    options: CallOptions = NO_OPTIONS
    """The options of the handler that saw the tree's first call."""
    inputs: object = None
    """The input of the first call."""
    verdicts: dict[str, list[Verdict]] = field(default_factory=dict)
    """The verdicts of guards inside a retrieval, while it is open."""
    holds: bool = False
    """True where the tree has joined a run and keeps that run open until the tree ends."""
    standalone: str = ""
    """The query of the first retrieval, where a history-aware retriever wrote it and no other shares its turn."""
    written: str = ""
    """The latest text that a model wrote for the next part of a chain; set only until the first retrieval."""
    first_turn: int = -1

    def asked(self, query: str, turn: int, *, condensed: bool) -> None:
        """Notes the query of a retrieval; `condensed` where it is a question that a history-aware retriever wrote."""
        if self.first_turn < 0:
            self.first_turn, self.standalone = turn, query if condensed else ""
        elif turn == self.first_turn:
            self.standalone = ""

    def follows_up(self) -> bool:
        """True where the question came with earlier messages and the application gives no other question; then the
        query of a history-aware retriever is the question without references to these messages."""
        return self.options.question is None and not self.resumed and has_history(self.inputs)


@dataclass(slots=True)
class ToolCall:
    """A tool call under way, and the steps made in it."""

    name: str
    query: str
    id: str
    started_ns: int
    outer: ToolCall | None = None
    metadata: Mapping[str, Any] | None = None
    trace: TraceContext | None = None
    """The span that another instrumentation has made of the tool call."""
    inner: bool = False
    """True where a tool inside this one has retrieved."""
    steps: list[str] = field(default_factory=list)
    """The steps made in this call and in the tool calls inside of it."""

    def add(self, step_id: str) -> None:
        """Remembers a step that was made in this call."""
        self.steps.append(step_id)
        call = self.outer
        while call is not None:
            call.inner = True
            call.steps.append(step_id)
            call = call.outer


@dataclass(slots=True)
class Scope:
    """The state of a call that the calls inside it inherit."""

    run: RunNotes
    graph_node: str = ""
    """LangGraph's name for the node execution that the call is in."""
    tool: ToolCall | None = None

"""The state that calls of a tree share: their run, their tool call, the retrievals that a guard may still judge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ragguard.capture.decisions import Verdict
from ragguard.capture.declarations import CaptureOptions
from ragguard.capture.pipeline_run import PipelineRun
from ragguard.capture.recorder import Recorder
from ragguard.records import TraceContext
from ragguard_langchain.messages import has_history
from ragguard_langchain.options import NO_OPTIONS


class TreeRun(PipelineRun):
    """The run of a call tree, with what the tree has seen in it so far."""

    interrupted = False
    held = False
    """True where the tree has joined a run and keeps that run open until the tree ends."""
    first_query = ""
    standalone: str | None = None
    """The query of the first retrieval, where a history-aware retriever wrote it and no other one; '' otherwise."""

    def __init__(
        self,
        recorder: Recorder,
        id: str,
        question: str,
        name: str,
        metadata: Mapping[str, Any],
        options: CaptureOptions = NO_OPTIONS,
        inputs: object = None,
    ) -> None:
        super().__init__(recorder, id)
        self.question, self.name, self.given = question, name, metadata
        """`given` is the metadata of the call's config."""
        self.options, self.inputs = options, inputs
        """The options of the handler that saw the tree's first call, and the input of that call."""
        self.verdicts: dict[str, list[Verdict]] = {}
        """The verdicts of guards inside a retrieval, while it is open."""

    def asked(self, query: str, *, condensed: bool) -> None:
        """Notes the query of a retrieval; `condensed` where it is a question that a history-aware retriever wrote."""
        if self.standalone is None:
            self.standalone = query if condensed else ""
        elif condensed:
            self.standalone = ""

    def follows_up(self) -> bool:
        """True where the question came with earlier messages and the application gives no other question; then the
        query of a history-aware retriever is the question without references to these messages."""
        return self.options.question is None and not self.names.resumes and has_history(self.inputs)


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
    steps: list[str] = field(default_factory=list)
    """The steps made in this call and in the tool calls inside of it."""

    def add(self, step_id: str) -> None:
        """Remembers a step that was made in this call."""
        call: ToolCall | None = self
        while call is not None:
            call.steps.append(step_id)
            call = call.outer


@dataclass(slots=True)
class Scope:
    """The state of a call that the calls inside it inherit."""

    run: TreeRun
    graph_node: str = ""
    """LangGraph's name for the node execution that the call is in."""
    tool: ToolCall | None = None


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

"""The open calls of LangChain's call tree, and which of them are retrievals.

LangChain reports calls one by one, each with its parent's id. An `OpenCall` has what the calls below it need to know of
it: their run, the retrieval and the tool that they are in, and their turn.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from ragguard.capture.call_paths import CallPath, task_path
from ragguard.capture.documents import snapshot, unpacked
from ragguard.capture.events import TurnKey
from ragguard.capture.model_calls import TOOL_CALL
from ragguard.capture.pipeline_run import tool_ended
from ragguard.capture.retrievals import Unpack
from ragguard.capture.splitters import Splitter
from ragguard.capture.tool_outputs import ToolResult
from ragguard.records import TraceContext
from ragguard_langchain.spans import span_of
from ragguard_langchain.tree_runs import Metadata, TreeRun


class OpenCall:
    """An open call in the tree. Default values stay on the class, since a hook makes an object of it for every call."""

    root: OpenCall | None = None
    """None for the first call of the tree, which is its own root."""
    turn: TurnKey = ()
    """The parallel branches that the call is in."""
    messages = 0
    """The number of messages that models have written in this call; the tool calls of one message are parallel."""
    graph_node = ""
    """LangGraph's name for the node execution that the call is in."""

    step_id = ""
    """The id of the retrieval that this call is, or is a part of."""
    is_step = False
    """True where this call itself is that retrieval."""

    tool_call: OpenCall | None = None
    """The innermost call of a tool that this call is, or is a part of."""
    outer_tool: OpenCall | None = None
    """The call of a tool around this one, for a call of a tool."""
    tool = ""
    """The name of the tool that this call is, or is a part of."""
    call_id = ""
    """The id that the model gave to the call of a tool."""
    query = ""
    """The query of a call of a tool."""
    metadata: Metadata = None
    trace: TraceContext | None = None
    """The span that another instrumentation has made of the call of a tool."""

    started_ns = 0

    def __init__(self, id: UUID, run: TreeRun, around: OpenCall | None = None) -> None:
        """Takes over what holds for the calls in `around`, which is None for the first call of a tree."""
        self.id, self.run = id, run
        if around is None:
            self.members: set[UUID] = set()
            """The open calls below a root."""
            self.path: CallPath = (id.int,) if run.owned else (*task_path(), id.int)
            """The calls around this one, and itself."""
            return
        self.root, self.turn, self.graph_node = around.root or around, around.turn, around.graph_node
        self.path = (*around.path, id.int)
        self.step_id, self.tool_call, self.tool = around.step_id, around.tool_call, around.tool

    def branch(self, around: OpenCall, group: object, id: object) -> None:
        """Puts the call into a branch of a group of parallel calls inside another call."""
        self.turn = (*around.turn, ((around.id, group), id))

    def is_tool(self, name: str, query: str, call_id: str, metadata: Metadata) -> None:
        """Makes this call one of a tool, in which the calls below it are."""
        self.outer_tool, self.tool_call, self.tool = self.tool_call, self, name
        self.query, self.call_id, self.metadata = query, call_id, metadata
        self.steps: list[str] = []
        """The steps made in this call of a tool and in those inside of it."""
        self.started_ns = time.time_ns()

    def note_step(self, step_id: str) -> None:
        """Remembers a step in the calls of tools that it was made in."""
        call = self.tool_call
        while call is not None:
            call.steps.append(step_id)
            call = call.outer_tool

    def begin_step(
        self, query: str, name: str, metadata: Metadata, *, started_ns: int = 0, top_k: int | None = None
    ) -> str:
        """Opens the step of this call, a part where the call is inside another retrieval; returns the step's id. A
        tool's call is given no `name`."""
        run, tool = self.run, self.tool_call
        whole = self.root is None and run.owned and not run.begun
        run.retrieves(query)
        about: dict[str, Any] = {"retriever": name} if name else {}
        if metadata:
            if "langgraph_node" in metadata:
                about["langgraph_node"] = metadata["langgraph_node"]
            if "lc_agent_name" in metadata:
                about["agent"] = metadata["lc_agent_name"]
        if tool is not None and tool.call_id:
            about[TOOL_CALL] = tool.call_id
        trace = span_of(self.id, retrieval=bool(name))
        if trace is None and not name and tool is not None:
            trace = tool.trace
        within, self.step_id = self.step_id, run.id if whole else str(self.id)
        self.is_step = True
        run.recorder.step_started(
            self.step_id, run.id, query, within=within, tool=self.tool, name=name, turn=self.turn,
            metadata=about, started_ns=started_ns, trace=trace or (run.trace if whole else "here"), top_k=top_k,
            followed=True, path=self.path,
        )  # fmt: skip
        return self.step_id

    def end_step(
        self, found: Any, trace: TraceContext | None = None, *, unpack: Unpack | None = None
    ) -> None:
        """Closes the step of this call: with a snapshot of the documents that the call returned, or with what `unpack`
        takes apart."""
        self.run.recorder.step_ended(self.step_id, found, unpack=unpack or unpacked, trace=trace)

    def end_tool(self, tools: Mapping[str, Splitter], result: ToolResult) -> None:
        """Ends a call of a tool with its result; a part of another retrieval reports nothing itself."""
        if self.tool_call is not self or (self.step_id and not self.is_step):
            return

        def begin() -> str:
            return self.begin_step(self.query, "", self.metadata, started_ns=self.started_ns)

        def end(found: Any, unpack: Unpack | None) -> None:
            found = snapshot(found) if unpack is None else found
            self.end_step(found, span_of(self.id) or self.trace, unpack=unpack)

        tool_ended(
            self.run.recorder, self.run.id, self.tool, result, begin=begin, end=end, step_id=self.step_id,
            splitter=tools.get(self.tool) if self.is_step else None, inside=tuple(self.steps),
        )  # fmt: skip
        if self.is_step:
            self.note_step(self.step_id)

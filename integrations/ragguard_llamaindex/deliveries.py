"""Reports what guards decided, and finds retrievals in the outputs of tools: a tool without a retrieval inside is one
itself where it returns documents or is declared by `tools=`."""

from __future__ import annotations

from functools import partial
from typing import Any

from llama_index.core.base.llms.types import TextBlock
from llama_index.core.schema import BaseNode, MetadataMode
from llama_index.core.tools import ToolOutput

from ragguard.capture.decisions import guard_decided
from ragguard.capture.handle import status_of
from ragguard.capture.open_runs import Unpack
from ragguard.capture.snapshot import passages_of
from ragguard.capture.tool_calls import ToolEnd, ToolResult, tool_ended
from ragguard.records import Status
from ragguard_llamaindex.calls import Call, hand_verdicts_on, hexadecimal
from ragguard_llamaindex.foreign import span_of
from ragguard_llamaindex.kinds import Kind
from ragguard_llamaindex.messages import RESPONSES
from ragguard_llamaindex.nodes import Taken, are_nodes, taken, unpacked
from ragguard_llamaindex.runs import RunWriter

WAITING = "WaitingForEvent"
"""The exception with which a tool of LlamaIndex waits for a person; it is called again with the reply."""
WAITED = "the tool waited for an event: it is called again, and what it had retrieved before was not read"
"""The error of a retrieval in a tool before the tool waited for a person."""


class Deliveries:
    """Follows retrievals to the guards behind them, and finds those in tools."""

    def __init__(self, runs: RunWriter) -> None:
        self._runs, self._recorder = runs, runs.recorder

    def postprocessed(self, call: Call, around: Call) -> None:
        """Ends a postprocessor: reports what the guards inside it have decided about the retrievals before it."""
        if not call.verdicts:
            return
        self._runs.begin(call.run)
        if around.kind is Kind.POSTPROCESSOR or around.step_id:
            hand_verdicts_on(around, call.verdicts)
            return
        for verdict in call.verdicts:
            guard_decided(self._recorder, call.run.id, verdict, query=call.asked)

    def tool_began(self, call: Call) -> None:
        """Begins a tool; a declared tool is a retrieval, and retrievals inside are parts of it."""
        splitter = self._runs.options.tools.get(call.tool)
        if splitter is not None and not call.step_id:
            call.splitter = splitter
            self._open(call)

    def tool_ended(self, call: Call, result: object) -> None:
        """Ends a tool with its output."""
        output = result.raw_output if isinstance(result, ToolOutput) else result
        if any(isinstance(one, ToolOutput) and one.is_error for one in (result, output)):
            given = ToolResult(error=_text(result))
        else:
            declared = call.splitter is not None
            by_rule = self._runs.options.tools.by_rule
            given = ToolResult.of(
                output, _text(result) if declared or by_rule else "", declared=declared, by_rule=by_rule
            )
            if isinstance(output, RESPONSES) and not given.documents:
                given = (
                    ToolResult()
                )  # an engine that retrieved nothing, or whose retriever is not LlamaIndex's
        self._tool_ended(call, given)

    def tool_failed(self, call: Call, error: BaseException | None) -> None:
        """Ends a tool that raised an error; that is a failed retrieval where the tool retrieves."""
        if type(error).__name__ == WAITING and call.retrieved:
            self._tool_ended(call, ToolResult(error=WAITED))
        else:
            self._tool_ended(call, ToolResult(error=error or ""), status_of(error))

    def _tool_ended(self, call: Call, result: ToolResult, status: Status = "error") -> None:
        if call.splitter is None and (call.step_id or (call.retrieves and not call.retrieved)):
            return  # a part of another retrieval, which reports itself what the model got
        ends = ToolEnd(
            call.tool,
            call.run.id,
            begin=partial(self._open, call),
            end=partial(self._close, call),
            step_id=call.step_id if call.splitter is not None else "",
            splitter=call.splitter,
            inside=call.retrieved or (),
        )
        if not tool_ended(self._recorder, ends, result, status):
            _note_tool(call)

    def _open(self, call: Call) -> str:
        self._runs.begin(call.run)
        call.step_id = hexadecimal(call.id)
        retrieves(call)
        self._recorder.step_started(
            call.step_id, call.run.id, call.written_query, tool=call.tool, name=call.tool, turn=call.turn,
            started_ns=call.started_ns, trace=span_of(call.id, retrieval=True) or "here",
            metadata=about(call), followed=True,
        )  # fmt: skip

        return call.step_id

    def _close(self, call: Call, found: Any, unpack: Unpack | None) -> None:
        """Ends a tool's retrieval with the documents that it returned, or with what its splitter takes apart."""
        if unpack is None:
            found, unpack = self._taken(found), unpacked
        self._recorder.step_ended(call.step_id, found, unpack=unpack)

    def _taken(self, documents: list[Any]) -> Taken:
        if all(isinstance(one, BaseNode) for one in documents):
            # FunctionTool shows a model the bare text of nodes without scores.
            return taken(documents, self._runs.options.text_of or _bare)
        if are_nodes(documents):
            return taken(documents, self._runs.options.text_of)
        return Taken.of(passages_of(documents))


def _note_tool(call: Call | None) -> None:
    while call is not None:
        call.calls_tools, call = call.kind is Kind.WORKFLOW, call.parent


def retrieves(call: Call | None) -> None:
    """Notes that something is retrieved in a call, and in those around it."""
    while call is not None and not call.retrieves:
        call.retrieves = call.kind is not Kind.HANDLE
        call = call.parent


def about(call: Call, retriever: str = "") -> dict[str, Any]:
    """Returns the metadata of a step: its retriever, its agent, its step of a workflow."""
    entries = {"retriever": retriever, "agent": call.agent, "workflow_step": call.workflow_step}
    return {name: value for name, value in entries.items() if value}


def _text(result: object) -> str:
    """Returns the text of a tool's output as a model reads it."""
    if isinstance(result, ToolOutput):
        return "\n".join(block.text for block in result.blocks if isinstance(block, TextBlock))
    return result if isinstance(result, str) else str(result)


def _bare(node: BaseNode) -> str:
    return node.get_content(metadata_mode=MetadataMode.NONE)

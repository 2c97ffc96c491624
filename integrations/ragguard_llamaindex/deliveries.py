"""Reports what guards decided, and finds retrievals in the outputs of tools: a tool without a retrieval inside is one
itself where it returns documents or is declared by `tools=`."""

from __future__ import annotations

from typing import Any

from llama_index.core.base.llms.types import TextBlock
from llama_index.core.schema import BaseNode, MetadataMode
from llama_index.core.tools import RetrieverTool, ToolOutput

from ragguard.capture.calls import TOOL
from ragguard.capture.guarded import guard_decided
from ragguard.capture.handle import status_of
from ragguard.capture.shapes import documents_in
from ragguard.capture.snapshot import passages_of
from ragguard.capture.tool_results import ToolResult
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
        self._retrieving: set[str] = set()
        """The tools that have returned documents: an empty list from one of these is a retrieval that found nothing."""

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
        options = self._runs.options
        if not options.tools:
            return
        self._recorder.calls.called(call.tool, options.tools)
        splitter = options.tools.get(call.tool)
        if splitter is not None and not call.step_id:
            call.splitter = splitter
            self._open(call)

    def tool_ended(self, call: Call, tool: object, result: object) -> None:
        """Ends a tool with its output."""
        output = result.raw_output if isinstance(result, ToolOutput) else result
        if call.splitter is not None:
            if isinstance(result, ToolOutput) and result.is_error:
                self._recorder.step_failed(call.step_id, _text(result))
            else:
                self._close_declared(call, output, result)
        elif call.step_id:
            pass  # a part of another retrieval, which reports itself what the model got
        elif call.retrieved and any(isinstance(one, ToolOutput) and one.is_error for one in (result, output)):
            self._fail(call, _text(result))
        elif not call.retrieves:
            self._found(call, tool, output)

    def tool_failed(self, call: Call, tool: object, error: BaseException | None) -> None:
        """Ends a tool that raised an error; that is a failed retrieval where the tool retrieves."""
        if call.splitter is not None:
            self._recorder.step_failed(call.step_id, error or "", status_of(error))
        elif not call.step_id and call.retrieved:
            if type(error).__name__ == WAITING:
                self._fail(call, WAITED)
            elif status_of(error) == "error":
                self._fail(call, error or "")
        elif not call.step_id and not call.retrieves and self._retrieves(call, tool):
            self._open(call)
            self._recorder.step_failed(call.step_id, error or "", status_of(error))

    def _fail(self, call: Call, error: BaseException | str) -> None:
        """Marks the steps inside a tool that failed: the model got the error, and none of the passages."""
        for step_id in call.retrieved or ():
            self._recorder.step_amended(step_id, call.run.id, error=error)

    def _found(self, call: Call, tool: object, output: object) -> None:
        """Captures a tool without a retrieval inside as a retrieval of its own, where its output holds documents."""
        documents = None if output is None else documents_in(output)
        if not documents and (
            documents is None or isinstance(output, RESPONSES) or not self._empty(call, tool, output)
        ):
            self._recorder.calls.seen(call.run.id, TOOL, call.tool)
            _note_tool(call)
            return
        self._retrieving.add(call.tool)
        self._open(call)
        self._close(call, documents)

    def _empty(self, call: Call, tool: object, output: object) -> bool:
        """True where an empty output says that nothing was found."""
        return not isinstance(output, (list, tuple)) or self._retrieves(call, tool)

    def _retrieves(self, call: Call, tool: object) -> bool:
        """True for a tool that has returned documents before, and for a RetrieverTool."""
        return call.tool in self._retrieving or isinstance(tool, RetrieverTool)

    def _open(self, call: Call) -> None:
        self._runs.begin(call.run)
        call.step_id = hexadecimal(call.id)
        retrieves(call)
        self._recorder.step_started(
            call.step_id, call.run.id, call.written_query, tool=call.tool, name=call.tool, turn=call.turn,
            order=call.order, started_ns=call.started_ns, trace=span_of(call.id, retrieval=True) or "here",
            metadata=about(call), followed=True,
        )  # fmt: skip

    def _close(self, call: Call, documents: list[Any]) -> None:
        """Ends a tool's retrieval with the documents that it returned."""
        if all(isinstance(one, BaseNode) for one in documents):
            # FunctionTool shows a model the bare text of nodes without scores.
            found: Taken = taken(documents, self._runs.options.text_of or _bare)
        elif are_nodes(documents):
            found = taken(documents, self._runs.options.text_of)
        else:
            found = Taken.of(passages_of(documents))
        self._recorder.step_ended(call.step_id, found, unpack=unpacked)

    def _close_declared(self, call: Call, output: object, result: object) -> None:
        documents = documents_in(output)
        if documents is not None:
            self._close(call, documents)
            return
        assert call.splitter is not None
        found = ToolResult.of(output, _text(result))
        if found.error:
            self._recorder.step_failed(call.step_id, found.text)
        else:
            splitter = call.splitter
            self._recorder.step_ended(call.step_id, found, unpack=lambda given: given.split(splitter))


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
    said = {"retriever": retriever, "agent": call.agent, "workflow_step": call.workflow_step}
    return {name: value for name, value in said.items() if value}


def _text(result: object) -> str:
    """Returns the text of a tool's output as a model reads it."""
    if isinstance(result, ToolOutput):
        return "\n".join(block.text for block in result.blocks if isinstance(block, TextBlock))
    return result if isinstance(result, str) else str(result)


def _bare(node: BaseNode) -> str:
    return node.get_content(metadata_mode=MetadataMode.NONE)

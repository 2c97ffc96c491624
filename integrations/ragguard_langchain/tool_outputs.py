"""Finds retrievals in a tool's output: a tool that gives documents is a retrieval by itself, unless a retriever was
called inside. The output of a declared tool is taken apart by its splitter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragguard.capture.calls import TOOL
from ragguard.capture.shapes import documents_in
from ragguard.capture.splitters import Splitter
from ragguard.capture.tool_results import ToolResult
from ragguard.records import Status
from ragguard_langchain.call_tree import CallTree
from ragguard_langchain.messages import (
    Taken,
    block_texts,
    snapshot,
    tool_message,
    tool_text,
)
from ragguard_langchain.open_calls import OpenCall
from ragguard_langchain.scopes import Scope, ToolCall
from ragguard_langchain.spans import span_of


class ToolOutputs:
    """Reads the outputs of the tools of one handler."""

    def __init__(self, tree: CallTree, tools: Mapping[str, Splitter]) -> None:
        self.tree, self._recorder, self._tools = tree, tree.recorder, tools

    def ended(self, open_call: OpenCall[Scope], output: object) -> None:
        """Ends a tool call with its output."""
        call = open_call.notes.tool
        if call is None:
            return
        if open_call.is_step:
            self._end_declared(open_call, call, output)
        elif call.steps and not open_call.step_id and (error := _error_in(output)) is not None:
            self.failed(open_call, error)
        elif not open_call.step_id and not call.steps:
            self._find(open_call, call, output)

    def failed(
        self, open_call: OpenCall[Scope], error: BaseException | str, status: Status = "error"
    ) -> None:
        """Ends a tool call that failed: a failed retrieval where the tool has retrieved in this call, or has returned
        documents before.

        Passages that were retrieved inside stay as candidates; the model got the error, and none of them."""
        call = open_call.notes.tool
        if call is None or open_call.step_id:
            return
        if call.steps:
            for step_id in call.steps:
                self._recorder.step_amended(step_id, open_call.run_id, error=error)
            return
        if call.name not in self.tree.retrieving:
            self._recorder.calls.seen(open_call.run_id, TOOL, call.name)
            return
        self._begin(open_call, call)
        self._recorder.step_failed(open_call.step_id, error, status)
        call.add(open_call.step_id)

    def _end_declared(self, open_call: OpenCall[Scope], call: ToolCall, output: object) -> None:
        """Closes the step of a declared tool with its documents, or with the output that its splitter takes apart."""
        documents, trace = _documents(output), span_of(open_call.id) or call.trace
        if documents is not None:
            taken: Taken | None = snapshot(documents)
            assert taken is not None
            self.tree.steps.end(open_call, taken, trace)
        else:
            taken, result = None, _result(output)
            if result.error:
                self._recorder.step_failed(open_call.step_id, result.text)
            else:
                splitter = self._tools[call.name]
                self.tree.steps.end_text(open_call, result, lambda found: found.split(splitter), trace)
        call.add(open_call.step_id)

    def _find(self, open_call: OpenCall[Scope], call: ToolCall, output: object) -> None:
        """Captures a tool without a retrieval inside as a retrieval of its own, where its output holds documents."""
        text, failed = tool_text(output)
        if failed:
            self.failed(open_call, text)
            return
        documents = _documents(output)
        is_any_list = tool_message(output) is None and call.name not in self.tree.retrieving
        if documents is None or (not documents and is_any_list):
            self._recorder.calls.seen(open_call.run_id, TOOL, call.name)
            return
        taken = snapshot(documents)
        self._begin(open_call, call)
        self.tree.steps.end(open_call, taken)
        call.add(open_call.step_id)
        if len(self.tree.retrieving) < _MOST_NAMES:
            self.tree.retrieving.add(call.name)

    def _begin(self, open_call: OpenCall[Scope], call: ToolCall) -> None:
        self.tree.steps.begin(open_call, call.query, "", call.metadata, started_ns=call.started_ns)


_MOST_NAMES = 1024


def _error_in(output: object) -> str | None:
    """Returns the text of the error in a tool's output; None where the output is no error."""
    text, failed = tool_text(output)
    return text if failed else None


def _documents(output: object) -> list[Any] | None:
    """Returns the documents that a tool returned beside its text, or in place of a text; None where there are none."""
    message = tool_message(output)
    return documents_in(output if message is None else message.artifact)


def _result(output: object) -> ToolResult:
    """Returns the output of a declared tool in the form that splitters take."""
    message = tool_message(output)
    if message is None:
        return ToolResult.of(output, tool_text(output)[0])
    artifact = message.artifact
    structure = artifact.get("structured_content") if isinstance(artifact, Mapping) else None
    return ToolResult(block_texts(message.content), structure, message.status == "error")

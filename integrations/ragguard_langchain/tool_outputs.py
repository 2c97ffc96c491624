"""Reads the outputs of tools, for the retrievals in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragguard.capture.open_runs import Unpack
from ragguard.capture.splitters import Splitter
from ragguard.capture.tool_calls import ToolEnd, ToolResult, tool_ended
from ragguard_langchain.call_tree import CallTree
from ragguard_langchain.messages import block_texts, snapshot, tool_message, tool_text
from ragguard_langchain.open_calls import OpenCall
from ragguard_langchain.spans import span_of


def end_tool(tree: CallTree, tools: Mapping[str, Splitter], open_call: OpenCall, result: ToolResult) -> None:
    """Ends a tool call with its result; a part of another retrieval reports nothing itself."""
    call = open_call.notes.tool
    if call is None or (open_call.step_id and not open_call.is_step):
        return

    def begin() -> str:
        tree.steps.begin(open_call, call.query, "", call.metadata, started_ns=call.started_ns)
        return open_call.step_id

    def end(found: Any, unpack: Unpack | None) -> None:
        found = snapshot(found) if unpack is None else found
        tree.steps.end(open_call, found, span_of(open_call.id) or call.trace, unpack=unpack)

    splitter = tools.get(call.name) if open_call.is_step else None
    ends = ToolEnd(
        call.name,
        open_call.run_id,
        begin=begin,
        end=end,
        step_id=open_call.step_id,
        splitter=splitter,
        inside=tuple(call.steps),
    )
    tool_ended(tree.recorder, ends, result)
    if open_call.is_step:
        call.add(open_call.step_id)


def result_of(output: object, *, declared: bool, by_rule: bool = False) -> ToolResult:
    """Returns a tool's output as capture reads it: the documents beside its text or in place of it, an error, or what
    a splitter takes."""
    text, failed = tool_text(output)
    message = tool_message(output)
    if failed:
        return ToolResult(error=text)
    if message is None:
        return ToolResult.of(output, text, declared=declared, by_rule=by_rule)
    artifact = message.artifact
    given = ToolResult.of(artifact, "", declared=False, by_rule=by_rule)
    if given.documents is not None or not (declared or by_rule):
        return ToolResult(documents=given.documents, by_rule=given.by_rule)
    if not declared:
        return ToolResult.of(message.content, text, declared=False, by_rule=True)
    structure = artifact.get("structured_content") if isinstance(artifact, Mapping) else None
    return ToolResult(block_texts(message.content), structure)

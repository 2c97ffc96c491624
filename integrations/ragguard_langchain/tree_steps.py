"""Keeps the steps in LangChain's call trees: begins and ends retrievals, reads the outputs of tools for the retrievals
in them, and relates guards' decisions to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import uuid4

from ragguard.capture.decisions import TOOL_CALL, guard_decided, joined
from ragguard.capture.handle import innermost
from ragguard.capture.open_runs import Unpack
from ragguard.capture.pipeline_run import ToolEnd, ToolResult, tool_ended
from ragguard.capture.recorder import Recorder
from ragguard.capture.splitters import Splitter
from ragguard.records import Decision, Passage, TraceContext
from ragguard_langchain.messages import Taken, block_texts, snapshot, tool_message, tool_text, unpack_of
from ragguard_langchain.open_calls import OpenCall, Scope, ToolCall, VerdictReport
from ragguard_langchain.spans import span_of
from ragguard_langchain.tree_runs import TreeRun


def begin_step(
    open_call: OpenCall,
    query: str,
    name: str,
    metadata: Mapping[str, Any] | None,
    *,
    started_ns: int = 0,
    top_k: int | None = None,
) -> None:
    """Opens the step of a call; a part where the call is inside another retrieval. A tool call is given no
    `name`."""
    scope = open_call.notes
    run = scope.run
    whole = open_call.root is None and run.owned and not run.begun
    run.retrieves(query)
    about: dict[str, Any] = {"retriever": name} if name else {}
    if metadata:
        if "langgraph_node" in metadata:
            about["langgraph_node"] = metadata["langgraph_node"]
        if "lc_agent_name" in metadata:
            about["agent"] = metadata["lc_agent_name"]
    if scope.tool is not None and scope.tool.id:
        about[TOOL_CALL] = scope.tool.id
    step_id = open_call.run_id if whole else str(open_call.id)
    trace = span_of(open_call.id, retrieval=bool(name))
    if trace is None and not name and scope.tool is not None:
        trace = scope.tool.trace
    if not open_call.step_id:
        run.asked(query, condensed=open_call.condenses and scope.tool is None)
    run.recorder.step_started(
        step_id, open_call.run_id, query, within=open_call.step_id, tool=open_call.tool, name=name,
        turn=open_call.turn, metadata=about, started_ns=started_ns,
        trace=trace or (run.trace if whole else "here"), top_k=top_k, followed=True,
    )  # fmt: skip
    open_call.outer_step, open_call.step_id, open_call.is_step = open_call.step_id, step_id, True
    open_call.query = query


def end_step(
    open_call: OpenCall, found: Any, trace: TraceContext | None = None, *, unpack: Unpack | None = None
) -> None:
    """Closes the step of a call: with a snapshot of the documents that the call returned, or with what `unpack`
    takes apart."""
    run = open_call.notes.run
    candidates, decision = _judged(open_call, found if unpack is None else None)
    run.recorder.step_ended(
        open_call.step_id,
        found,
        unpack=unpack or unpack_of(run.options),
        candidates=candidates,
        decision=decision,
        trace=trace,
    )


def decided(open_call: OpenCall, report: VerdictReport) -> None:
    """Records a guard's decision that was made in a call: it is about the retrieval around the call, else about
    retrievals that have ended. Passages of no known retrieval become a step of their own."""
    if not report.verdict.judged:
        return
    run = open_call.notes.run
    if open_call.step_id:
        run.verdicts.setdefault(open_call.step_id, []).append(report.verdict)
        return
    if not guard_decided(
        run.recorder, open_call.run_id, report.verdict, query=report.query, tool_call=report.call
    ):
        _retrieved_by_other_means(open_call, report)


def decided_outside(recorder: Recorder, report: VerdictReport) -> None:
    """Records a guard's decision that was made outside of any call: in the user's own code, inside a run."""
    handle = innermost(recorder)
    if handle is not None and handle.sampled:
        run = TreeRun(recorder, uuid4(), "", "", {})
        run.id, run.owned, run.begun = handle.id, False, True
        decided(OpenCall(uuid4(), run.id, Scope(run)), report)


def _retrieved_by_other_means(around: OpenCall, report: VerdictReport) -> None:
    scope, decision = around.notes, report.verdict.decision
    call = scope.tool
    if report.tool:
        call = ToolCall(report.tool, report.query, report.call, report.started_ns)
    id = uuid4()
    turn = (*around.turn, around.branch_of_call(id)) if report.call else around.turn
    open_call = OpenCall(id, around.run_id, Scope(scope.run, scope.graph_node, call), turn)
    open_call.root, open_call.tool = around.root or around, report.tool or around.tool
    begin_step(
        open_call, report.query, "", report.metadata, started_ns=report.started_ns or decision.started_ns
    )
    scope.run.recorder.step_ended(
        open_call.step_id, decision.kept, candidates=report.verdict.judged, decision=decision
    )


def _judged(open_call: OpenCall, taken: Taken | None) -> tuple[list[Passage] | None, Decision | None]:
    """Returns what a retrieval found before the guards inside it dropped passages, and what these guards decided.

    `taken` is None for a tool that gave one string: that string is split later, so the candidates are what the
    guards let through."""
    run = open_call.notes.run
    verdicts = run.verdicts.pop(open_call.step_id, None) if run.verdicts else None
    if not verdicts:
        return None, None
    if open_call.outer_step:
        parts = [replace(verdict, part=True) for verdict in verdicts]
        run.verdicts.setdefault(open_call.outer_step, []).extend(parts)
    if taken is not None:
        return joined(verdicts, unpack_of(run.options)(taken))
    if len(verdicts) == 1:
        return verdicts[0].judged, verdicts[0].decision
    return joined(verdicts, [passage for verdict in verdicts for passage in verdict.decision.kept])


def end_tool(tools: Mapping[str, Splitter], open_call: OpenCall, result: ToolResult) -> None:
    """Ends a tool call with its result; a part of another retrieval reports nothing itself."""
    call = open_call.notes.tool
    if call is None or (open_call.step_id and not open_call.is_step):
        return

    def begin() -> str:
        begin_step(open_call, call.query, "", call.metadata, started_ns=call.started_ns)
        return open_call.step_id

    def end(found: Any, unpack: Unpack | None) -> None:
        found = snapshot(found) if unpack is None else found
        end_step(open_call, found, span_of(open_call.id) or call.trace, unpack=unpack)

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
    tool_ended(open_call.notes.run.recorder, ends, result)
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

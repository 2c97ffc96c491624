"""Begins and ends runs, finds retrievals in the outputs of tools, and reports what guards decided.

A tool without a retrieval inside is one itself where it returns documents or is declared by `tools=`. A span that
another instrumentation has made of a call gets the scores, so that ragguard makes no second one: OpenInference,
OpenLLMetry and LlamaIndex's own package each keep their spans by LlamaIndex's span id, from their start hook to their
end hook. Depending on the order of attachment a span exists at our start hook or only at our end hook, so both look for
it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

from llama_index.core.base.response.schema import AsyncStreamingResponse, StreamingResponse
from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.chat_engine.types import StreamingAgentChatResponse
from llama_index.core.schema import BaseNode, NodeWithScore
from llama_index.core.tools import ToolOutput
from llama_index.core.workflow import StopEvent
from llama_index_instrumentation import get_dispatcher

from ragguard.capture.declarations import CaptureOptions, located, warn_of_unknown
from ragguard.capture.model_calls import TOOL_CALL
from ragguard.capture.pipeline_run import (
    NAME,
    REFERENCES,
    RUN_KEYS,
    guard_decided,
    tool_ended,
)
from ragguard.capture.recorder import Recorder, context_of
from ragguard.capture.retrievals import Unpack
from ragguard.capture.snapshot import passages_of, text_of
from ragguard.capture.tool_outputs import ToolResult
from ragguard.records import Status, TraceContext
from ragguard.runtime.faults import Faults, never_raises
from ragguard_llamaindex.calls import (
    ASKING,
    Call,
    Invocation,
    Kind,
    chain,
    given_in,
    hexadecimal,
)
from ragguard_llamaindex.messages import (
    RESPONSES,
    OnEnd,
    StreamedAnswer,
    answer_of,
    watch,
    watch_chat,
    without_rewriting,
)
from ragguard_llamaindex.nodes import Taken, taken, taken_bare, unpacked

ROOT = get_dispatcher("root")
WAITING = "WaitingForEvent"
"""The exception with which a tool of LlamaIndex waits for a person; it is called again with the reply."""
WAITED = "the tool waited for an event: it is called again, and what it had retrieved before was not read"
"""The error of a retrieval in a tool before the tool waited for a person."""


class RunWriter:
    """Reports LlamaIndex's runs, and retrievals in tools, to the recorder. A run begins with its first retrieval and
    ends with its outermost call, or with the stream that this call returned."""

    def __init__(
        self,
        recorder: Recorder,
        options: CaptureOptions,
        inside: Callable[[Call], AbstractContextManager[object]],
    ) -> None:
        """Takes the recorder, what the user declared, and `inside(call)`, a context in which a call is the innermost
        one."""
        self.recorder, self.options, self._inside = recorder, options, inside

    @property
    def faults(self) -> Faults:
        """The recorder's counter of faults in hooks."""
        return self.recorder.faults

    def begin(self, run: Invocation) -> None:
        """Opens a run with its first retrieval; a bare retriever is the only step, unless something else happens."""
        if run.begun:
            return
        whole, run.whole = run.whole, None
        run.begin(trace=span_of(run.span_id))
        if whole is not None:
            self.recorder.step_started(
                run.id, run.id, whole.query, name=whole.name, metadata={"retriever": whole.name},
                started_ns=whole.started_ns, trace=span_of(run.span_id, retrieval=True) or run.trace,
                top_k=whole.top_k,
            )  # fmt: skip

    def answered(self, call: Call, result: object) -> None:
        """Ends the run of an outermost call, or waits for the stream that it returned."""
        response: object = result
        if call.kind is Kind.WORKFLOW:
            if result is None:  # LlamaIndex's result of a workflow that its user has cancelled
                self.end(call, None, "cancelled")
                return
            response = result.result if isinstance(result, StopEvent) else result
            response = result if response is None else response
        elif call.kind is Kind.TOOL:
            output = result.raw_output if isinstance(result, ToolOutput) else None
            response = output if isinstance(output, RESPONSES) else None
        if not call.run.begun:
            call.run.over = True
            self._without_steps(call)
        elif (
            isinstance(response, (StreamingResponse, AsyncStreamingResponse))
            and response.response_txt is None
        ):
            self.hold(call)
            watch(response, self._end_of(call), partial(self._inside, call))
        elif isinstance(response, StreamingAgentChatResponse):
            if call.streamed is None or not call.streamed.ended:
                self.hold(call)
            weakref.finalize(response, self._abandoned, call).atexit = False
        else:
            self.end(call, response)

    def _without_steps(self, call: Call) -> None:
        """Warns that nothing was captured in a run, unless an agent needed no tool or a chat retrieves nothing."""
        run_id = call.run.id
        if call.kind in (Kind.ENGINE, Kind.FANOUT) and call.name != SimpleChatEngine.__name__:
            self.recorder.here.calls.seen("engine", call.name)
            self.recorder.without_steps(run_id)
        elif call.kind is Kind.WORKFLOW and (not call.agent or call.calls_tools):
            self.recorder.without_steps(run_id)

    def hear(self, around: Call, response: object) -> None:
        """Observes a chat's answer that is about to be written in the background, perhaps before the chat returns."""
        if around.outermost and around.streamed is None and isinstance(response, StreamingAgentChatResponse):
            self.hold(around)
            around.streamed = watch_chat(response, self._end_of(around))

    def _abandoned(self, call: Call) -> None:
        """Ends the run of a chat whose response was dropped before its stream ended."""
        (call.streamed or StreamedAnswer(self._end_of(call))).end("cancelled")

    def _end_of(self, call: Call) -> OnEnd:
        return lambda response, status, error: self.end(call, response, status, error)

    def hold(self, call: Call) -> None:
        """Keeps a run that the user opened open until the call has ended, even where the user ends it before."""
        if not call.run.owned and not call.holds:
            call.holds = True
            call.turn = self.recorder.run_held(call.run.id, call.id)

    @never_raises
    def end(
        self, call: Call, response: object, status: Status = "ok", error: BaseException | None = None
    ) -> None:
        """Ends the run of an outermost call; a run that the user opened only learns of the answer."""
        if status == "error" and not call.run.begun:
            self.recorder.here.calls.seen("failed call", call.name)
        self.finish(
            call.run, response, status, error, call.standalone or (call.asked if call.kind in ASKING else "")
        )
        if call.holds:
            call.holds = False
            self.recorder.run_released(call.run.id, call.id)

    def finish(
        self, run: Invocation, response: object, status: Status, error: BaseException | None, asked: str = ""
    ) -> None:
        """Ends a run, once."""
        if run.over or not run.begun:
            run.over = run.owned
            return
        located_answer = located("answer", self.options.answer, response, self.faults)
        answer = answer_of(response if located_answer is None else located_answer)
        run.end(answer, status, error, question=asked)

    def postprocessed(self, call: Call, around: Call) -> None:
        """Ends a postprocessor: reports what the guards inside it have decided about the retrievals before it."""
        if not call.verdicts:
            return
        self.begin(call.run)
        if around.kind is Kind.POSTPROCESSOR:
            around.verdicts = [*around.verdicts, *call.verdicts]
            return
        if around.step_id:
            for verdict in call.verdicts:
                part = verdict.part or around.kind is not Kind.RETRIEVER
                self.recorder.step_judged(around.step_id, replace(verdict, part=part))
            return
        tool = next((one for one in chain(around) if one.kind is Kind.TOOL), None)
        among = () if tool is None else tool.retrieved or ()
        for verdict in call.verdicts:
            guard_decided(self.recorder, call.run.id, verdict, query=call.asked, among=among)

    def tool_began(self, call: Call) -> None:
        """Begins a tool; a declared tool is a retrieval, and retrievals inside are parts of it."""
        splitter = self.options.tools.get(call.tool)
        if splitter is not None and not call.step_id:
            call.splitter = splitter
            self.begin_step(call, call.tool)

    def tool_ended(
        self, call: Call, output: object, error: BaseException | None = None, status: Status = "ok"
    ) -> None:
        """Ends a tool with its output, or with its error: a failed retrieval where the tool retrieves."""
        declared = call.splitter is not None
        if not declared and (call.step_id or (call.retrieves and not call.retrieved)):
            return  # a part of another retrieval, which reports itself what the model got
        if type(error).__name__ == WAITING and call.retrieved:
            result, status = ToolResult(error=WAITED), "error"
        elif status != "ok":
            result = ToolResult(error=error or "")
        else:
            result = self._result(output, declared)
        is_retrieval = tool_ended(
            self.recorder, call.run.id, call.tool, result, begin=partial(self.begin_step, call, call.tool),
            end=partial(self._close, call), step_id=call.step_id if declared else "", splitter=call.splitter,
            inside=call.retrieved or (), status="error" if status == "ok" else status,
        )  # fmt: skip
        if not is_retrieval:
            for around in chain(call):
                around.calls_tools = around.kind is Kind.WORKFLOW

    def _result(self, given: object, declared: bool) -> ToolResult:
        text = "" if isinstance(given, ToolOutput) else str(given)
        result = ToolResult.of(given, declared=declared, by_rule=self.options.tools.by_rule, text=text)
        # An engine that retrieved nothing, or whose retriever is not LlamaIndex's.
        output = given.raw_output if isinstance(given, ToolOutput) else given
        return ToolResult() if isinstance(output, RESPONSES) and not result.documents else result

    def begin_step(self, call: Call, name: str, retriever: str = "") -> str:
        """Begins the retrieval that a call is, or a part of the one around it, and its run; returns the step's id."""
        if call.kind is Kind.RETRIEVER:
            call.run.waits = False
        within, call.step_id = call.step_id, hexadecimal(call.id)
        retrieves(call)
        self.begin(call.run)
        self.recorder.step_started(
            call.step_id, call.run.id, without_rewriting(call.asked), within=within, tool=call.tool, name=name,
            turn=call.turn, started_ns=call.started_ns,
            trace=None if within else span_of(call.id, retrieval=True) or "here",
            metadata=None if within else step_metadata(call, retriever), top_k=call.top_k, followed=True,
            path=call.path,
        )  # fmt: skip
        return call.step_id

    def _close(self, call: Call, found: Any, unpack: Unpack | None) -> None:
        """Ends a tool's retrieval with the documents that it returned, or with what its splitter takes apart."""
        if unpack is None:
            found, unpack = self._taken(found), unpacked
        self.recorder.step_ended(call.step_id, found, unpack=unpack)

    def _taken(self, documents: list[Any]) -> Taken:
        if all(isinstance(one, BaseNode) for one in documents):
            return taken_bare(documents)
        nodes = (NodeWithScore, BaseNode)
        return taken(documents) if isinstance(documents[0], nodes) else Taken.of(passages_of(documents))


def read_tags(run: Invocation, tags: Mapping[str, Any], recorder: Recorder) -> None:
    """Reads the tags of a run that begins into its invocation; plain values that are not meant for ragguard become the
    run's metadata."""
    run.name = str(tags.get(NAME) or run.name)
    run.identify(tags)
    run.refer(tags.get(REFERENCES), "instrument_tags")
    run.metadata = {
        key: value
        for key, value in tags.items()
        if isinstance(value, (str, int, float)) and not key.startswith(("ragguard_", "llamaindex."))
    }
    warn_of_unknown(tags, "tag", RUN_KEYS)


def read_question(call: Call, arguments: Mapping[str, Any], runs: RunWriter) -> None:
    """Reads the question from where the application says that it is; where it does not, the question stays."""
    locate = runs.options.question
    if locate is not None and (
        found := located("question", locate, given_in(call.kind, arguments), runs.faults)
    ):
        call.run.question = call.asked = text_of(found)[0]


def span_of(call: str, *, retrieval: bool = False) -> TraceContext | None:
    """Returns the ids of the span that another instrumentation has open for the call, or None.

    With `retrieval` the call is a retrieval, which other instrumentations write on a span at its end, or never.
    """
    for handler in ROOT.span_handlers:
        kept = handler.open_spans.get(call) if handler.open_spans else None
        span = None if kept is None else _span_in(handler, kept, call)
        context = None if span is None else context_of(span)
        if context is not None:
            context.foreign = retrieval
            return context
    return None


def _span_in(handler: Any, kept: Any, call: str) -> Any:
    """Returns the handler's span of the call, kept under the name that OpenInference, OpenLLMetry or LlamaIndex's own
    package uses (looked up in this order); None where there is no such span."""
    span = getattr(kept, "_otel_span", None) or getattr(kept, "otel_span", None)
    return span or getattr(handler, "all_spans", {}).get(call)


def retrieves(call: Call | None) -> None:
    """Notes that something is retrieved in a call, and in those around it."""
    for one in chain(call):
        one.retrieves = one.kind is not Kind.HANDLE


def step_metadata(call: Call, retriever: str = "") -> dict[str, Any]:
    """Returns the metadata of a step: its retriever, its agent, its step of a workflow, the id of its tool call."""
    entries = {
        "retriever": retriever, "agent": call.agent, "workflow_step": call.workflow_step, TOOL_CALL: call.call_id,
    }  # fmt: skip
    return {name: value for name, value in entries.items() if value}

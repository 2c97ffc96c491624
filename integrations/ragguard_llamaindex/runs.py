"""Begins and ends runs: reads the question and the answer, and waits for answers that are streamed."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

from llama_index.core.base.response.schema import AsyncStreamingResponse, StreamingResponse
from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.chat_engine.types import StreamingAgentChatResponse
from llama_index.core.tools import ToolOutput
from llama_index.core.workflow import StopEvent

from ragguard.capture.declarations import CaptureOptions, located, warn_of_unknown
from ragguard.capture.pipeline_run import NAME, REFERENCES, RUN_KEYS
from ragguard.capture.recorder import Recorder
from ragguard.capture.snapshot import text_of
from ragguard.records import Status
from ragguard.runtime.faults import Faults, never_raises
from ragguard_llamaindex.calls import Call, Invocation, given_in
from ragguard_llamaindex.foreign import span_of
from ragguard_llamaindex.kinds import ASKING, Kind
from ragguard_llamaindex.messages import RESPONSES, answer_of
from ragguard_llamaindex.streams import OnEnd, StreamedAnswer, watch, watch_chat


class RunWriter:
    """Reports LlamaIndex's runs to the recorder. A run begins with its first retrieval and ends with its outermost
    call, or with the stream that this call returned."""

    def __init__(self, recorder: Recorder, options: CaptureOptions) -> None:
        self.recorder, self.options = recorder, options

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
            watch(response, self._end_of(call))
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
            self.recorder.calls.seen(run_id, "engine", call.name)
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
        answer, kind = answer_of(response if located_answer is None else located_answer)
        run.end(answer, status, error, question=asked, metadata={"answer_content": kind} if kind else None)


def tags_of(tags: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the tags of a call that belong into its run's metadata: plain values that are not meant for ragguard."""
    return {
        key: value
        for key, value in tags.items()
        if isinstance(value, (str, int, float)) and not key.startswith(("ragguard_", "llamaindex."))
    }


def read_tags(run: Invocation, tags: Mapping[str, Any], recorder: Recorder) -> None:
    """Reads the tags of a run that begins into its invocation."""
    run.name = str(tags.get(NAME) or run.name)
    run.identify(tags)
    run.refer(tags.get(REFERENCES), "instrument_tags")
    run.metadata = tags_of(tags)
    warn_of_unknown(tags, "tag", RUN_KEYS)


def read_question(call: Call, arguments: Mapping[str, Any], runs: RunWriter) -> None:
    """Reads the question from where the application says that it is; where it does not, the question stays."""
    locate = runs.options.question
    if locate is not None and (
        found := located("question", locate, given_in(call.kind, arguments), runs.faults)
    ):
        call.run.question = call.asked = call.written_query = text_of(found)[0]

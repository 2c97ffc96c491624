"""Turns LlamaIndex's spans into runs and retrievals.

A run is the outermost engine, chat, agent, workflow, tool or bare retriever; inside `with rg.run(...)` it joins that
run. A retrieval with no other around it is a step, one inside another a sub-step. The call around a span is read from a
context variable, which is passed on like LlamaIndex's own: a span that capture does not follow costs almost nothing,
and no state stays of a span that has ended.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from inspect import BoundArguments
from typing import Any

from llama_index.core.response_synthesizers.no_text import NoText
from llama_index.core.workflow import InputRequiredEvent
from llama_index_instrumentation.dispatcher import active_instrument_tags

from ragguard.capture.call_paths import task_path
from ragguard.capture.decisions import Verdict
from ragguard.capture.declarations import CaptureOptions
from ragguard.capture.handle import innermost, status_of
from ragguard.capture.recorder import Recorder, is_paused, trace_context
from ragguard.capture.retrievals import WholeRun
from ragguard.runtime.faults import FAULTS, Faults, never_raises
from ragguard.runtime.per_process import PerProcess
from ragguard_llamaindex.calls import (
    ANSWERING,
    ENDING,
    ROOTS,
    Call,
    Invocation,
    Kind,
    ProcessCalls,
    asked_in,
    chain,
    describe_call,
    hexadecimal,
    inner_call,
    kind_of,
    nodes_in,
    note_sent,
    note_step,
)
from ragguard_llamaindex.messages import REPLIES, prompt_of
from ragguard_llamaindex.nodes import bare, node_ids, taken, top_k_of, unpacked
from ragguard_llamaindex.runs import (
    WAITING,
    RunWriter,
    read_question,
    read_tags,
    span_of,
)

OPEN_KEPT = 65_536
"""The most open calls that are kept, for calls whose ends are never reported."""


class Spans:
    """Follows the open spans that matter, and reports runs and retrievals to the recorder."""

    def __init__(self, recorder: Recorder, options: CaptureOptions) -> None:
        self.recorder = recorder
        self.runs = RunWriter(recorder, options, self._inside)
        self._open = PerProcess(ProcessCalls)
        self._kinds: dict[tuple[type, str], Kind | None] = {}

    @property
    def faults(self) -> Faults:
        """The recorder's count of what went wrong in hooks."""
        return self.recorder.faults

    def __len__(self) -> int:
        """Returns the number of open calls."""
        return len(self._open.get().by_id)

    def here(self) -> Call | None:
        """Returns the innermost open call around the caller; None outside of any."""
        call = self._open.get().current.get()
        return None if call is None or call.run.over else call

    @contextmanager
    def _inside(self, call: Call) -> Iterator[None]:
        """Makes a call the innermost one while its reader pulls at the stream that it returned."""
        current = self._open.get().current
        token = current.set(call)
        try:
            yield
        finally:
            with suppress(ValueError):
                current.reset(token)

    # The dispatcher calls these for every span, so they have to cost little

    def entered(
        self,
        id_: str,
        bound_args: BoundArguments,
        instance: object = None,
        parent_id: str | None = None,
        tags: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Takes in that a span begins; runs in the context of the span's caller."""
        try:
            try:
                kind = self._kinds[type(instance), id_[:-37]]
            except KeyError:
                kind = self._kinds[type(instance), id_[:-37]] = kind_of(id_[:-37], instance)
            if kind is not None and not is_paused():
                self._enter(kind, id_, bound_args.arguments, instance)
        except FAULTS as error:
            self.faults.note("span_enter", error)

    def exited(
        self, id_: str, bound_args: BoundArguments, instance: object = None, result: object = None, **_: Any
    ) -> None:
        """Takes in that a span has ended without an error."""
        try:
            opened = self._open.get()
            call = opened.by_id.pop(id_, None)
            if call is None:
                if id_ in opened.asked and isinstance(result, REPLIES):  # and no stream, which ends later
                    self.replied(id_, result)
                return
            try:  # noqa: SIM105 - a context manager costs a microsecond
                opened.current.reset(call.token)
            except ValueError:
                pass  # the span ended in another context than its own, which disappears with its task
            if call.kind is Kind.RETRIEVER:
                self._retrieved(call, result)
            else:
                self._exit(call, result, instance, bound_args)
        except FAULTS as error:
            self.faults.note("span_exit", error)

    @never_raises
    def dropped(
        self,
        /,
        id_: str,
        bound_args: BoundArguments,
        instance: object = None,
        err: BaseException | None = None,
        **_: Any,
    ) -> None:
        """Takes in that a span has failed or was cancelled."""
        opened = self._open.get()
        call = opened.by_id.pop(id_, None)
        if type(err).__name__ == WAITING:
            self._waits()
        if call is None:
            return
        with suppress(ValueError):
            opened.current.reset(call.token)
        if call.kind is Kind.RETRIEVER:
            self.runs.begin(call.run)
            self.recorder.step_failed(
                call.step_id, err or "", status_of(err), span_of(call.id, retrieval=True)
            )
        elif call.kind is Kind.TOOL:
            self.runs.tool_ended(call, None, err, status_of(err))
        if call.kind in ENDING and call.outermost:
            self.runs.end(call, None, status_of(err), err)

    @never_raises
    def close(self) -> None:
        """Ends all open calls and runs, since no further ends will be reported."""
        by_id = self._open.get().by_id
        calls = list(by_id.values())
        by_id.clear()
        for call in calls:
            if call.run.whole is not None:
                self.runs.begin(call.run)
            self.runs.finish(call.run, None, "interrupted", None)

    def _enter(self, kind: Kind, span_id: str, arguments: Mapping[str, Any], instance: object) -> None:
        around = self._open.get().current.get()
        if around is None or around.run.over:
            around = self._handle()
        if around is None:
            if kind in ROOTS:
                self._enter_root(kind, span_id, arguments, instance)
            return
        if around.kind is Kind.IGNORED or (kind is Kind.STEP and not _is_step(around)):
            return
        if kind is Kind.MODEL:
            self._asked(span_id, around, arguments)
            return
        if kind is Kind.CHAT_WRITER:
            self.runs.hear(around, instance)
            return
        if kind is Kind.RETRIEVER and id(instance) in around.choosers:
            kind = Kind.IGNORED
        call = inner_call(kind, span_id, around, arguments, instance)
        if kind is Kind.RETRIEVER:
            call.top_k = top_k_of(instance)
            self.runs.begin_step(call, type(instance).__name__, type(instance).__name__)
        elif kind is Kind.WORKFLOW and around.kind is Kind.HANDLE:
            self.runs.hold(call)  # it may end after the user has left `with rg.run(...)`
        elif kind is Kind.SYNTHESIS and (isinstance(instance, NoText) or not nodes_in(arguments)):
            # It answers without a model: nothing is read.
            call.run.asked(span_id, (), call.path)
        elif kind is Kind.TOOL:
            self.runs.tool_began(call)
        self._opened(call)

    def _asked(self, span_id: str, around: Call, arguments: Mapping[str, Any]) -> None:
        """Notes that a model is asked: of what was retrieved, those passages count as read that it is given."""
        asked = self._open.get().asked
        for caller in chain(around):
            if caller.kind is Kind.WORKFLOW or caller.kind is Kind.TOOL:
                caller.replies += 1
                break
        asked[span_id] = around.run
        if len(asked) > OPEN_KEPT:
            asked.pop(next(iter(asked)), None)
        around.run.asked(span_id, prompt_of(arguments), around.path or task_path())

    @never_raises
    def replied(self, span_id: str, response: object) -> None:
        """Notes the reply of a model, of a stream the whole one at its end."""
        if (run := self._open.get().asked.pop(span_id, None)) is not None:
            run.replied(span_id, response)

    def _enter_root(self, kind: Kind, span_id: str, arguments: Mapping[str, Any], instance: object) -> None:
        call = Call(span_id, kind)
        call.path = (span_id,)
        given = arguments.get("str_or_query_bundle")
        asked = call.asked = given if type(given) is str else asked_in(kind, arguments)
        run_id, name, started_ns = hexadecimal(span_id), type(instance).__name__, time.time_ns()
        trace = span_of(span_id, retrieval=kind is Kind.RETRIEVER) or trace_context()
        tags = active_instrument_tags.get()
        run = call.run = Invocation(self.recorder, run_id)
        run.question, run.name, run.started_ns = asked, name, started_ns
        run.span_id, run.trace = span_id, trace
        if kind is Kind.RETRIEVER and not tags:
            call.step_id = run_id
            run.whole = WholeRun(
                run_id, asked, name, unpack=unpacked, started_ns=started_ns, trace=trace, top_k=top_k_of(instance)
            )  # fmt: skip
            self._opened(call)
            return
        call.name, call.started_ns = name, started_ns
        if tags:
            read_tags(run, tags, self.recorder)
        read_question(call, arguments, self.runs)
        if kind is Kind.RETRIEVER:
            call.top_k = top_k_of(instance)
            self.runs.begin_step(call, name, name)
        else:
            describe_call(call, instance)
            if kind is Kind.TOOL:
                self.runs.tool_began(call)
        self._opened(call)

    def _opened(self, call: Call) -> None:
        opened = self._open.get()
        by_id = opened.by_id
        if len(by_id) >= OPEN_KEPT:
            by_id.pop(next(iter(by_id)), None)
        by_id[call.id] = call
        call.token = opened.current.set(call)

    def _exit(self, call: Call, result: Any, instance: object, bound_args: BoundArguments) -> None:
        kind, around = call.kind, call.parent
        if kind is Kind.POSTPROCESSOR:
            if around is not None:
                self.runs.postprocessed(call, around)
            if not call.verdicts:
                ids, made = node_ids(nodes_in(bound_args.arguments)), taken(result)
                self.recorder.passages_rewritten(
                    call.run.id, type(instance).__name__, ids, partial(unpacked, made), partial(bare, made)
                )
        elif kind is Kind.TOOL:
            self.runs.tool_ended(call, result)
        elif kind is Kind.STEP:
            note_sent(call)
            if isinstance(result, InputRequiredEvent):  # the tool asks a person
                self._waits()
        if kind in ANSWERING and call.outermost:
            self.runs.answered(call, result)

    def _handle(self) -> Call | None:
        """Returns the call that stands for the `rg.run(...)` around the caller; None outside of any."""
        handle = innermost(self.recorder)
        if handle is None:
            return None
        handles = self._open.get().handles
        call = handles.get(handle)
        if call is None:
            call = Call(handle.id, Kind.HANDLE)
            call.run = Invocation(self.recorder, handle.id, owned=False)
            call = handles.setdefault(handle, call)
        return call

    def _waits(self) -> None:
        """Notes that the run waits for a person: a run that is cancelled now counts as interrupted."""
        call = self.here()
        if call is not None:
            call.run.waits = True

    def _retrieved(self, call: Call, result: object) -> None:
        whole = call.run.whole
        if whole is not None:  # nothing else happened in the outermost call
            call.run.over = True
            wanted = self.recorder.takes(whole.id)
            whole.trace = span_of(call.id, retrieval=True) or whole.trace
            self.recorder.run_made(whole, taken(result) if wanted else ())
            return
        if self.recorder.wants(call.step_id):
            found = taken(result)
            self.recorder.step_ended(
                call.step_id,
                found,
                unpack=unpacked,
                trace=span_of(call.id, retrieval=True),
                bodies=partial(bare, found),
            )
            if call.parent is not None and not call.parent.step_id:
                note_step(call.parent, call.step_id)
        if call.parent is None and not call.run.over:
            self.runs.end(call, None)

    @never_raises
    def decided(self, verdict: Verdict) -> None:
        """Notes the verdict of a guard on the nodes that the current postprocessor was given."""
        call = self._open.get().current.get()
        if call is not None and call.kind is Kind.POSTPROCESSOR:
            call.verdicts = [*call.verdicts, verdict]


def _is_step(around: Call) -> bool:
    """True for a call without an object that is a step of the workflow around it."""
    return around.kind is Kind.WORKFLOW and "llamaindex.step.input_event" in active_instrument_tags.get()

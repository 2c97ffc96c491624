"""The recorder: turns what hooks report into events, in microseconds.

It knows runs, steps and sub-steps by their ids, and no framework. Every verb may be called from any thread, twice, too
late or for something unknown; none raises and none waits. The recorder itself ends runs that nobody ends: by their age,
at the end of their task, or when too many are open.

Of the code that calls a hook it sees whether capture is paused there, the open retrieval of `@ragguard.retrieval`, and
the current span of OpenTelemetry. The first two are context variables, so they go where Python copies the context: into
asyncio tasks, `asyncio.to_thread` and LangChain's `ContextThreadPoolExecutor`, and not into a plain thread.
"""

from __future__ import annotations

import sys
import time
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ragguard.capture.answer_flow import Texts
from ragguard.capture.call_paths import CallPath
from ragguard.capture.decisions import Verdict
from ragguard.capture.events import CALLER_ID, UNNAMED, RunEnded, RunNames, RunStarted, StepAmended, TurnKey
from ragguard.capture.model_calls import Bodies
from ragguard.capture.open_runs import Collected, EventIntake, GivesAdvice, OpenRun, OpenRuns
from ragguard.capture.retrievals import Retrieval, Unpack, WholeRun
from ragguard.capture.snapshot import error_text
from ragguard.errors import AdviceError, InvalidInput
from ragguard.records import Advice, Decision, Passage, Run, Status, TraceContext
from ragguard.runtime.faults import FAULTS, Faults, never_raises
from ragguard.runtime.per_process import PerProcess

if TYPE_CHECKING:
    from opentelemetry.trace import Span

Here: TypeAlias = Literal["here"]
"""The span that is current where the recorder is called."""

_paused: ContextVar[bool] = ContextVar("ragguard_paused", default=False)


@contextmanager
def paused() -> Iterator[None]:
    """Pauses capture inside `with ragguard.paused():`, in sync and async code, in plain code and in frameworks.

    An open run stays open, but its retrievals in the block are not recorded. A task that begins in the block stays
    paused.
    """
    before = _paused.get()
    _paused.set(True)
    try:
        yield
    finally:
        _paused.set(before)


def is_paused() -> bool:
    """True inside `with ragguard.paused()`."""
    return _paused.get()


enclosing_step: ContextVar[tuple[object, str, str] | None] = ContextVar("ragguard_step", default=None)
"""The open retrieval that was begun by `@ragguard.retrieval`, as its recorder, run and step: what is retrieved inside
of it is a part of it."""

_RETRIEVALS = ("retrieval", "vector_db_retrieve")
"""The values of `gen_ai.operation.name` for a retrieval, by OpenTelemetry's conventions and by OpenLLMetry."""


def trace_context() -> TraceContext | None:
    """Returns the ids of the current span, if any; an application that traces has imported OpenTelemetry itself."""
    trace = sys.modules.get("opentelemetry.trace")
    # An empty context holds no span; this check is quicker than finding the current span.
    if trace is None or not sys.modules["opentelemetry.context"].get_current():
        return None
    return context_of(trace.get_current_span())


def context_of(span: Span) -> TraceContext | None:
    """Returns the ids of a span, and whether it is the span of a retrieval; None for a span without ids."""
    context = span.get_span_context()
    if not context.trace_id or not context.span_id:
        return None
    about = getattr(span, "attributes", None) or {}
    is_retrieval = (
        about.get("openinference.span.kind") == "RETRIEVER"
        or about.get("gen_ai.operation.name") in _RETRIEVALS
    )
    return TraceContext(
        f"{context.trace_id:032x}", f"{context.span_id:016x}", context.trace_flags.sampled, is_retrieval
    )


def no_adviser() -> GivesAdvice:
    raise AdviceError(
        "this recorder belongs to no RagGuard, so there is no advice: use the recorder of a RagGuard"
    )


class Recorder:
    """Turns what hooks report into events, and hands these to an intake.

    Hooks hold one recorder for ever, also in forked processes, where it begins with nothing open.
    """

    def __init__(
        self,
        intake: EventIntake,
        *,
        sample_rate: float = 1.0,
        ttl: float = 3600.0,
        max_open: int = 4096,
        count_late: Callable[[], object] = lambda: None,
        adviser: Callable[[], GivesAdvice] = no_adviser,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sampled_below = sample_rate * 2**32
        self.intake = intake
        self.count_late = count_late  # counts what came after the end of its run, and so is not recorded
        self.adviser = adviser
        """Returns the adviser of this process."""
        self._here = PerProcess(lambda: OpenRuns(intake, max_open, ttl, clock))

    @property
    def here(self) -> OpenRuns:
        """The open runs of this process, and what is counted in it."""
        return self._here.get()

    def takes(self, run_id: object, names: RunNames = UNNAMED) -> bool:
        """True where a run of this id is recorded. The names of the run count more, since its parts share them."""
        if self._sampled_below >= 2**32:
            return True
        chosen_by = names.caller_id or names.thread or str(run_id)
        return zlib.crc32(chosen_by.encode("utf-8", "replace")) < self._sampled_below

    @property
    def faults(self) -> Faults:
        """The faults of hooks in this process."""
        return self.here.faults

    def open_run(self, run_id: str) -> OpenRun | None:
        """Returns the open run with this id, sampled or not."""
        return self.here.runs.get(run_id)

    def named(self, name: str) -> OpenRun | None:
        """Returns the open run with this id, or the latest one that the application calls so."""
        runs = self.here
        return runs.runs.get(runs.names.get(name, name))

    def wants(self, step_id: str) -> bool:
        """True while the step is open and will be recorded: only then is a snapshot worth making."""
        return step_id in self.here.steps

    def run_started(
        self, run_id: str, question: str = "", *, name: str = "", references: list[str] | None = None,
        sub_questions: list[str] | None = None, pool: list[Passage] | None = None,
        metadata: Mapping[str, Any] | None = None, started_ns: int = 0, trace: TraceContext | Here | None = "here",
        collect: Collected | None = None, names: RunNames = UNNAMED,
    ) -> bool:  # fmt: skip
        """Opens a run; returns whether it is sampled. Lists are taken as they are; `collect` receives what happens to
        the run's steps; `names` is what the application calls the run."""
        try:
            if is_paused():
                return False
            runs = self.here
            run = OpenRun(run_id, self.takes(run_id, names), question, collected=collect, names=names)
            run.emitting = 1
            begun = runs.begin(run)
            if begun is not run or not run.sampled:
                return begun.sampled
            if trace == "here":
                trace = trace_context()
            if names.caller_id:
                metadata = {**(metadata or {}), CALLER_ID: names.caller_id}
            record = partial(
                Run, run_id, question, references, status="open", metadata=metadata or {}, sub_questions=sub_questions,
                pool=pool, name=name, started_ns=started_ns or time.time_ns(), trace=trace,
            )  # fmt: skip
            runs.emit(run, RunStarted(record, names, run_id))
            return True
        except FAULTS as error:
            self.faults.note("run_started", error)
            return False

    def run_made(self, run: WholeRun, result: Any) -> None:
        """Records a run of one retrieval that has ended now; `result` is the argument of the run's `unpack`."""
        try:
            ended_ns = run.ended_ns = time.time_ns()
            run.started_ns, run.result = run.started_ns or ended_ns, result
            sampled = self.takes(run.id)
            runs = self.here
            with runs.lock:
                if not sampled:
                    runs.counts["unsampled"] += 1
                    return
                runs.counts["runs"] += 1
                runs.counts["steps"] += 1
            self.intake(run)
        except FAULTS as error:
            self.faults.note("run_made", error)

    @never_raises
    def run_noted(self, end: RunEnded) -> None:
        """Keeps what a framework reports about a run that other code ends; what the end reports counts more."""
        with self.here.lock:
            if (run := self.here.runs.get(end.run_id)) is not None:
                run.note(end)

    def run_held(self, run_id: str, call: Hashable) -> TurnKey:
        """Keeps a run open beyond its end, for an outermost call of a framework that is under way: a stream that is
        read, a task that is awaited only afterwards. Each needs one `run_released`; a run that ends with an error is
        not held. Returns the parallel branch of the call beside the others that are under way."""
        with self.here.lock:
            if (run := self.here.runs.get(run_id)) is None:
                return ()
            run.holds += 1
            return run.turns.began(call)

    @never_raises
    def run_released(self, run_id: str, call: Hashable) -> None:
        """Releases a run that was held; the last release ends it, if it was to end meanwhile."""
        with self.here.lock:
            if (run := self.here.runs.get(run_id)) is None:
                return
            run.turns.ended(call)
            run.holds -= 1
            end = run.withheld if run.holds <= 0 else None
        if end is not None:
            self.run_ended(end)

    @never_raises
    def run_answered(self, run_id: str, answer: str | None) -> None:
        """Keeps the answer that the application gives itself; a framework's later answer does not replace it."""
        with self.here.lock:
            if (run := self.here.runs.get(run_id)) is not None:
                run.answer, run.answered = answer, answer is not None

    @never_raises
    def run_ended(self, end: RunEnded) -> None:
        """Closes a run. Retrievals that it leaves open were cancelled, unless the run was interrupted; `waits_for` then
        names what resumes it, in any process."""
        runs = self.here
        if (run := runs.runs.get(end.run_id) or runs.reopened(end.run_id)) is None:
            return
        with runs.lock:
            if run.holds > 0 and end.status == "ok":
                run.withheld = end
                return
        runs.close(run, end)

    def step_started(
        self, step_id: str, run_id: str, query: str, *, within: str = "", tool: str = "", name: str = "",
        turn: int | TurnKey = (), metadata: Mapping[str, Any] | None = None, started_ns: int = 0,
        trace: TraceContext | Here | None = "here", top_k: int | None = None, followed: bool = False,
        path: CallPath = (),
    ) -> None:  # fmt: skip
        """Opens a retrieval, which may be a part of the open retrieval `within`. `turn` is a turn, or the parallel
        branches that the retrieval is in; `path` are the calls around it; `top_k` is how many passages the retriever is
        asked for. With `followed`
        those passages count as read that stand in the inputs of the run's later model calls."""
        try:
            runs = self.here
            run = runs.runs.get(run_id)
            if run is None or not run.sampled or is_paused():
                return
            around = enclosing_step.get()
            if around is not None and not within and around[:2] == (self, run_id):
                within = around[2]
            if trace == "here":
                trace = None if within else trace_context()
            retrieval = Retrieval(
                step_id, run_id, query, started_ns or time.time_ns(), tool=tool, name=name, metadata=metadata,
                trace=trace, top_k=top_k, followed=followed,
                path=path,
            )  # fmt: skip
            runs.begin_step(run, retrieval, turn, within)
        except FAULTS as error:
            self.faults.note("step_started", error)

    def step_is_known(self, step_id: str) -> None:
        """Notes that what is given as the passages of an open retrieval is what the model gets."""
        if (retrieval := self.here.steps.get(step_id)) is not None:
            retrieval.followed = False

    @never_raises
    def step_judged(self, step_id: str, verdict: Verdict) -> None:
        """Notes the verdict of a guard inside an open retrieval, whose candidates are then what the guard was given."""
        self.here.judge(step_id, verdict)

    def step_ended(
        self, step_id: str, passages: Any, *, unpack: Unpack | None = None, candidates: list[Passage] | None = None,
        decision: Decision | None = None, metadata: Mapping[str, Any] | None = None, trace: TraceContext | None = None,
        k: object = None, bodies: Bodies | None = None,
    ) -> None:  # fmt: skip
        """Closes a retrieval with what it gave; `trace` is for a span that was not known at its start.

        `passages` is a list of passages, taken as it is since the caller made the snapshot. With `unpack` it is the
        argument of that function, such as a tool's one string or the parts of documents; the function is called when
        the step is first read. `k` is how many places the application says there are; a `k` that cannot be right is
        noted in the step's metadata. `bodies` gives what a prompt may hold alone of the candidates' texts.
        """
        try:
            runs = self.here
            if (retrieval := runs.steps.get(step_id)) is None:
                return
            if metadata:
                retrieval.metadata = {**(retrieval.metadata or {}), **metadata}
            retrieval.candidates, retrieval.decision = candidates, decision
            retrieval.k, retrieval.bodies = k, bodies
            retrieval.trace = trace or retrieval.trace
            retrieval.result, retrieval.unpack = passages, unpack
            runs.finish(retrieval, "ok")
        except FAULTS as error:
            self.faults.note("step_ended", error)

    @never_raises
    def step_failed(
        self,
        step_id: str,
        error: BaseException | str = "",
        status: Status = "error",
        trace: TraceContext | None = None,
    ) -> None:
        """Closes a retrieval that gave nothing: it failed, was cancelled or was interrupted."""
        if (retrieval := self.here.steps.get(step_id)) is not None:
            retrieval.error = error_text(error)
            retrieval.trace = trace or retrieval.trace
            self.here.finish(retrieval, status)

    @never_raises
    def step_amended(
        self, step_id: str, run_id: str, passages: list[Passage] | None = None,
        decision: Decision | None = None, error: BaseException | str | None = None, advice: Advice | None = None,
    ) -> None:  # fmt: skip
        """Corrects what the model got of a step that has ended, or keeps the advice that was given after it; the run
        must still be open. An `error` is that of the tool that retrieved: the model got none of the passages, and what
        was retrieved stays as candidates."""
        failed = None if error is None else error_text(error)
        passages = passages if failed is None else []
        self.here.amend(StepAmended(run_id, step_id, passages, decision, error=failed, advice=advice))

    @never_raises
    def passages_rewritten(
        self, run_id: str, by: str, given: Iterable[str], gave: Callable[[], Sequence[Passage]],
        bodies: Bodies = dict,
    ) -> None:  # fmt: skip
        """Notes that a component of an open run was given retrieved passages with these ids, and `gave` others: where a
        model is given those, they are what it read."""
        if (run := self.here.runs.get(run_id)) is not None and run.model_calls.steps:
            run.model_calls.rewritten(by, frozenset(given), gave, bodies)

    @never_raises
    def model_asked(self, run_id: str, key: object, given: Texts, path: CallPath = ()) -> None:
        """Notes that a model is asked in an open run, in the calls of the `path`. Of what was retrieved before, those
        passages count as read whose texts stand in what the model is `given`."""
        runs = self.here
        with runs.lock:
            run = runs.runs.get(run_id)
            if run is None or not run.sampled:
                return
            steps = run.model_calls.asked(key, given, path)
        for step_id in steps:
            runs.amend(StepAmended(run_id, step_id, partial(run.model_calls.read, step_id)))

    @never_raises
    def model_replied(self, run_id: str, key: object, reply: Texts) -> None:
        """Notes the reply of a model: where a later call is given it, what the model had been given was read."""
        if (run := self.here.runs.get(run_id)) is not None:
            run.model_calls.replied(key, reply)

    @never_raises
    def without_steps(self, run_id: str) -> None:
        """Warns that a call ended well that never became a run, since nothing in it was taken as a retrieval."""
        self.here.calls.without_steps(run_id, is_expected=not self.here.counts["steps"])


def recorder_of(rg: object) -> Recorder:
    """Returns the recorder of a RagGuard; refuses anything else."""
    recorder = getattr(rg, "recorder", None)
    if not isinstance(recorder, Recorder):
        raise InvalidInput("rg", rg, 'a RagGuard, such as RagGuard(engine="nano")')
    return recorder

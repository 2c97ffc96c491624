"""The open runs and retrievals of one process, until they end and their events go to the intake.

Every change is made under `OpenRuns.lock`. Events leave outside of it, so that an intake which waits for a disk holds
up its own caller only; a run's end is held back until the steps that are on their way have gone through.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, Protocol, TypeAlias

from ragguard.capture.decisions import Verdict
from ragguard.capture.declarations import CallLog
from ragguard.capture.events import (
    UNNAMED,
    EarlierStepsRead,
    Event,
    RunEnded,
    RunNames,
    StepAmended,
    StepEnded,
    TurnKey,
    Turns,
)
from ragguard.capture.model_calls import ModelCalls
from ragguard.capture.retrievals import Retrieval, WholeRun
from ragguard.records import Advice, Run, Status
from ragguard.runtime.faults import FAULTS, NOTICES, Faults, never_raises

EventIntake: TypeAlias = Callable[[Event | WholeRun], None]
"""Takes events. Never raises; returns in microseconds unless the caller asked to wait for the disk. A run that is one
retrieval comes as one record: the busiest hooks have no time to make three events of it."""
Collected: TypeAlias = list[StepEnded | StepAmended]
"""The events of the steps of a run that `rg.run(...)` holds."""
BUDGET_MS = 5000.0
"""How many milliseconds advice may take where nothing else is said."""


@dataclass(frozen=True, slots=True)
class CapturedRun:
    """A captured run about which advice is asked, and whose steps only the store has."""

    id: str
    known: Run | None = None
    """The run as far as the caller knows it."""


class GivesAdvice(Protocol):
    """Advises an agent about an open run; `ragguard.advice.Adviser` describes both methods."""

    def advise(self, run: Run | CapturedRun, budget_ms: float) -> Advice: ...

    async def aadvise(self, run: Run | CapturedRun, budget_ms: float) -> Advice: ...


_SEVERAL_ANSWERS = (
    "run {!r} got more than one answer; the last one counts, unless run.answered(...) names the answer"
)
_TWICE = (
    "the id {!r} was given to two runs that are open at once. They stay two runs, and the second one has the id "
    "{!r}. Put a name that several runs share into metadata=. If the second run continues the first, say so: "
    "rg.run(resume=ID), or `ragguard_resume` in a framework's metadata or tags"
)
_NO_QUESTION = (
    "the run {!r} ended without a question, so nothing about the question can be scored: no belief (ΔSePer), no "
    "coverage and no advice; each step is judged by its own query. Give it: rg.run(question), or run.question = ... "
    "before the run ends. (Logged once)"
)
_TOO_MANY = (
    "more than {:,} runs are open: the one with the oldest last event ends as `abandoned`, and its later retrievals "
    "are not recorded. Raise max_open_runs=, or end runs sooner"
)
_UNDECIDED = (
    "a guard's decision in the run {!r} belongs to no recorded retrieval: none had all the passages that the guard "
    "got, and none came later with the passages that it kept. Record the retrieval first (run.retrieved(query, "
    "passages), "
    "then guard.prune), or let a GuardedRetriever do both. (Logged once)"
)
UNDECIDED_KEPT = 16
"""The number of decisions of a run that wait for their retrievals."""
WAITING_KEPT = 256
"""The number of interrupted runs of this process whose retrievals are remembered until they are resumed."""
CUT_SHORT_KEPT = 65_536
"""The number of runs closed at the bound of open runs that are remembered until they end."""


@dataclass(slots=True, eq=False)
class OpenRun:
    """A run that has begun, with what a framework has reported about it and its end event will need."""

    id: str
    sampled: bool
    question: str = ""
    touched: float = 0.0
    collected: Collected | None = None
    answer: str | None = None
    answered: bool = False
    """True where the application has given the answer itself."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    index: int = 0
    turns: Turns = field(default_factory=Turns)
    steps: dict[str, Retrieval] = field(default_factory=dict)
    """Open retrievals and parts of retrievals, in the order of their starts."""
    emitting: int = 0
    """Events on their way to the intake; the run's end waits for them."""
    final: RunEnded | None = None
    sub_questions: list[str] | None = None
    """The parts into which a framework took the question apart."""
    holds: int = 0
    """The number of streams that are read and handlers that are awaited in the run."""
    withheld: RunEnded | None = None
    """The end of the run; set where the run was to end while it was held open."""
    names: RunNames = UNNAMED
    model_calls: ModelCalls = field(default_factory=ModelCalls)
    """The model calls of the run, by which it is known what of the retrieved passages was read."""
    undecided: deque[Verdict] = field(default_factory=lambda: deque(maxlen=UNDECIDED_KEPT))
    """The decisions of guards that plain code has asked before the retrieval was reported."""

    def number(self, retrieval: Retrieval, turn: int | TurnKey) -> None:
        """Gives a step its position in the run and its turn."""
        retrieval.index = self.index
        self.index += 1
        if isinstance(turn, int):
            retrieval.turn = self.turns.given(turn)
        else:
            retrieval.key = turn
            overlapping = [(other.key, other.turn) for other in self.steps.values() if other.outer is None]
            retrieval.turn = self.turns.next(turn, overlapping)

    def note(self, end: RunEnded) -> None:
        """Keeps what a framework reports about the run until the run ends; of several answers the last one counts."""
        self.question = self.question or end.question
        self.notes = {**self.notes, **end.metadata}
        self.sub_questions = self.sub_questions or end.sub_questions
        if self.answered or end.answer is None:
            return
        if self.answer and end.answer:
            NOTICES.once("several answers in a run", _SEVERAL_ANSWERS.format(self.id))
        self.answer = end.answer


class OpenRuns:
    """The runs that have begun and not ended, within bounds: least recently touched first."""

    def __init__(self, intake: EventIntake, limit: int, ttl: float, clock: Callable[[], float]) -> None:
        self._intake, self._limit, self._ttl, self._clock = intake, limit, ttl, clock
        self.lock = threading.RLock()
        """Held around every change. Reentrant: a garbage collection may run a hook inside a hook."""
        self.runs: dict[str, OpenRun] = {}
        self.steps: dict[str, Retrieval] = {}
        """The open retrievals of all runs."""
        self.names: dict[str, str] = {}
        """The id of the latest open run that the application calls so, by the id that it gave."""
        self._cut_short: dict[str, None] = {}
        """The latest runs that were closed since too many were open: the end of each is still recorded."""
        self._waiting: dict[str, tuple[str, ModelCalls]] = {}
        """The question and the retrievals of the latest runs that wait to be resumed, by their threads."""
        self.counts: Counter[Literal["runs", "steps", "unsampled", "cut_short"]] = Counter()
        """The numbers of captured runs and steps, of runs that were not sampled, and of runs that were closed since too
        many were open, and have not ended since."""
        self.faults, self.calls = Faults(), CallLog()
        self.listeners: dict[str, Any] = {}
        """The open calls that integrations keep in this process, by the integration's name; their `sweep(ttl)` ends
        those that nothing else will end."""

    def begin(self, run: OpenRun) -> OpenRun:
        """Adds a run that begins, and closes those beyond the bound; returns it, or the open one that has its id."""
        run.touched = self._clock()
        with self.lock:
            if (known := self.runs.get(run.id)) is not None:
                return known
            self.runs[run.id] = run
            if run.names.resumes and (waiting := self._waiting.pop(run.names.thread, None)) is not None:
                run.model_calls = waiting[1]
            if name := run.names.caller_id:
                if name in self.names and run.sampled:
                    NOTICES.warn("run id used twice", _TWICE.format(name, run.id), pause=1.0)
                self.names[name] = run.id
            self.counts["runs" if run.sampled else "unsampled"] += 1
            if len(self.runs) <= self._limit:
                return run
            oldest = next(iter(self.runs.values()))
            if oldest.sampled:
                self._cut_short[oldest.id] = None
                self.counts["cut_short"] += 1
            if len(self._cut_short) > CUT_SHORT_KEPT:
                del self._cut_short[next(iter(self._cut_short))]
        NOTICES.warn("runs cut short", _TOO_MANY.format(self._limit))
        self.close(oldest, RunEnded(oldest.id, "abandoned"))
        return run

    def reopened(self, run_id: str) -> OpenRun | None:
        """Opens a run that was closed since too many were open, so that it can end with its answer; None for others."""
        with self.lock:
            if run_id not in self._cut_short:
                return None
            del self._cut_short[run_id]
            self.counts["cut_short"] -= 1
            run = self.runs[run_id] = OpenRun(run_id, True, touched=self._clock(), index=1)
            return run

    def begin_step(self, run: OpenRun, retrieval: Retrieval, turn: int | TurnKey, within: str) -> None:
        """Adds a retrieval that begins: as a numbered step, or as a part of the retrieval that encloses it."""
        now = self._clock()
        with self.lock:
            if retrieval.id in self.steps or run.id not in self.runs:  # the run may have ended since
                return
            outer = self.steps.get(within)
            if outer is not None:
                retrieval.outer = outer.outer or outer
            else:
                run.number(retrieval, turn)
            self.steps[retrieval.id] = run.steps[retrieval.id] = retrieval
            run.touched = now
            self.runs[run.id] = self.runs.pop(run.id)

    def finish(self, retrieval: Retrieval, status: Status, run: OpenRun | None = None) -> None:
        """Closes a retrieval and hands on its step. `run` is its run where that is closed now: nobody else closes what
        such a run has left open."""
        with self.lock:
            run = run or self.runs.get(retrieval.run_id)
            if run is None or self.steps.pop(retrieval.id, None) is None:
                return
            run.steps.pop(retrieval.id, None)
            retrieval.status, retrieval.ended_ns = status, time.time_ns()
            if (outer := retrieval.outer) is not None:
                outer.parts = [*(outer.parts or ()), retrieval]
                for verdict in retrieval.verdicts or ():
                    self.judge(outer.id, replace(verdict, part=True))
                return
            self.counts["steps"] += 1
            event = StepEnded(retrieval.as_step, run.id)
            if run.collected is not None:
                run.collected.append(event)
            run.model_calls.retrieved(
                retrieval.id, event, retrieval.bodies, path=retrieval.path, followed=retrieval.followed,
                ok=status == "ok",
            )  # fmt: skip
            run.emitting += 1
        self.emit(run, event)

    def judge(self, step_id: str, verdict: Verdict) -> None:
        """Adds the verdict of a guard inside an open retrieval."""
        with self.lock:
            if (retrieval := self.steps.get(step_id)) is not None:
                retrieval.verdicts = [*(retrieval.verdicts or ()), verdict]

    def amend(self, event: StepAmended, run: OpenRun | None = None) -> None:
        """Hands on what the model got of a step that has ended in an open run, or in the `run` that is closed now."""
        with self.lock:
            run = run or self.runs.get(event.run_id)
            step = None if run is None else run.model_calls.steps.get(event.step_id)
            if run is None or step is None:
                return
            step.decision = event.decision or step.decision
            step.has_failed = step.has_failed or event.error is not None
            if run.collected is not None:
                run.collected.append(event)
            run.emitting += 1
        self.emit(run, event)

    def close(self, run: OpenRun, end: RunEnded) -> None:
        """Closes a run, once, with its end, which takes over what was noted of the run before."""
        with self.lock:
            if self.runs.pop(run.id, None) is None:
                return
            if self.names.get(run.names.caller_id) == run.id:
                del self.names[run.names.caller_id]
            run.emitting += 1
        for retrieval in sorted(run.steps.values(), key=lambda one: one.outer is None):  # parts first
            self.finish(retrieval, "cancelled" if end.status in ("ok", "error") else end.status, run)
        if end.answer is None or run.answered:
            end.answer = run.answer
        end.question = end.question or run.question
        end.sub_questions = run.sub_questions if end.sub_questions is None else end.sub_questions
        end.metadata = {**run.notes, **end.metadata} if run.notes else end.metadata
        for step_id in run.model_calls.ended(end.answer or ""):
            self.amend(StepAmended(run.id, step_id, partial(run.model_calls.read_at_end, step_id)), run)
        if run.sampled and run.names.resumes and run.model_calls.asked_so_far:
            with self.lock:
                run.emitting += 1
            self.emit(run, EarlierStepsRead(run.id, run.model_calls.read_before))
        if end.waits_for:
            self.waits(end.waits_for, end.question, run.model_calls)
        by_hand = run.collected is not None
        if run.undecided:
            NOTICES.once("a guard's decision without a retrieval", _UNDECIDED.format(run.id))
        if run.sampled:
            if not run.index and end.status == "ok" and not run.names.resumes:
                self.calls.without_steps(run.id, is_expected=by_hand or not self.counts["steps"])
            if by_hand and run.index and not end.question.strip() and not run.names.resumes:
                NOTICES.once("a run without a question", _NO_QUESTION.format(run.id))
            # A part of a framework's that goes on with no other run is one only if it retrieves something.
            end.void = run.names.resumes and not run.names.caller_id and not run.index
            end.ended_ns = time.time_ns()
            run.final = end
        self.emit(run)

    def waits(self, thread: str, question: str, calls: ModelCalls | None = None) -> None:
        """Remembers an interrupted run until its thread is resumed: what was retrieved before may be read then."""
        calls = calls or ModelCalls()
        calls.answer, calls.has_ended = "", False
        with self.lock:
            self._waiting.pop(thread, None)
            self._waiting[thread] = question, calls
            if len(self._waiting) > WAITING_KEPT:
                del self._waiting[next(iter(self._waiting))]

    def question_before(self, thread: str) -> str:
        """Returns the question of the run that waits for a thread; '' where none does."""
        waiting = self._waiting.get(thread)
        return "" if waiting is None else waiting[0]

    def emit(self, run: OpenRun, event: Event | None = None) -> None:
        """Hands on one of the events that `run.emitting` counts; after the last one the run's end."""
        if event is not None:
            self._hand_on(event)
        with self.lock:
            run.emitting -= 1
            if run.emitting or run.final is None:
                return
            final, run.final = run.final, None
        self._hand_on(final)

    def _hand_on(self, event: Event) -> None:
        try:
            self._intake(event)
        except FAULTS as error:
            self.faults.note("intake", error)

    @never_raises
    def sweep(self, ttl: float | None = None) -> None:
        """Ends runs and calls that nothing else will end; with a `ttl` of 0 all of them, as at the end of capture."""
        now, ttl = self._clock(), self._ttl if ttl is None else ttl
        with self.lock:
            old = [run for run in self.runs.values() if now - run.touched >= ttl]
        for run in old:
            self.close(run, RunEnded(run.id, "abandoned"))
        for listener in self.listeners.values():
            listener.sweep(ttl)

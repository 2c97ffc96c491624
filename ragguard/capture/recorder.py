"""The recorder: turns what a framework's hooks report into events, in microseconds.

It knows runs, steps and sub-steps by their ids, and no framework. Every verb may be called from
any thread, twice, too late or for something unknown; none raises and none waits. What never
ends is ended here: by its age, or when too much is open.

Events leave outside the lock, so that an intake which waits for a disk holds up its own caller
only; a run's end is held back until the steps that are on their way have gone through.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
import zlib
from asyncio import Task
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ragguard.capture.events import Intake, RunEnded, RunStarted, Splitter, StepAmended, StepEnded
from ragguard.capture.faults import Faults, never_raises
from ragguard.capture.places import Places, TurnKey
from ragguard.capture.trace import trace_context
from ragguard.capture.turns import Turns
from ragguard.errors import InvalidInput
from ragguard.records import Decision, Passage, RetrievalStep, Run, Status, SubStep, TraceContext

ENDED_KEPT = 1024
"""How many ended steps of an open run are remembered, so that they can be amended."""
GONE_SECONDS = 1.0
"""How long a task must have been over before what it left open counts as cancelled."""


@dataclass(slots=True)
class Counts:
    """What capture has seen so far."""

    runs: int = 0
    steps: int = 0
    unsampled: int = 0
    abandoned: int = 0
    """Runs that were closed here since nobody ended them."""


@dataclass(slots=True, eq=False)
class _OpenRun:
    id: str
    sampled: bool
    touched: float
    question: str = ""
    answer: str | None = None
    notes: dict[str, Any] = field(default_factory=dict)
    index: int = 0
    turns: Turns = field(default_factory=Turns)
    steps: dict[str, _Retrieval] = field(default_factory=dict)
    """Open retrievals, sub-steps among them, in the order of their starts."""
    ended: dict[str, None] = field(default_factory=dict)
    collected: list[RetrievalStep] | None = None
    task: weakref.ref[Task[Any]] | None = None
    gone_since: float = 0.0
    paused: str = ""
    emitting: int = 0
    final: RunEnded | None = None


@dataclass(slots=True, eq=False)
class _Retrieval:
    id: str
    run: _OpenRun
    query: str
    started_ns: int
    tool: str
    name: str
    outer: _Retrieval | None = None
    key: TurnKey | None = None
    index: int = 0
    turn: int = 0
    trace: TraceContext | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    subs: list[SubStep] | None = None


class Recorder:
    """Makes events of what happened, and hands them to an intake."""

    def __init__(
        self,
        intake: Intake,
        *,
        sample_rate: float = 1.0,
        ttl: float = 3600.0,
        max_open: int = 4096,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not 0.0 <= sample_rate <= 1.0:
            raise InvalidInput("sample_rate", sample_rate, "a share between 0 and 1")
        if not ttl > 0:
            raise InvalidInput("ttl", ttl, "a number of seconds over 0")
        if max_open < 1:
            raise InvalidInput("max_open", max_open, "at least 1")
        self.faults = Faults()
        self.counts = Counts()
        self.places = Places()
        self._intake, self._clock = intake, clock
        self._sample_below = int(sample_rate * 2**32)
        self._ttl, self._max_open = ttl, max_open
        self._forget()
        _recorders.add(self)

    def _forget(self) -> None:
        """Starts with nothing open. Reentrant: a garbage collection may run a hook inside a hook."""
        self._lock = threading.RLock()
        self._runs: dict[str, _OpenRun] = {}
        """Least recently touched first."""
        self._steps: dict[str, _Retrieval] = {}
        self._paused: dict[str, str] = {}
        self.places.clear()

    # What is open

    @property
    def open_runs(self) -> int:
        """Runs that have begun and not ended, unsampled ones left out."""
        with self._lock:
            return sum(run.sampled for run in self._runs.values())

    @property
    def open_steps(self) -> int:
        """Retrievals that have begun and not ended."""
        return len(self._steps)

    def knows(self, run_id: str) -> bool:
        """True while the run is open, sampled or not."""
        return run_id in self._runs

    def wants(self, step_id: str) -> bool:
        """True while the step is open and will be recorded: only then is a snapshot worth making."""
        return step_id in self._steps

    # Runs

    @never_raises
    def run_started(
        self,
        run_id: str,
        question: str = "",
        *,
        name: str = "",
        references: Sequence[str] | None = None,
        sub_questions: Sequence[str] | None = None,
        pool: Sequence[Passage] | None = None,
        metadata: Mapping[str, Any] | None = None,
        task: weakref.ref[Task[Any]] | None = None,
        collect: list[RetrievalStep] | None = None,
    ) -> bool:
        """Opens a run; says whether it is sampled.

        `task` is for a call that reports nothing when it is cancelled: once that task is over,
        the run counts as cancelled. `collect` receives the run's steps as they end.
        """
        sampled = zlib.crc32(run_id.encode("utf-8", "replace")) < self._sample_below
        now = self._clock()
        with self._lock:
            known = self._runs.get(run_id)
            if known is not None:
                return known.sampled
            opened = _OpenRun(run_id, sampled, now, question, task=task, collected=collect)
            self._runs[run_id] = opened
            if sampled:
                self.counts.runs += 1
                opened.emitting += 1
            else:
                self.counts.unsampled += 1
            overdue = self._overdue(now)
        for old in overdue:
            self._close(old, "interrupted" if old.paused else "abandoned")
        if sampled:
            run = Run(
                run_id, question, None if references is None else list(references), name=name,
                metadata={} if metadata is None else metadata, trace=trace_context(),
                sub_questions=None if sub_questions is None else list(sub_questions),
                pool=None if pool is None else list(pool),
            )  # fmt: skip
            self._emit(opened, RunStarted(run))
        return sampled

    @never_raises
    def run_ended(
        self,
        run_id: str,
        answer: str | None = None,
        status: Status = "ok",
        *,
        question: str = "",
        references: Sequence[str] | None = None,
        sub_questions: Sequence[str] | None = None,
        pool: Sequence[Passage] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Closes a run; retrievals that it leaves open ended with it, as cancelled."""
        run = self._runs.get(run_id)
        if run is None:
            return
        self._close(
            run, status, answer=answer, question=question, metadata=metadata or {},
            references=None if references is None else list(references),
            sub_questions=None if sub_questions is None else list(sub_questions),
            pool=None if pool is None else list(pool),
        )  # fmt: skip

    @never_raises
    def run_noted(
        self,
        run_id: str,
        *,
        question: str = "",
        answer: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Keeps what a framework said about a run that is somebody else's to end; the end may overrule it."""
        with self._lock:
            run = self._runs.get(run_id)
            if run is None:
                return
            run.question = run.question or question
            run.answer = run.answer if answer is None else answer
            run.notes.update(metadata or {})

    @never_raises
    def run_paused(self, run_id: str, key: str) -> None:
        """The run waits for somebody's answer; it goes on when `key` is resumed, or ends as interrupted."""
        with self._lock:
            run = self._runs.get(run_id)
            if run is None:
                return
            run.paused = key
            self._paused[key] = run_id
            left = list(run.steps.values())
        self.places.forget(run_id)
        for one in left:
            self._finish(one, [], status="interrupted")

    @never_raises
    def run_resumed(self, key: str) -> str | None:
        """The run that waits under `key`, which goes on now; None where nothing waits."""
        with self._lock:
            run = self._runs.get(self._paused.pop(key, ""))
            if run is None:
                return None
            run.paused = ""
            self._touch(run)
            return run.id

    # Steps

    @never_raises
    def step_started(
        self,
        step_id: str,
        run_id: str,
        query: str,
        *,
        within: str = "",
        tool: str = "",
        name: str = "",
        turn: int | TurnKey | None = None,
        metadata: Mapping[str, Any] | None = None,
        started_ns: int | None = None,
    ) -> None:
        """Opens a retrieval. `within` names the open retrieval that it is a part of."""
        run = self._runs.get(run_id)
        if run is None or not run.sampled:
            return
        trace = None if within else trace_context()
        with self._lock:
            if step_id in self._steps:
                return
            one = _Retrieval(
                step_id,
                run,
                query,
                started_ns or time.time_ns(),
                tool,
                name,
                trace=trace,
                metadata=metadata or {},
            )
            outer = self._steps.get(within)
            if outer is not None:
                one.outer = outer.outer or outer
            else:
                self._number(one, turn)
            self._steps[step_id] = run.steps[step_id] = one
            self._touch(run)

    def step_ended(
        self,
        step_id: str,
        passages: list[Passage],
        *,
        candidates: list[Passage] | None = None,
        decision: Decision | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Closes a retrieval with what it gave; the lists are taken as they are, the caller made the snapshot."""
        self._end(step_id, passages, candidates=candidates, decision=decision, metadata=metadata)

    def step_answered(
        self, step_id: str, output: str, split: Splitter, *, metadata: Mapping[str, Any] | None = None
    ) -> None:
        """Closes a retrieval that gave one string; `split` takes it apart later, on the intake's side."""
        self._end(step_id, [], output=output, split=split, metadata=metadata)

    def step_failed(self, step_id: str, error: BaseException | str = "", status: Status = "error") -> None:
        """Closes a retrieval that gave nothing: it failed, was cancelled or was interrupted."""
        if isinstance(error, BaseException):
            error = describe(error)
        self._end(step_id, [], status=status, error=error)

    @never_raises
    def step_amended(
        self,
        step_id: str,
        run_id: str,
        passages: list[Passage] | None = None,
        decision: Decision | None = None,
    ) -> None:
        """Says what the model really got of a step of an open run that has ended already."""
        with self._lock:
            run = self._runs.get(run_id)
            if run is None or step_id not in run.ended:
                return
            run.emitting += 1
            if run.collected is not None:
                run.collected[:] = [_amended(step, step_id, passages, decision) for step in run.collected]
        self._emit(run, StepAmended(run_id, step_id, passages, decision))

    @never_raises
    def sweep(self) -> None:
        """Ends what nobody will end: overdue runs, and those whose task is over. Call it now and then."""
        now = self._clock()
        with self._lock:
            closing: list[tuple[_OpenRun, Status]] = [(run, "abandoned") for run in self._overdue(now)]
            for run in self._runs.values():
                if run.task is None:
                    continue
                task = run.task()
                if task is not None and not task.done():
                    continue
                run.gone_since = run.gone_since or now
                if now - run.gone_since >= GONE_SECONDS:
                    closing.append((run, "cancelled"))
        for run, status in closing:
            self._close(run, "interrupted" if run.paused else status)

    # Inside

    @never_raises
    def _end(
        self,
        step_id: str,
        passages: list[Passage],
        *,
        candidates: list[Passage] | None = None,
        decision: Decision | None = None,
        metadata: Mapping[str, Any] | None = None,
        status: Status = "ok",
        error: str = "",
        split: Splitter | None = None,
        output: str = "",
    ) -> None:
        one = self._steps.get(step_id)
        if one is not None:
            self._finish(one, passages, candidates, decision, metadata, status, error, split, output)

    def _finish(
        self,
        one: _Retrieval,
        passages: list[Passage],
        candidates: list[Passage] | None = None,
        decision: Decision | None = None,
        metadata: Mapping[str, Any] | None = None,
        status: Status = "ok",
        error: str = "",
        split: Splitter | None = None,
        output: str = "",
    ) -> None:
        ended_ns = time.time_ns()
        run = one.run
        with self._lock:
            if self._steps.pop(one.id, None) is None:
                return
            run.steps.pop(one.id, None)
            if one.outer is not None:
                self._part(one, SubStep(one.query, passages, one.name, one.started_ns, ended_ns, status))
                return
            for inner in [inner for inner in run.steps.values() if inner.outer is one]:
                # It outlives what it seemed to be a part of, so it is a retrieval of its own.
                inner.outer = None
                self._number(inner, inner.key)
            if metadata:
                one.metadata = {**one.metadata, **metadata}
            step = RetrievalStep(
                one.id, run.id, one.index, one.turn, one.query, passages,
                passages if candidates is None else candidates,
                one.started_ns, ended_ns, status, one.tool, one.subs or [], error, decision, one.trace,
                one.metadata,
            )  # fmt: skip
            run.ended[one.id] = None
            if len(run.ended) > ENDED_KEPT:
                del run.ended[next(iter(run.ended))]
            if run.collected is not None:
                run.collected.append(step)
            self.counts.steps += 1
            run.emitting += 1
        self._emit(run, StepEnded(step, split, output))

    @staticmethod
    def _part(one: _Retrieval, sub: SubStep) -> None:
        assert one.outer is not None
        if one.outer.subs is None:
            one.outer.subs = []
        one.outer.subs.append(sub)

    @staticmethod
    def _number(one: _Retrieval, turn: int | TurnKey | None) -> None:
        """Gives a step its place in the run and its turn."""
        run = one.run
        one.index, run.index = run.index, run.index + 1
        overlapping = [other for other in run.steps.values() if other.outer is None and other is not one]
        if isinstance(turn, int):
            one.turn = run.turns.given(turn)
            return
        one.key = turn
        one.turn = run.turns.next(turn, [(other.key, other.turn) for other in overlapping])

    def _close(
        self,
        run: _OpenRun,
        status: Status,
        *,
        answer: str | None = None,
        question: str = "",
        references: list[str] | None = None,
        sub_questions: list[str] | None = None,
        pool: list[Passage] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        with self._lock:
            if self._runs.pop(run.id, None) is None:
                return
            self._paused.pop(run.paused, None)
            if run.sampled and status == "abandoned":
                self.counts.abandoned += 1
            left = list(run.steps.values())
            run.emitting += 1
            if run.sampled:
                run.final = RunEnded(
                    run.id, status, run.answer if answer is None else answer, question or run.question,
                    references, sub_questions, pool, time.time_ns(), {**run.notes, **(metadata or {})},
                )  # fmt: skip
        self.places.forget(run.id)
        try:
            for one in left:
                self._finish(one, [], status="cancelled" if status in ("ok", "error") else status)
        finally:
            self._emitted(run)

    def _emit(self, run: _OpenRun, event: RunStarted | StepEnded | StepAmended) -> None:
        try:
            self._intake(event)
        finally:
            self._emitted(run)

    def _emitted(self, run: _OpenRun) -> None:
        with self._lock:
            run.emitting -= 1
            if run.emitting or run.final is None:
                return
            final, run.final = run.final, None
        self._intake(final)

    def _touch(self, run: _OpenRun) -> None:
        run.touched = self._clock()
        if self._runs.pop(run.id, None) is not None:
            self._runs[run.id] = run

    def _overdue(self, now: float) -> list[_OpenRun]:
        """The least recently touched runs that are too old or too many."""
        overdue: list[_OpenRun] = []
        surplus = len(self._runs) - self._max_open
        for run in self._runs.values():
            if len(overdue) >= surplus and now - run.touched < self._ttl:
                break
            overdue.append(run)
        return overdue


def describe(error: BaseException) -> str:
    """An error in one line, as a record keeps it."""
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - an error whose own text fails is still recorded by its type
        text = type(error).__name__
    return text if len(text) <= 500 else text[:497] + "..."


def _amended(
    step: RetrievalStep, step_id: str, passages: list[Passage] | None, decision: Decision | None
) -> RetrievalStep:
    if step.id != step_id:
        return step
    return replace(
        step,
        passages=step.passages if passages is None else passages,
        decision=step.decision if decision is None else decision,
    )


_recorders: weakref.WeakSet[Recorder] = weakref.WeakSet()


def _forget_in_child() -> None:
    """What is open belongs to the parent process; its locks may be held by threads that are not here."""
    for recorder in list(_recorders):
        recorder._forget()


os.register_at_fork(after_in_child=_forget_in_child)

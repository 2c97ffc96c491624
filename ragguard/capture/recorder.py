"""The recorder: turns what hooks report into events, in microseconds.

It knows runs, steps and sub-steps by their ids, and no framework. Every verb may be called from
any thread, twice, too late or for something unknown; none raises and none waits. What nobody
ends is ended here: by its age, by the end of its task, or when too much is open.

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
from dataclasses import dataclass, replace
from typing import Any

from ragguard.capture.events import Intake, RunEnded, RunStarted, Splitter, StepAmended, StepEnded
from ragguard.capture.faults import Faults, never_raises
from ragguard.capture.open_runs import OpenRun, OpenRuns, Retrieval
from ragguard.capture.places import Places, TurnKey
from ragguard.capture.trace import trace_context
from ragguard.errors import InvalidInput
from ragguard.records import Decision, Passage, RetrievalStep, Run, Status, TraceContext


@dataclass(slots=True)
class Counts:
    """What capture has seen so far."""

    runs: int = 0
    steps: int = 0
    unsampled: int = 0
    abandoned: int = 0
    """Runs that were closed here since nobody ended them."""


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
        self._intake, self._clock = intake, clock
        self._sample_below = sample_rate * 2**32
        self._ttl, self._max_open = ttl, max_open
        self.counts = Counts()
        self.places = Places()
        self.faults = Faults()
        self._forget()
        _recorders.add(self)

    def _forget(self) -> None:
        """Starts with nothing open. The lock is reentrant: a garbage collection may run a hook inside a hook."""
        self._lock = threading.RLock()
        self._runs = OpenRuns(self._max_open, self._ttl)
        self._steps: dict[str, Retrieval] = {}
        self.places.clear()
        self.faults.renew()

    @property
    def open_runs(self) -> int:
        """How many sampled runs have begun and not ended."""
        with self._lock:
            return sum(run.sampled for run in self._runs)

    @property
    def open_steps(self) -> int:
        """How many retrievals have begun and not ended."""
        return len(self._steps)

    def samples(self, run_id: str) -> bool:
        """Whether a run of that id is recorded: always the same for the same id."""
        return zlib.crc32(run_id.encode("utf-8", "replace")) < self._sample_below

    def knows(self, run_id: str) -> bool:
        """True while the run is open, sampled or not."""
        return run_id in self._runs

    def wants(self, step_id: str) -> bool:
        """True while the step is open and will be recorded: only then is a snapshot worth making."""
        return step_id in self._steps

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
        started_ns: int = 0,
        trace: TraceContext | None = None,
        task: weakref.ref[Task[Any]] | None = None,
        collect: list[RetrievalStep] | None = None,
    ) -> bool:
        """Opens a run; says whether it is sampled.

        `task` is for a call that reports nothing when it is cancelled: once that task is over,
        the run counts as cancelled. `collect` receives the run's steps as they end.
        """
        sampled = self.samples(run_id)
        now = self._clock()
        run = OpenRun(run_id, sampled, now, question, task=task, collected=collect)
        with self._lock:
            known = self._runs.get(run_id)
            if known is not None:
                return known.sampled
            self._runs.put(run, now)
            run.emitting = int(sampled)
            self.counts.runs += sampled
            self.counts.unsampled += not sampled
            overdue = self._runs.overdue(now)
        if sampled:
            record = Run(
                run_id, question, None if references is None else list(references), name=name,
                metadata=metadata or {}, started_ns=started_ns or time.time_ns(),
                sub_questions=None if sub_questions is None else list(sub_questions),
                pool=None if pool is None else list(pool), trace=trace or trace_context(),
            )  # fmt: skip
            self._emit(run, RunStarted(record))
        for old in overdue:
            self._close(old, "abandoned")
        return sampled

    @never_raises
    def run_noted(
        self,
        run_id: str,
        question: str = "",
        answer: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Keeps what a framework said about a run that somebody else ends; that end may overrule it."""
        with self._lock:
            run = self._runs.get(run_id)
            if run is None:
                return
            run.question = run.question or question
            run.answer = run.answer if answer is None else answer
            run.notes.update(metadata or {})

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
        """Closes a run. Retrievals that it leaves open were cancelled, unless the run was interrupted."""
        run = self._runs.get(run_id)
        if run is None:
            return
        if metadata:
            run.notes.update(metadata)
        self._close(
            run, status,
            RunEnded(
                run_id, status, run.answer if answer is None else answer, question or run.question,
                None if references is None else list(references),
                None if sub_questions is None else list(sub_questions),
                None if pool is None else list(pool), metadata=run.notes,
            ),
        )  # fmt: skip

    @never_raises
    def run_paused(self, run_id: str, key: str) -> None:
        """The run waits for somebody; it goes on when `key` is resumed, and else ends as interrupted one day."""
        with self._lock:
            run = self._runs.get(run_id)
            if run is None:
                return
            self._runs.pause(run, key)
            left = sorted(run.steps.values(), key=lambda one: one.outer is None)
        self.places.forget(run_id)
        for one in left:
            self._finish(one, [], "interrupted")

    @never_raises
    def run_resumed(self, key: str) -> str | None:
        """The run that waits for `key`, and goes on now; None where nothing waits."""
        with self._lock:
            run = self._runs.resume(key)
            if run is None:
                return None
            self._runs.put(run, self._clock())
            return run.id

    @never_raises
    def step_started(
        self,
        step_id: str,
        run_id: str,
        query: str,
        *,
        within: str = "",
        perhaps_within: str = "",
        tool: str = "",
        name: str = "",
        turn: int | TurnKey | None = None,
        metadata: Mapping[str, Any] | None = None,
        started_ns: int = 0,
    ) -> None:
        """Opens a retrieval.

        `within` names the open retrieval that it is a part of; `perhaps_within` one that it seems
        to be a part of: it is, if it ends before that one and that one ends well.
        """
        run = self._runs.get(run_id)
        if run is None or not run.sampled:
            return
        one = Retrieval(step_id, run, query, started_ns or time.time_ns(), tool, name, metadata or {})
        outer = self._steps.get(within or perhaps_within)
        if outer is None or not within:
            one.trace = trace_context()
        with self._lock:
            if step_id in self._steps:
                return
            if outer is not None and outer.id in self._steps:
                one.outer, one.guessed = outer.outer or outer, not within
                one.key = turn if isinstance(turn, tuple) else None
            else:
                run.number(one, turn)
            self._steps[step_id] = run.steps[step_id] = one
            self._runs.put(run, self._clock())

    @never_raises
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
        one = self._steps.get(step_id)
        if one is not None:
            if metadata:
                one.metadata = {**one.metadata, **metadata}
            self._finish(one, passages, "ok", candidates=candidates, decision=decision)

    @never_raises
    def step_answered(self, step_id: str, output: str, split: Splitter) -> None:
        """Closes a retrieval that gave one string; `split` takes it apart later, on the intake's side."""
        one = self._steps.get(step_id)
        if one is not None:
            self._finish(one, [], "ok", split=split, output=output)

    @never_raises
    def step_failed(self, step_id: str, error: BaseException | str = "", status: Status = "error") -> None:
        """Closes a retrieval that gave nothing: it failed, was cancelled or was interrupted."""
        one = self._steps.get(step_id)
        if one is not None:
            one.error = describe(error) if isinstance(error, BaseException) else error
            self._finish(one, [], status)

    @never_raises
    def step_amended(
        self,
        step_id: str,
        run_id: str,
        passages: list[Passage] | None = None,
        decision: Decision | None = None,
    ) -> None:
        """Says what the model really got of a step that has ended; the run must still be open."""
        with self._lock:
            run = self._runs.get(run_id)
            if run is None or step_id not in run.ended:
                return
            run.emitting += 1
            if run.collected is not None:
                run.collected[:] = [
                    amended(step, passages, decision) if step.id == step_id else step
                    for step in run.collected
                ]
        self._emit(run, StepAmended(run_id, step_id, passages, decision))

    @never_raises
    def sweep(self) -> None:
        """Ends what nobody will end: overdue runs, and those whose task is over. To be called now and then."""
        now = self._clock()
        with self._lock:
            overdue = self._runs.overdue(now)
            gone = [run for run in self._runs if run.is_gone(now)]
        for run in overdue:
            self._close(run, "abandoned")
        for run in gone:
            self._close(run, "cancelled")

    def _finish(
        self,
        one: Retrieval,
        passages: list[Passage],
        status: Status,
        *,
        candidates: list[Passage] | None = None,
        decision: Decision | None = None,
        split: Splitter | None = None,
        output: str = "",
    ) -> None:
        """Closes a retrieval: a step is handed on, with the parts that turn out to be steps of their own."""
        with self._lock:
            if self._steps.pop(one.id, None) is None:
                return
            run = one.run
            run.steps.pop(one.id, None)
            one.passages, one.status, one.ended_ns = passages, status, time.time_ns()
            if one.outer is not None:
                one.outer.parts.append(one)
                return
            for inner in run.steps.values():
                if inner.outer is one and inner.guessed:  # it outlives what it seemed to be a part of
                    inner.outer = None
                    run.number(inner, inner.key)
            alone = [part for part in one.parts if part.guessed and status != "ok" and part.status == "ok"]
            one.parts = [part for part in one.parts if part not in alone]
            for part in alone:
                run.number(part, part.key)
            steps = [part.as_step() for part in (one, *alone)]
            if candidates is not None:
                steps[0].candidates = candidates
            steps[0].decision = decision
            for step in steps:
                run.note_ended(step)
            run.emitting += len(steps)
            self.counts.steps += len(steps)
        self._emit(run, StepEnded(steps[0], split, output))
        for step in steps[1:]:
            self._emit(run, StepEnded(step))

    def _close(self, run: OpenRun, status: Status, final: RunEnded | None = None) -> None:
        """Closes a run, once; `final` is its last word, else what was noted of it."""
        if run.paused:
            status = "interrupted"
        with self._lock:
            if self._runs.pop(run.id) is None:
                return
            run.emitting += 1
            left = sorted(run.steps.values(), key=lambda one: one.outer is None)
            if run.sampled and status == "abandoned":
                self.counts.abandoned += 1
        self.places.forget(run.id)
        try:
            for one in left:
                self._finish(one, [], "cancelled" if status in ("ok", "error") else status)
        finally:
            if run.sampled:
                final = final or RunEnded(run.id, status, run.answer, run.question, metadata=run.notes)
                final.ended_ns = time.time_ns()
                run.final = final
            self._emitted(run)

    def _emit(self, run: OpenRun, event: RunStarted | StepEnded | StepAmended) -> None:
        try:
            self._intake(event)
        finally:
            self._emitted(run)

    def _emitted(self, run: OpenRun) -> None:
        with self._lock:
            run.emitting -= 1
            if run.emitting or run.final is None:
                return
            final, run.final = run.final, None
        self._intake(final)


def amended(step: RetrievalStep, passages: list[Passage] | None, decision: Decision | None) -> RetrievalStep:
    """The step with what the model really got of it."""
    return replace(
        step,
        passages=step.passages if passages is None else passages,
        decision=step.decision if decision is None else decision,
    )


def describe(error: BaseException) -> str:
    """An error in one line, as a record keeps it."""
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - an error whose own text fails is still recorded by its type
        text = type(error).__name__
    return text if len(text) <= 500 else text[:497] + "..."


_recorders: weakref.WeakSet[Recorder] = weakref.WeakSet()


def _forget_in_child() -> None:
    """What is open belongs to the parent process; its locks may be held by threads that are not here."""
    for recorder in list(_recorders):
        recorder._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)

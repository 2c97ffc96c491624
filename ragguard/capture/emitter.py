"""Closes runs and retrievals that have ended and hands their events to the intake, a run's end after all others.

Events leave outside the lock, so that an intake which waits for a disk holds up its own caller
only; a run's end is held back until the steps that are on their way have gone through.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ragguard.capture.calls import CallLog
from ragguard.capture.events import RunEnded, RunStarted, StepAmended, StepEnded
from ragguard.capture.interfaces import EventIntake, RunListener
from ragguard.capture.model_calls import TextsOf
from ragguard.capture.open_runs import OpenRun, OpenRuns, Retrieval, Unpack
from ragguard.records import Status
from ragguard.runtime.faults import FAULTS, Faults


@dataclass(slots=True)
class CaptureCounts:
    """The numbers of runs and steps that were captured in this process so far."""

    runs: int = 0
    steps: int = 0
    unsampled: int = 0
    cut_short: int = 0
    """Runs that were closed since too many were open, and have not ended since."""


class Emitter:
    """Closes retrievals and runs, and makes events of them."""

    def __init__(
        self,
        intake: EventIntake,
        runs: OpenRuns,
        calls: CallLog,
        *,
        counts: CaptureCounts,
        faults: Faults,
        listeners: Mapping[str, RunListener],
    ) -> None:
        self._intake, self._runs, self._calls = intake, runs, calls
        self._lock, self._steps = runs.lock, runs.steps
        self._counts, self._faults, self._listeners = counts, faults, listeners

    def finish(
        self, retrieval: Retrieval, status: Status, found: Any = (), unpack: Unpack | None = None
    ) -> None:
        """Closes a retrieval and hands on its step."""
        run = retrieval.run
        with self._lock:
            if self._steps.pop(retrieval.id, None) is None:
                return
            run.steps.pop(retrieval.id, None)
            retrieval.found, retrieval.unpack = found, unpack
            retrieval.status, retrieval.ended_ns = status, time.time_ns()
            if retrieval.outer is not None:
                retrieval.outer.parts = [*(retrieval.outer.parts or ()), retrieval]
                return
            self._counts.steps += 1
            run.emitting += 1
            event = StepEnded(
                retrieval.as_step, run.id, turn_open=run.has_open(retrieval.turn) if run.steps else False
            )
            run.note_ended(retrieval, event)
        self.emit(run, event)

    def close(self, run: OpenRun, status: Status, final: RunEnded | None = None) -> None:
        """Closes a run, once, with the end event `final`; None: the event is made of what was noted."""
        with self._lock:
            if self._runs.pop(run.id) is None:
                return
            run.emitting += 1
        for listener in self._listeners.values():
            listener.run_closed(run.id)
        if run.steps:
            for retrieval in run.left():
                self.finish(retrieval, "cancelled" if status in ("ok", "error") else status)
        run.model_calls.answer = (final and final.answer) or run.answer or ""
        for step_id in run.model_calls.open_questions():
            self._amend_last(run, StepAmended(run.id, step_id, partial(run.model_calls.read, step_id)))
        if run.sampled and not run.index and status == "ok" and not run.names.resumes:
            self._calls.without_steps(run.id, captured=self._counts.steps, handles=run.collected is not None)
        else:
            self._calls.forget(run.id)
        if run.sampled:
            final = final or RunEnded(run.id, status, run.answer, run.question, metadata=run.notes)
            final.ended_ns, final.void = time.time_ns(), run.names.needs_steps and not run.index
            run.final = final
        self._emitted(run)

    def model_asked(self, run_id: str, key: object, given: Any, texts_of: TextsOf) -> None:
        """Notes that a model is asked in an open run, and hands on what it reads of the steps that ended before."""
        with self._lock:
            run = self._runs.get(run_id)
            steps = [] if run is None or not run.sampled else run.model_calls.asked(key, given, texts_of)
        for step_id in steps:
            assert run is not None
            self.amend(StepAmended(run_id, step_id, partial(run.model_calls.read, step_id)))

    def amend(self, event: StepAmended) -> None:
        """Hands on what the model got of a step that has ended in an open run."""
        with self._lock:
            run = self._runs.get(event.run_id)
            if run is None or event.step_id not in run.ended:
                return
            if event.decision is not None:
                run.model_calls.decided(event.step_id, event.decision)
            if event.error is not None:
                run.model_calls.failed(event.step_id)
            run.emitting += 1
            if run.collected is not None:
                run.collected.append(event)
        self.emit(run, event)

    def _amend_last(self, run: OpenRun, event: StepAmended) -> None:
        """Hands on what is known of a step once its run is over."""
        with self._lock:
            run.emitting += 1
            if run.collected is not None:
                run.collected.append(event)
        self.emit(run, event)

    def emit(self, run: OpenRun, event: RunStarted | StepEnded | StepAmended) -> None:
        """Hands on one of the events that `run.emitting` counts."""
        try:
            self._intake(event)
        except FAULTS as error:
            self._faults.note("intake", error)
        self._emitted(run)

    def _emitted(self, run: OpenRun) -> None:
        """Counts an event as handed on; hands on the run's end after the last one."""
        with self._lock:
            run.emitting -= 1
            if run.emitting or run.final is None:
                return
            final, run.final = run.final, None
        try:
            self._intake(final)
        except FAULTS as error:
            self._faults.note("intake", error)


class OpenCapture:
    """The state of a recorder in one process: open runs belong to the process that began them."""

    def __init__(self, intake: EventIntake, max_open: int, ttl: float) -> None:
        self.runs = OpenRuns(max_open, ttl)
        self.counts, self.faults = CaptureCounts(), Faults()
        self.calls = CallLog()
        self.listeners: dict[str, RunListener] = {}
        self.emitter = Emitter(
            intake, self.runs, self.calls, counts=self.counts, faults=self.faults, listeners=self.listeners
        )

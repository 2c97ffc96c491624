"""Closes runs and retrievals that have ended and hands their events to the intake, a run's end after all others.

Events leave outside the lock, so that an intake which waits for a disk holds up its own caller only; a run's end is
held back until the steps that are on their way have gone through. Calls that were not taken as retrievals are counted,
so that a warning about a run without a retrieval can name them.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeAlias

from ragguard.capture.events import Event, RunEnded, RunStarted, StepAmended, StepEnded
from ragguard.capture.model_calls import TextsOf
from ragguard.capture.open_runs import OpenRun, OpenRuns, Retrieval, Unpack, WholeRun
from ragguard.records import Advice, Run, Status
from ragguard.runtime.faults import FAULTS, NOTICES, Faults

BUDGET_MS = 5000.0
"""How many milliseconds advice may take where nothing else is said."""
EventIntake: TypeAlias = Callable[[Event | WholeRun], None]
"""Takes events. Never raises; returns in microseconds unless the caller asked to wait for the disk. A run that is one
retrieval comes as one record: the busiest hooks have no time to make three events of it."""


@dataclass(frozen=True, slots=True)
class CapturedRun:
    """A captured run about which advice is asked."""

    id: str
    known: Run | None = None
    """The run as far as the caller knows it."""
    in_store: bool = True
    """False where `known` is the whole run; else the store has steps that `known` lacks."""


Advise: TypeAlias = Callable[[CapturedRun, float], Advice]
"""Returns advice about a run within a number of milliseconds; blocks its caller."""
AdviseAsync: TypeAlias = Callable[[CapturedRun, float], Awaitable[Advice]]
"""Does what an `Advise` does, without blocking the event loop."""


class OpenCallState(Protocol):
    """The state of open calls that an integration keeps in this process."""

    def sweep(self, ttl: float) -> None:
        """Ends the calls that nothing else will end, and removes those that are older than a number of seconds."""


TOOL = "tool"
"""The kind of a call that an agent's model asked for; only such a call can be declared as a retrieval."""
_MOST_NAMES = 50
_NOT_INSIDE = (
    ". A LangChain stream begins with its first read: read it inside the run, or have it continue the run "
    "(ragguard_resume), which then gets its retrievals. A plain thread or pool of threads does not know the run: "
    "submit contextvars.copy_context().run, use asyncio.to_thread, or note the retrieval there with run.retrieved(...)"
)
_ATTACH = (
    'attach the RagGuard: LangChain with config={"callbacks": [RagGuardCallback(rg)]} or instrument(rg), '
    "LlamaIndex with instrument(rg)"
)
_MOST_WARNINGS = 3
_MOST_RUNS = 256
_NAMES_SHOWN = 8


class CallsSeen:
    """Counts calls by kind and name; of more than 50 names, the further ones count as one."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()

    def add(self, kind: str, name: str) -> None:
        """Counts a call."""
        key = (kind, name)
        if key not in self.counts and len(self.counts) >= _MOST_NAMES:
            key = (kind, "")
        self.counts[key] += 1

    def tools(self) -> list[str]:
        """The names of the tools that were called."""
        return [name for kind, name in self.counts if kind == TOOL and name]

    def __str__(self) -> str:
        kinds: dict[str, list[str]] = {}
        for (kind, name), count in self.counts.items():
            times = f" ({count} times)" if count > 1 else ""
            kinds.setdefault(kind, []).append(f"{name!r}{times}" if name else f"others{times}")
        parts = []
        for kind, names in sorted(kinds.items(), key=lambda item: item[0] != TOOL):
            more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
            parts.append(f"{kind}: {', '.join(names[:_NAMES_SHOWN])}{more}")
        return "; ".join(parts)


def what_to_do(calls: CallsSeen) -> str:
    """Describes the calls in one sentence, and says what to declare, so that retrievals in them are captured."""
    seen, tools = str(calls), calls.tools()
    begin = f"calls that were seen in place of retrievals: {seen}. What to do: " if seen else ""
    if not seen:
        begin = f"no call of a framework was seen. What to do: {_ATTACH}; "
    elif tools:
        begin += f"if {tools[0]!r} retrieves, declare it with tools={{{tools[0]!r}: SPLITTER}}; "
    return (
        f"{begin}for a retrieval in your own code, call ragguard.retrieved(query, documents) or "
        "run.retrieved(query, passages)"
    )


class CallLog:
    """Counts the calls of all runs together, and of each of the latest 256 open runs."""

    def __init__(self) -> None:
        self.total = CallsSeen()
        self._of_run: dict[str, CallsSeen] = {}
        self._named: set[str] = set()
        """The tools that a warning has named."""
        self._warned = 0
        self.declared: set[str] = set()
        """The tools that were declared as retrievals."""
        self.retrieving: set[str] = set()
        """The tools that have given documents: a failure of one of these is a retrieval that failed."""
        self._lock = threading.RLock()

    def seen(self, run_id: str, kind: str, name: str) -> None:
        """Counts a call of a run; the run need not be known to the recorder."""
        with self._lock:
            self.total.add(kind, name)
            calls = self._of_run.get(run_id)
            if calls is None:
                if len(self._of_run) >= _MOST_RUNS:
                    del self._of_run[next(iter(self._of_run))]
                calls = self._of_run[run_id] = CallsSeen()
            calls.add(kind, name)

    def warn_of_uncalled(self) -> None:
        """Warns once of declared tools that were never called, where tools were called that are not declared: one of
        these may be meant."""
        with self._lock:
            uncalled, others = sorted(self.declared - self.retrieving), self.total.tools()
        if uncalled and others:
            names, there = (", ".join(map(repr, some[:_NAMES_SHOWN])) for some in (uncalled, others))
            NOTICES.once(
                "declared tools that were not called",
                f"tools= declares {names}, of which no call was seen so far; called, and no retrievals: {there}. If "
                "one of these is meant, declare it by its own name",
            )

    def forget(self, run_id: str) -> CallsSeen:
        """Removes a run that has ended; returns the calls that were seen in it."""
        with self._lock:
            return self._of_run.pop(run_id, None) or CallsSeen()

    def without_steps(self, run_id: str, *, captured: int, handles: bool = False) -> None:
        """Warns that a run ended without a step, where a tool was called in it, none was ever `captured`, or
        `rg.run(...)` held it, which nobody writes around what retrieves nothing."""
        calls = self.forget(run_id)
        if calls.tools() or not captured or handles:  # else retrievals are captured, and this run needed none
            self.warn(run_id, calls)

    def warn(self, run_id: str, calls: CallsSeen) -> None:
        """Warns that nothing in a run was taken as a retrieval: once a process, and once more where tools were called
        in such a run that were in none before, three times at most."""
        with self._lock:
            new = set(calls.tools()) - self._named
            if (self._warned and not new) or self._warned >= _MOST_WARNINGS:
                return
            self._named |= new
            self._warned += 1
            subject = f"a run without a retrieval {self._warned}"
        elsewhere = "" if calls.counts else _NOT_INSIDE
        NOTICES.once(
            subject,
            lambda: (
                f"the run {run_id!r} ended without a retrieval, so there is nothing to score, if it needed one; "
                f"{what_to_do(calls)}{elsewhere}. (Logged once a process for each tool, three times at most)"
            ),
        )


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
    ) -> None:
        self._intake, self._runs, self._calls = intake, runs, calls
        self._lock, self._steps = runs.lock, runs.steps
        self._counts, self._faults = counts, faults

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
        self.listeners: dict[str, OpenCallState] = {}
        self.emitter = Emitter(intake, self.runs, self.calls, counts=self.counts, faults=self.faults)

"""The queue between the hooks and the store, and the one thread that writes.

A hook puts an event in and is gone after a few microseconds; the writer gathers for some
milliseconds and commits a batch. What the scorer has to write goes the same way, so that writes
have one order. Where the disk cannot keep up, a hook waits a moment for room: with a store, nothing
is dropped; only a writer that has stood still for longer loses events, and counts them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from ragguard.capture.events import Event, RunEnded, RunStarted, StepEnded
from ragguard.capture.faults import Faults
from ragguard.capture.open_runs import WholeRun
from ragguard.errors import Closed
from ragguard.secrets import logger
from ragguard.service.fields import storable_event
from ragguard.service.redaction import Redactor
from ragguard.store.store import Store

T = TypeVar("T")

_log = logger("ragguard")

LINGER = 0.02
"""How long the writer gathers company for the first event of a batch."""
AWAKE = 2.0
"""For so many seconds after an event the writer looks for the next one by itself. A thread that a hook wakes asks for
the interpreter at once, and the call that has just retrieved pays for every time it is refused."""
BATCH = 256
"""Events of one transaction: small enough that even large ones are on the disk in a moment."""
MOST_WAIT = 5.0
"""How long a hook waits for room, once; a disk that has done nothing for so long is taken for dead."""
DISK_WAIT = 30.0
"""How long a hook waits for its step to be on the disk, with `durability="full"`."""


@dataclass(slots=True)
class _Job(Generic[T]):
    """Something else to be done by the writer, in its turn."""

    work: Callable[[], T]
    done: Future[T]

    def run(self) -> None:
        if self.done.set_running_or_notify_cancel():
            try:
                self.done.set_result(self.work())
            except BaseException as error:  # noqa: BLE001 - whoever waits for it gets it
                self.done.set_exception(error)


@dataclass(slots=True)
class _Awaited:
    """An event whose hook waits until it is on the disk."""

    event: Event | WholeRun
    written: threading.Event


_Item = Event | WholeRun | _Awaited | _Job[object] | None


_ENDING = (RunEnded, WholeRun)


def _each(event: Event | WholeRun) -> tuple[Event, ...]:
    return event.as_events() if isinstance(event, WholeRun) else (event,)


class Gate:
    """Holds a run's end back while too many runs wait to be scored, for so many seconds at most."""

    def __init__(self, size: int, timeout: float, waiting: Callable[[], int]) -> None:
        """`waiting` says how many of those that are written wait."""
        self._size, self._timeout, self._waiting = size, timeout, waiting
        self.begin()

    def begin(self) -> None:
        """Nobody waits: at first, and in a forked child."""
        self._room = threading.Condition()
        self._queued = self._written = 0

    def enter(self, *, wait: bool = True) -> None:
        """Waits for room; without any in time, the store's bound decides."""
        with self._room:
            if wait:
                self._room.wait_for(lambda: self._queued + self._written < self._size, self._timeout)
            self._queued += 1

    def update(self, written: int = 0) -> None:
        """So many of those that entered are written, or lost; and some may be done. Counted in one go, or an end
        that is neither still queued nor yet counted would let one too many in."""
        with self._room:
            self._queued -= written
            self._written = self._waiting()
            self._room.notify_all()


class Intake:
    """Takes events from any thread; see `capture.events.Intake`."""

    def __init__(
        self,
        store: Store,
        faults: Faults,
        *,
        full: bool = False,
        limit: int = 1024,
        gate: Gate | None = None,
        redactor: Redactor | None = None,
        started: Callable[[], None] = lambda: None,
        ended: Callable[[], None] = lambda: None,
        tick: Callable[[], None] = lambda: None,
        tick_seconds: float = 5.0,
    ) -> None:
        """`started` is called once, by whoever is first; `ended` when runs became due; `tick` now and then,
        these two on the writer's thread."""
        self._store, self._faults, self._full, self._limit = store, faults, full, limit
        self._gate, self._redactor = gate, redactor
        self._started, self._ended = started, ended
        self._tick, self._tick_seconds = tick, tick_seconds
        self.begin()

    def begin(self) -> None:
        """Empty and without a thread: at first, and in a forked child, where the parent's events are not ours."""
        self._queue: SimpleQueue[_Item] = SimpleQueue()
        self._hurry = threading.Event()
        self._room = threading.Condition()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stalled = self.closed = False
        self._last: Callable[[], object] = lambda: None
        if self._gate is not None:
            self._gate.begin()

    @property
    def depth(self) -> int:
        """How much waits for the writer."""
        return self._queue.qsize()

    @property
    def started(self) -> bool:
        """Whether anything was ever put in."""
        return self._thread is not None

    def __call__(self, event: Event | WholeRun) -> None:
        """Takes an event. Never raises."""
        try:
            if self._thread is None:
                self.start()
            if self.closed:
                self._lost("after close()")
                return
            if self._gate is not None and type(event) in _ENDING:
                self._gate.enter(wait=not self.is_current())
            elif self._full and type(event) is not RunStarted:
                self._put_and_wait(event)
                return
            queue = self._queue
            if queue.qsize() < self._limit:
                queue.put(event)
            else:
                self._put(event)
        except Exception as error:  # noqa: BLE001 - whatever it is, the host must not see it
            self._faults.note("Intake", error)

    def start(self) -> None:
        """Starts the writer, if it is not running."""
        with self._lock:
            if self._thread is not None or self.closed:
                return
            thread = threading.Thread(
                target=self._write_all, args=(self._queue,), name="ragguard-writer", daemon=True
            )
            thread.start()
            self._thread = thread
        self._started()

    def do(self, work: Callable[[], T], *, hurry: bool = True) -> Future[T]:
        """Has something done on the writer's thread, after everything that was put in before.

        Without `hurry` it waits with the events in front of it until their batch is written.
        """
        done: Future[T] = Future()
        if self.closed:
            done.set_exception(Closed("the service was closed; make a new RagGuard"))
            return done
        self.start()
        # Said first: a word that comes after the writer has taken the job would hurry the events behind it.
        if hurry:
            self._hurry.set()
        self._queue.put(_Job(work, done))  # type: ignore[arg-type]
        return done

    def is_current(self) -> bool:
        """True on the writer's own thread, where waiting for it would be for ever."""
        return threading.current_thread() is self._thread

    def close(self, timeout: float, last: Callable[[], object] = lambda: None) -> bool:
        """Writes what is in, calls `last` and ends the thread; False where that took too long."""
        with self._lock:
            self.closed = True
            thread, self._last = self._thread, last
        if thread is None:
            thread = threading.Thread(target=self._guarded, args=(last,), name="ragguard-writer", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # Python 3.12 starts none while the process ends
                self._guarded(last)
                return True
        elif thread is threading.current_thread():
            return True
        else:
            self._hurry.set()
            self._queue.put(None)
        thread.join(timeout)
        return not thread.is_alive()

    # The hook's side

    def _put(self, event: Event | WholeRun | _Awaited) -> bool:
        if self._queue.qsize() >= self._limit and not self._wait_for_room():
            self._lost(f"the writer has stood still for {MOST_WAIT:g} s")
            if self._gate is not None and type(event) in _ENDING:
                self._gate.update(1)
            return False
        self._queue.put(event)
        return True

    def _put_and_wait(self, event: Event | WholeRun) -> None:
        written = threading.Event()
        self._hurry.set()
        if self._put(_Awaited(event, written)) and not self.is_current() and not written.wait(DISK_WAIT):
            _log.error("a step was not on the disk after %g s; it is still being written", DISK_WAIT)

    def _wait_for_room(self) -> bool:
        if self.is_current():
            return True  # it would wait for itself
        if self._stalled:
            return False
        self._hurry.set()
        with self._room:
            self._stalled = not self._room.wait_for(lambda: self._queue.qsize() < self._limit, MOST_WAIT)
        return not self._stalled

    def _lost(self, why: str) -> None:
        if not self._store.counts["events_lost"]:
            _log.error("what is captured now is lost: %s", why)
        self._store.count("events_lost")

    # The writer's side

    def _write_all(self, queue: SimpleQueue[_Item]) -> None:
        next_tick = awake_until = time.monotonic()
        running = True
        while running:
            if (now := time.monotonic()) >= next_tick:
                next_tick = now + self._tick_seconds
                self._guarded(self._tick)
            rested = now < awake_until and queue.empty() and not self._hurry.wait(LINGER)
            if rested and queue.empty():
                continue
            try:
                batch = [queue.get(timeout=max(0.0, next_tick - time.monotonic()))]
            except Empty:
                continue
            if batch[0] is not None and not isinstance(batch[0], (_Job, _Awaited)):
                awake_until = time.monotonic() + AWAKE
                if not rested:
                    self._hurry.wait(LINGER)
            while len(batch) < BATCH:
                try:
                    batch.append(queue.get_nowait())
                except Empty:
                    break
            # Only now: a hurry that outlives its job would have the next events written one by one.
            self._hurry.clear()
            running = None not in batch
            self._write(batch)
            batch.clear()  # its thousands of objects go now, not when the next hook has just put something in
            self._stalled = False
            with self._room:
                self._room.notify_all()
        self._guarded(self._last)

    def _write(self, batch: Sequence[_Item]) -> None:
        events: list[Event] = []
        waiting: list[threading.Event] = []
        for item in batch:
            if isinstance(item, _Job):
                self._record(events, waiting)
                events, waiting = [], []
                item.run()
            elif isinstance(item, _Awaited):
                events += _each(item.event)
                waiting.append(item.written)
            elif item is not None:
                events += _each(item)
        self._record(events, waiting)

    def _record(self, events: list[Event], waiting: Sequence[threading.Event]) -> None:
        if events:
            try:
                self._store.record(self._prepared(events))
            except BaseException as error:  # noqa: BLE001 - not even memory took them
                self._faults.note("the store", error)
                self._store.count("events_lost", len(events))
            for written in waiting:
                written.set()
            ended = sum(type(event) is RunEnded for event in events)
            self._store.count("steps_captured", sum(type(event) is StepEnded for event in events))
            if ended:
                self._store.count("runs_captured", ended)
                if (gate := self._gate) is not None:
                    self._guarded(lambda: gate.update(ended))
                self._guarded(self._ended)

    def _prepared(self, events: list[Event]) -> list[Event]:
        """The events as they may be written; one that cannot be read or redacted is left out and counted."""
        kept = []
        for event in events:
            try:
                event = storable_event(event)
                kept.append(event if self._redactor is None else self._redactor.event(event))
            except BaseException as error:  # noqa: BLE001 - code of the user's may raise anything
                self._faults.note("redact", error)
                self._store.count("events_refused")
        return kept

    def _guarded(self, work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - the writer goes on whatever happens
            self._faults.note("the writer", error)

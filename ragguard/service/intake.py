"""Takes captured events from the hooks and writes them to the store: one bounded queue, one thread that writes.

A hook puts an event into the queue and returns after a few microseconds; the writer gathers events for some
milliseconds and commits a batch. Writes of the scorer go through the same queue, so that all writes have one order. The
queue is bounded by count and by bytes; beyond that the oldest events are dropped and counted, and a run that lost some
says so. A hook that is called on an event loop never waits. A batch that the disk does not take now is tried again with
pauses.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence, Set
from concurrent.futures import Future, wait
from typing import TypeVar

from ragguard.capture.events import Event, RunEnded, RunStarted, StepEnded
from ragguard.capture.retrievals import WholeRun
from ragguard.errors import Closed, RagguardError, StoreError, StoreUnavailable
from ragguard.runtime.circuit_breaker import RetrySchedule
from ragguard.runtime.faults import NOTICES, Faults, describe
from ragguard.runtime.threads import DaemonThreads
from ragguard.service.configuration import Configuration
from ragguard.service.queue import EventQueue, QueueItem, WriterJob, size_of
from ragguard.storage.preparation import Redactor
from ragguard.storage.sqlite.rows import EventBatch
from ragguard.storage.sqlite.store import Store
from ragguard.text.secret_filter import logger

T = TypeVar("T")

_log = logger("ragguard")

LINGER = 0.04
"""Seconds for which the writer gathers events after the first one of a batch. A transaction costs as much as several
runs in it, so fewer and larger transactions cost the process less. Gathering and writing together stay below 50 ms,
which is what a kill may lose."""
AWAKE = 2.0
"""Seconds after an event for which the writer looks for the next event by itself, so that hooks need not wake it. A
thread that a hook wakes competes for the interpreter at once with the call that has just retrieved."""
BATCH = 256
"""The most events of one transaction: few enough that even large events are on the disk in a moment."""
BATCH_BYTES = 8 * 2**20
"""The approximate number of bytes that the writer takes out of the queue for one batch."""
UNMEASURED = 64
"""The number of waiting events from which on new ones are measured, so that hooks measure only in a burst."""
DISK_WAIT = 30.0
"""The most seconds that a hook waits for its step to be on the disk, with `durability="full"`."""
PACE = 0.005
"""The most seconds that a hook on a thread waits while the queue is more than half full, unless `block(SECONDS)` asks
for more."""
STUCK = 1.0
"""The seconds without work of the writer after which no hook waits for it, unless `block(SECONDS)` asks for more."""
_RUNS_KEPT = 10_000
"""The most runs with lost events that are remembered until they end."""
_PAUSES = RetrySchedule(first=0.1, longest=5.0)
"""The pauses between two attempts at writing a batch."""
_OUTAGE = (
    "%s. Captured events wait in memory, at most %s bytes, and writing is tried again every few seconds; beyond "
    "that the oldest events are dropped, and waiting events are lost if this process ends. Free the disk, "
    "or do what the error says"
)


class Intake:
    """Takes events from any thread and, called with one, returns at once.

    Args:
        settings: The durability, the bounds of the queue, and what a hook does where it is full.
        store: The store that is written to.
        faults: Counts what goes wrong in the writer.
        redactor: Changes events before they are written. None: they are written as they are.
        started: Called once, by the thread that captured first, when the writer has started.
        stored: Called by the writer with the ids of the open runs of which steps have ended or changed, and with
            whether runs have ended.
        tick: Called by the writer every `tick_seconds`, for housekeeping.
        ended: Called when all is written and the intake is closed, by the writer or a thread of that name.
    """

    def __init__(
        self,
        settings: Configuration,
        store: Store,
        *,
        faults: Faults,
        redactor: Redactor | None = None,
        started: Callable[[], object] = lambda: None,
        stored: Callable[[Set[str], bool], object] = lambda changed, ended: None,
        tick: Callable[[], object] = lambda: None,
        ended: Callable[[], object] = lambda: None,
    ) -> None:
        self._settings, self._store, self._faults = settings, store, faults
        self._redactor = redactor or Redactor(None, faults)
        self._started, self._stored, self._tick, self._ended = started, stored, tick, ended
        self._full = settings.durability == "full"
        self._block = settings.block_seconds
        self._queue = EventQueue(settings.queue_events, settings.queue_bytes)
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self.closed = False
        self._worked = time.monotonic()
        """The time at which the writer last began or ended a batch, on the monotonic clock."""
        self._next_tick = self._awake_until = self._worked
        self._lost: dict[str, int] = {}
        """How many events were lost of runs that have not ended in the store."""

    @property
    def depth(self) -> int:
        """The number of items that wait for the writer."""
        return len(self._queue)

    @property
    def started(self) -> bool:
        """True once the writer was started in this process."""
        return self._thread is not None

    def __call__(self, event: Event | WholeRun) -> None:
        """Takes an event. Never raises."""
        try:
            if self._thread is None:
                self.start()
            if self.closed:
                self._lose([event], "it came after close()")
                return
            waiting = len(self._queue)
            if waiting < UNMEASURED:
                self._queue.append(event)
            else:
                self._offer(event)
            if self._full and type(event) is not RunStarted and self._may_wait():
                self._wait_for_disk()
            elif waiting == UNMEASURED - 1:
                self._queue.hurry()  # the batch is complete, and the next hook would have to measure its event
        except Closed as error:
            self._lose([event], str(error))
        except Exception as error:  # noqa: BLE001 - whatever it is, the host must not see it
            self._faults.note("Intake", error)

    async def written(self) -> None:
        """Waits, without holding the event loop, until what was captured so far is on the disk, as `durability="full"`
        promises. Never raises; what was not confirmed is counted."""
        if self._full and self._thread is not None:
            try:
                async with asyncio.timeout(DISK_WAIT):
                    await asyncio.wrap_future(self.do(lambda: None, awaits_disk=True))
            except (TimeoutError, RagguardError):
                self._unconfirmed()

    def not_awaited(self) -> None:
        """Warns that `durability="full"` cannot hold for a run that ends on an event loop without `async with`."""
        if self._full and not self._may_wait():
            NOTICES.warn(
                "not awaited",
                'durability="full" cannot wait in `with rg.run(...)` on an event loop; use `async with rg.run(...)`',
            )

    def start(self) -> None:
        """Starts the writer, if it is not running; raises Closed after `close`, and where Python starts no threads."""
        with self._lock:
            if self.closed:
                raise Closed("the service was closed; make a new RagGuard")
            if self._thread is not None:
                return
            thread = threading.Thread(target=self._write_all, name="ragguard-writer", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                raise Closed("Python is ending and starts no thread any more") from error
            self._thread = thread
        self._started()

    def do(self, work: Callable[[], T], *, wake: bool = True, awaits_disk: bool = False) -> Future[T]:
        """Calls a function on the writer's thread, after everything that was put in before; returns the future result.

        With `wake` the writer wakes at once, and tries a disk that has failed without a pause; without it the function
        waits for the batch of the events before it. With
        `awaits_disk` the result is the error where the disk does not take these events now.
        """
        done: Future[T] = Future()
        try:
            self.start()
        except Closed as error:
            done.set_exception(error)
            return done
        self._queue.append(WriterJob(work, done, awaits_disk))
        if wake:
            self._queue.hurry()
        return done

    def is_current(self) -> bool:
        """True on the writer's own thread, where waiting for the writer would never end."""
        return threading.current_thread() is self._thread

    def close(self, timeout: float) -> bool:
        """Writes what is queued and ends the thread; returns False where that took too long."""
        with self._lock:
            self.closed, thread = True, self._thread
        if thread is threading.current_thread():
            return True
        if thread is None:  # nothing was captured, and the disk may hang all the same
            done = DaemonThreads(1, "ragguard-writer").submit(self._guarded, self._ended)
            return bool(wait([done], timeout).done)
        self._queue.hurry()
        thread.join(timeout)
        return not thread.is_alive()

    def _may_wait(self) -> bool:
        """Returns False on an event loop, which a wait would block, and on the writer's own thread."""
        return asyncio._get_running_loop() is None and not self.is_current()

    def _offer(self, event: Event | WholeRun) -> None:
        """Puts an event into a queue in which many wait already: where it is crowded a thread waits for a writer that
        works, and where it is full the oldest events are dropped."""
        queue = self._queue
        if queue.crowded and self._may_wait() and time.monotonic() - self._worked < max(STUCK, self._block):
            queue.wait(lambda: not queue.crowded, max(PACE, self._block))
        if dropped := queue.offer(event, size_of(event)):
            self._lose(
                dropped,
                f"more waits for the disk than {self._settings.queue_events:,} events or "
                f"{self._settings.queue_bytes:,} bytes; look at the disk, raise queue_bytes= or queue_size=, or slow "
                "threads down with on_overflow='block(SECONDS)'",
            )

    def _wait_for_disk(self) -> None:
        """Waits until what was captured so far is on the disk, as `durability="full"` promises a thread."""
        try:
            if self._store.outage:
                raise StoreUnavailable(self._store.outage)
            self.do(lambda: None, awaits_disk=True).result(DISK_WAIT)
        except (TimeoutError, RagguardError):
            self._unconfirmed()

    def _unconfirmed(self) -> None:
        self._store.count("events_unconfirmed")
        NOTICES.warn(
            "unconfirmed",
            f"a step was not on the disk after {DISK_WAIT:g} s, or the disk cannot be written now; "
            'durability="full" does not hold for events captured now (counted)',
        )

    def _lose(self, items: Sequence[QueueItem], why: str) -> None:
        """Counts events that are lost, and ends jobs with the reason; called from any thread."""
        lost = 0
        for item in items:
            if isinstance(item, WriterJob):
                item.end(StoreError(why))
                continue
            lost += 3 if isinstance(item, WholeRun) else 1  # a whole run began, retrieved and ended
            run_id = getattr(item, "run_id", "")
            if run_id and (run_id in self._lost or len(self._lost) < _RUNS_KEPT):
                self._lost[run_id] = self._lost.get(run_id, 0) + 1
        if lost:
            self._store.count("events_lost", lost)
            NOTICES.warn("lost", f"events captured now are lost (and counted): {why}")

    def _write_all(self) -> None:
        """Writes until the intake is closed and all is written."""
        while not self.closed or self._queue:
            batch: list[QueueItem] = []
            try:
                batch = self._gathered()
                self._write(batch)
            except BaseException as error:  # noqa: BLE001 - the writer goes on whatever happens
                self._faults.note("the writer", error)
                self._lose(batch, f"the writer failed: {describe(error)}")
            del batch  # frees thousands of objects here, and not while the next hook runs
            self._worked = time.monotonic()
        self._guarded(self._ended)

    def _gathered(self) -> list[QueueItem]:
        """Waits for events and gathers some; returns them, or nothing where there are none yet."""
        now = time.monotonic()
        if now >= self._next_tick:
            self._next_tick = now + self._settings.tick_seconds
            self._guarded(self._tick)
        if now < self._awake_until and len(self._queue) < UNMEASURED:
            self._queue.wait(lambda: self._queue.hurried, LINGER)
        elif not self._queue:
            self._queue.sleep(self._next_tick - now)
            if self._queue:
                self._awake_until = time.monotonic() + AWAKE  # gathers what comes behind the first event
            return []
        self._worked = time.monotonic()
        batch = self._queue.take(BATCH, BATCH_BYTES)
        if not all(isinstance(item, WriterJob) for item in batch):
            self._awake_until = self._worked + AWAKE
        return batch

    def _write(self, batch: Sequence[QueueItem]) -> None:
        """Writes the events of a batch, then ends its jobs, for which all that was put in before is stored."""
        events = [item for item in batch if not isinstance(item, WriterJob)]
        jobs = [item for item in batch if isinstance(item, WriterJob)]
        if events:
            # Each event is built, made into rows and let go before the next one is built: the garbage collector would
            # visit all passages of a batch again and again.
            rows = self._store.prepare(self._redactor.prepared(events, self._lost, self._store.count))
            changed = self._persist(rows, [job for job in jobs if job.awaits_disk])
            if changed is None:
                self._lose(events, "the disk could not be written until the end")
            else:
                kinds = Counter(map(type, events))
                whole = sum(isinstance(event, WholeRun) for event in events)
                self._store.count("steps_captured", kinds[StepEnded] + whole)
                self._guarded(lambda: self._stored(changed, bool(kinds[RunEnded] or whole)))
        for job in jobs:
            job.end()

    def _persist(self, batch: EventBatch, waiting: Sequence[WriterJob]) -> set[str] | None:
        """Writes a batch, with pauses until the disk takes it; returns what `Store.write` does, or None where the disk
        takes nothing until the end. The callers that wait for the batch hear of the first failure."""
        failures = 0
        while True:
            try:
                changed = self._store.write(batch)
            except StoreUnavailable as error:
                failures += 1
                if failures == 1:
                    self._store.count("outages")
                    _log.error(_OUTAGE, error, f"{self._settings.queue_bytes:,}")
                for job in waiting:
                    job.end(error)
                if self.closed and not self._queue.hurried:
                    return None
                self._queue.wait(lambda: self._queue.hurried, _PAUSES.wait(failures))
                self._queue.hurried = False
            else:
                if failures:
                    _log.warning("the disk can be written again: the waiting events are stored")
                return changed

    def _guarded(self, work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - the writer goes on whatever happens
            self._faults.note("the writer", error)

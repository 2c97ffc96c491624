"""Takes captured events from the hooks and writes them to the store, on one thread.

A hook puts an event into a queue and returns after a few microseconds; the writer gathers events for some milliseconds
and commits a batch. Writes of the scorer go through the same queue, so that all writes have one order. The queue is
bounded by count and by bytes; beyond that events are dropped and counted, and a run that lost some says so. A hook that
is called on an event loop never waits.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import TypeVar

from ragguard.capture.events import Event, RunEnded, RunStarted, StepEnded
from ragguard.capture.open_runs import WholeRun
from ragguard.errors import Closed
from ragguard.runtime.faults import Faults
from ragguard.service.batches import PatientWriter, Redactor, storable_event
from ragguard.service.configuration import Configuration
from ragguard.service.queue import (
    UNMEASURED,
    AwaitedEvent,
    EventQueue,
    LostEvents,
    QueueItem,
    WriterJob,
    WriterListener,
    size_of,
)
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
DISK_WAIT = 30.0
"""The most seconds that a hook waits for its step to be on the disk, with `durability="full"`."""
PACE = 0.005
"""The most seconds that a hook on a thread waits while the queue is more than half full and the disk keeps up."""
STUCK = 1.0
"""The seconds without work of the writer after which no hook waits for it, unless `block(SECONDS)` asks for more."""
_NO_THREADS = "Python ends and starts no thread any more (3.12.0 and 3.12.1 as soon as main() has returned)"
_SAY_EVERY = 60.0


class Intake:
    """Takes events from any thread; see `capture.emitter.EventIntake`."""

    def __init__(
        self,
        settings: Configuration,
        store: Store,
        *,
        faults: Faults,
        listener: WriterListener | None = None,
        redactor: Redactor | None = None,
    ) -> None:
        self._store, self._faults, self._listener = store, faults, listener
        self._full, self._bounds = settings.durability == "full", settings.bounds
        self._tick_seconds = settings.tick_seconds
        self._redactor = redactor
        self._queue: EventQueue = EventQueue(self._bounds)
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self.closed = False
        self._last: Callable[[], object] = lambda: None
        self._batch: list[QueueItem] = []
        """The items that the writer has taken out of the queue and not yet written."""
        self._worked = time.monotonic()
        """The time at which the writer last began or ended a batch, on the monotonic clock."""
        self._hurried = False
        """True where a step is to be written without waiting for further events."""
        self._patient = PatientWriter(self._store, self._queue, self._bounds.bytes)
        self._lost = LostEvents()
        self._said: dict[str, float] = {}

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
            if self._full and type(event) is not RunStarted and self._may_wait():
                if not self._store.outage:
                    self._put_and_wait(event)
                    return
                self._unconfirmed()
            if not self._queue.put(event):
                self._offer(event)
            elif type(event) is StepEnded and self._listener is not None and self._listener.waits_for_steps:
                self._hurried = True
                self._queue.wake()
        except Closed as error:
            self._lose([event], str(error))
        except Exception as error:  # noqa: BLE001 - whatever it is, the host must not see it
            self._faults.note("Intake", error)

    async def written(self) -> None:
        """Waits without holding the event loop: with `durability="full"` until what was captured so far is on the
        disk, with `block(SECONDS)` until there is room. Never raises; what was not confirmed is counted."""
        if self._thread is None or self.closed:
            return
        if self._full:
            if self._store.outage:
                self._unconfirmed()
                return
            try:
                async with asyncio.timeout(DISK_WAIT):
                    await asyncio.wrap_future(self.do(lambda: None))
            except (TimeoutError, Closed):
                self._unconfirmed()
            return
        if self._queue.crowded and self._keeps_up():
            await asyncio.sleep(PACE)
        until = time.monotonic() + self._bounds.block
        while self._queue.full and time.monotonic() < until:  # noqa: ASYNC110 - others fill the queue again
            await asyncio.sleep(0.01)

    def not_awaited(self) -> None:
        """Warns that `durability="full"` cannot hold for a run that ends on an event loop without `async with`."""
        if self._full and not self._may_wait():
            self._say(
                "not awaited",
                'durability="full" cannot wait in `with rg.run(...)` on an event loop; use `async with rg.run(...)`',
            )

    def start(self) -> None:
        """Starts the writer, if it is not running; raises Closed where Python starts no more threads."""
        with self._lock:
            if self._thread is not None or self.closed:
                return
            thread = threading.Thread(
                target=self._write_all, args=(self._queue,), name="ragguard-writer", daemon=True
            )
            try:
                thread.start()
            except RuntimeError as error:
                raise Closed(_NO_THREADS) from error
            self._thread = thread
        if self._listener is not None:
            self._listener.started()

    def do(self, work: Callable[[], T], *, wake: bool = True) -> Future[T]:
        """Calls a function on the writer's thread, after everything that was put in before; returns the future result.

        With `wake` the writer wakes at once; without it the function waits for the batch of the events before it.
        """
        done: Future[T] = Future()
        if self.closed:
            done.set_exception(Closed("the service was closed; make a new RagGuard"))
            return done
        try:
            self.start()
        except Closed as error:
            done.set_exception(error)
            return done
        # Woken before the job is queued: a wake after the writer has taken the job would hurry the events behind it.
        if wake:
            self._patient.try_now = True
            self._queue.wake()
        job: WriterJob[T] = WriterJob(work, done)
        self._queue.append(job)
        return done

    def is_current(self) -> bool:
        """True on the writer's own thread, where waiting for the writer would never end."""
        return threading.current_thread() is self._thread

    def close(self, timeout: float, last: Callable[[], object] = lambda: None) -> bool:
        """Writes what is queued, calls `last` and ends the thread; returns False where that took too long."""
        with self._lock:
            self.closed = self._patient.ending = self._patient.try_now = True
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
            self._queue.wake()
            self._queue.append(None)
        thread.join(timeout)
        return not thread.is_alive()

    def _may_wait(self) -> bool:
        """Returns False on an event loop, which a wait would block, and on the writer's own thread."""
        return asyncio._get_running_loop() is None and not self.is_current()

    def _keeps_up(self) -> bool:
        return time.monotonic() - self._worked < STUCK

    def _offer(self, event: Event | WholeRun) -> None:
        """Puts an event into a queue in which many wait already."""
        size, block = size_of(event), self._bounds.block
        if self._queue.offer(event, size):
            if self._queue.crowded and self._keeps_up() and self._may_wait():
                self._queue.wait_below_half(PACE)
            return
        patience = min(block, self._worked + max(block, STUCK) - time.monotonic())
        if patience > 0 and self._may_wait() and self._queue.offer_within(event, size, patience):
            return
        dropped = self._queue.force(event, size)
        self._lose(
            dropped,
            f"more waits for the disk than {self._bounds.items:,} events or {self._bounds.bytes:,} bytes; look at the "
            "disk, raise queue_bytes= or queue_size=, or slow threads down with on_overflow='block(SECONDS)'",
        )

    def _put_and_wait(self, event: Event | WholeRun) -> None:
        awaited = AwaitedEvent(event, threading.Event())
        self._queue.wake()
        self._queue.append(awaited)
        if not awaited.written.wait(DISK_WAIT) or not awaited.on_disk:
            self._unconfirmed()

    def _unconfirmed(self) -> None:
        self._store.count("events_unconfirmed")
        self._say(
            "unconfirmed",
            f"a step was not on the disk after {DISK_WAIT:g} s, or the disk takes nothing now; "
            'durability="full" does not hold for what is captured now',
        )

    def _lose(self, events: Sequence[QueueItem], why: str) -> None:
        if number := self._lost.note(events):
            self._store.count("events_lost", number)
            self._say("lost", f"what is captured now is lost: {why}")

    def _say(self, what: str, message: str) -> None:
        """Logs an error message, each kind at most once a minute."""
        now = time.monotonic()
        if now - self._said.get(what, -_SAY_EVERY) >= _SAY_EVERY:
            self._said[what] = now
            _log.error("%s (counted, and said again in a minute where it goes on)", message)

    def _write_all(self, queue: EventQueue) -> None:
        """Writes until the intake is closed. After an error that gets here (an exception raised into the thread from
        outside, no memory left) the batch is tried once more, and is lost when that fails, too."""
        failed: list[QueueItem] = []
        while True:
            try:
                self._serve(queue)
                break
            except BaseException as error:  # noqa: BLE001 - the writer goes on whatever happens
                self._faults.note("the writer was started again; it", error)
                self._store.count("writer_restarts")
                if failed is self._batch:
                    self._give_up(error)
                failed = self._batch
                time.sleep(LINGER)  # an error that comes back at once must not keep the processor busy
        self._guarded(self._last)

    def _serve(self, queue: EventQueue) -> None:
        next_tick = awake_until = time.monotonic()
        while True:
            if (now := time.monotonic()) >= next_tick:
                next_tick = now + self._tick_seconds
                if self._listener is not None:
                    self._guarded(self._listener.tick)
            if not self._batch:
                rested = now < awake_until and not queue and not queue.rest(LINGER)
                if not queue:
                    if not rested:
                        queue.sleep(next_tick - time.monotonic())
                    continue
                first = queue.first()
                if first is not None and not isinstance(first, (WriterJob, AwaitedEvent)):
                    awake_until = time.monotonic() + AWAKE
                    if not rested and not self._hurried and len(queue) < UNMEASURED:
                        queue.rest(LINGER)
                self._hurried = False
                self._batch = queue.take(BATCH, BATCH_BYTES)
                # After `take`: a wake that stays behind its job would have the next events written one by one.
                queue.forget_wakes()
            self._worked = time.monotonic()
            running = None not in self._batch
            self._write(self._batch)
            self._batch = []  # frees thousands of objects here, and not while the next hook runs
            self._worked = time.monotonic()
            if not running:
                return

    def _write(self, batch: Sequence[QueueItem]) -> None:
        items: list[Event | WholeRun] = []
        waiting: list[AwaitedEvent] = []
        for item in batch:
            if isinstance(item, WriterJob):
                self._record(items, waiting)
                items, waiting = [], []
                if not item.done.done():  # a batch may be repeated
                    item.run()
            elif isinstance(item, AwaitedEvent):
                items.append(item.event)
                waiting.append(item)
            elif item is not None:
                items.append(item)
        self._record(items, waiting)

    def _record(self, items: Sequence[Event | WholeRun], waiting: Sequence[AwaitedEvent]) -> None:
        if not items:
            return
        why = "the disk took nothing until the end"
        try:
            # Each event is built, made into rows and let go before the next one is built: the garbage collector would
            # visit all passages of a batch again and again.
            changed = self._patient.write(self._store.prepare(self._prepared(items)), waiting)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the writer goes on
            self._faults.note("the store", error)
            changed, why = None, "the store failed"
        for awaited in waiting:
            awaited.on_disk = changed is not None
            awaited.written.set()
        if changed is None:
            self._lose(items, why)
            return
        kinds = Counter(map(type, items))
        whole = sum(isinstance(item, WholeRun) for item in items)
        self._store.count("steps_captured", kinds[StepEnded] + whole)
        if (kinds[RunEnded] or whole) and self._listener is not None:
            self._guarded(self._listener.runs_due)
        if changed and (listener := self._listener) is not None:
            self._guarded(lambda: listener.steps_ended(changed))

    def _prepared(self, items: Iterable[Event | WholeRun]) -> Iterator[Event]:
        """Yields the events as they may be written; one that cannot be read or redacted is left out and counted."""
        for item in items:
            try:
                event = item.as_event() if isinstance(item, WholeRun) else item
                event = storable_event(self._lost.marked(event))
                if self._redactor is not None:
                    event = self._redactor.event(event)
            except BaseException as error:  # noqa: BLE001 - code of the user's may raise anything
                if self._redactor is None:
                    self._faults.note("an event", error)
                else:
                    self._faults.note_without_text("an event", error)
                self._store.count("events_refused")
                continue
            yield event

    def _give_up(self, error: BaseException) -> None:
        """Gives up the batch at hand; callers that wait for a part of it get the error."""
        batch, self._batch = self._batch, []
        for item in batch:
            if isinstance(item, WriterJob) and not item.done.done():
                item.done.set_exception(error)
            elif isinstance(item, AwaitedEvent):
                item.written.set()
        events = [item.event if isinstance(item, AwaitedEvent) else item for item in batch]
        self._lose([item for item in events if item is not None and not isinstance(item, WriterJob)], "twice")
        if None in batch:
            self._queue.append(None)

    def _guarded(self, work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - the writer goes on whatever happens
            self._faults.note("the writer", error)

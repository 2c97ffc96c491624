"""A thread pool whose threads never delay the end of the process, and pauses in long work for other threads.

The standard pool refuses work once `main()` has returned, though other threads of the application may still serve; and
the process waits at its end for every job in that pool, even for one that never ends.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

IDLE_S = 10.0
"""Seconds after which a thread without work ends, so that a forgotten pool leaves no threads behind."""

WORK, REST = 0.001, 0.00005
"""Seconds of work between two rests, and of a rest. Without one, Python makes another thread wait for five
milliseconds, which an event loop notices."""


class DaemonThreads(ThreadPoolExecutor):
    """Runs work in at most `most` daemon threads, started as they are needed. A job that hangs ends with the process.

    A pool belongs to one process: what lives across a fork makes its pool by `PerProcess`. The class inherits from
    ThreadPoolExecutor only since event loops accept no other default executor.
    """

    def __init__(self, most: int, name: str) -> None:
        super().__init__(most, thread_name_prefix=name)
        self._most, self._name = most, name
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._running: list[threading.Thread] = []
        self._busy = 0
        """Jobs that were submitted and have not ended."""
        self._closed = False

    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queues a function that one of the threads calls."""
        done: Future[T] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError(f"the threads {self._name} were shut down")
            self._busy += 1
            alone = len(self._running) < min(self._busy, self._most) and not self._grow()
            job = partial(self._do, done, partial(function, *args, **kwargs))
            if not alone:
                self._jobs.put(job)
        if alone:
            job()
        return done

    def _grow(self) -> bool:
        """Starts one more thread. Returns False where none can be started and the pool has none, as Python 3.12
        starts no thread while the process ends; the caller then does the job itself."""
        thread = threading.Thread(target=self._serve, name=f"{self._name}_{len(self._running)}", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return bool(self._running)
        self._running.append(thread)
        return True

    def _do(self, done: Future[Any], work: Callable[[], Any]) -> None:
        try:
            if done.set_running_or_notify_cancel():
                try:
                    done.set_result(work())
                except BaseException as error:  # noqa: BLE001 - whoever waits for the future gets it
                    done.set_exception(_awaitable(error))
        finally:
            with self._lock:
                self._busy -= 1

    def _serve(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=IDLE_S)
            except Empty:
                with self._lock:
                    if self._jobs.empty():
                        self._running.remove(threading.current_thread())
                        return
                continue
            if job is None:
                return
            job()
            del job  # an idle thread must not keep the last job's objects alive

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accepts no more jobs and ends the threads after the jobs in the queue; jobs are never cancelled."""
        with self._lock:
            self._closed = True
            threads = list(self._running)
            for _ in threads:
                self._jobs.put(None)
        if wait:
            for thread in threads:
                thread.join()


def _awaitable(error: BaseException) -> BaseException:
    """Returns a RuntimeError in place of a StopIteration, as a coroutine raises it: asyncio refuses a StopIteration,
    and whoever awaits the job would wait for ever."""
    if not isinstance(error, StopIteration):
        return error
    instead = RuntimeError("the function raised StopIteration")
    instead.__cause__ = error
    return instead


async def in_daemon_thread(work: Callable[[], T]) -> T:
    """Returns the result of `work`, from a thread of its own; a cancelled wait leaves the thread running."""
    thread = DaemonThreads(1, "ragguard-blocking")
    try:
        return await asyncio.wrap_future(thread.submit(work))
    finally:
        thread.shutdown(wait=False)


class TimeSlice:
    """Measures the time since the last rest; long work calls `rest_if_used` after each piece, however small."""

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since = time.perf_counter()

    def rest_if_used(self) -> None:
        """Sleeps for a moment where the time slice is used up, and begins the next slice."""
        if time.perf_counter() - self._since > WORK:
            time.sleep(REST)
            self._since = time.perf_counter()

"""Daemon threads: a pool whose threads never delay the end of the process, an event loop on a thread of its own for
work that must not run on the caller's, and pauses in long work for other threads.

The standard pool refuses work once `main()` has returned, though other threads of the application may still serve; and
the process waits at its end for every job in that pool, even for one that never ends.

A loop's thread starts with the first work, and anew in a forked child. Work may be handed over from synchronous code
and from any number of event loops, also from one that is closed while it waits. A caller's own loop must be asyncio's.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

from ragguard.errors import InvalidInput
from ragguard.runtime.faults import NOTICES, describe
from ragguard.runtime.per_process import PerProcess

P = ParamSpec("P")
T = TypeVar("T")

IDLE_S = 10.0
"""Seconds after which a thread without work ends, so that a forgotten pool leaves no threads behind."""

WORK, REST = 0.001, 0.00005
"""Seconds of work between two rests, and of a rest. Without one, Python makes another thread wait for five
milliseconds, which an event loop notices."""


def check_threads() -> None:
    """Raises InvalidInput if gevent or eventlet has put its own in place of Python's threads: an event loop on one of
    those would hold up all of the process, for ever."""
    for name, module, check in (
        ("gevent", "gevent.monkey", "is_module_patched"),
        ("eventlet", "eventlet.patcher", "is_monkey_patched"),
    ):
        patched = getattr(sys.modules.get(module), check, None)
        if patched is not None and (patched("threading") or patched("thread")):
            raise InvalidInput(
                "threading", f"patched by {name}", "Python's own threads: ragguard cannot work with patched ones. Run "
                "the application with threads or asyncio, or patch with thread=False",
            )  # fmt: skip


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
        job = partial(self._do, done, partial(function, *args, **kwargs))
        with self._lock:
            if self._closed:
                raise RuntimeError(f"the threads {self._name} were shut down")
            self._busy += 1
            if served := len(self._running) >= min(self._busy, self._most) or self._grow():
                self._jobs.put(job)
        if not served:
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
                done.set_result(work())
        except StopIteration as error:  # asyncio refuses it, and whoever awaits the job would wait for ever
            instead = RuntimeError("the function raised StopIteration")
            instead.__cause__ = error
            done.set_exception(instead)
        except BaseException as error:  # noqa: BLE001 - whoever waits for the future gets it
            done.set_exception(error)
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


async def in_daemon_thread(work: Callable[[], T]) -> T:
    """Returns the result of `work`, from a thread of its own; a cancelled wait leaves the thread running."""
    thread = DaemonThreads(1, "ragguard-blocking")
    done = thread.submit(work)
    thread.shutdown(wait=False)
    return await asyncio.wrap_future(done)


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


class LoopSignal:
    """A signal that any thread sets and one task on an event loop waits for."""

    def __init__(self) -> None:
        self._bound: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    def bind(self) -> None:
        """Makes the running loop the one that is woken; what was set before is forgotten."""
        self._bound = asyncio.get_running_loop(), asyncio.Event()

    def set(self) -> None:
        """Wakes the task; before `bind` there is none to wake."""
        if self._bound is not None:
            loop, event = self._bound
            loop.call_soon_threadsafe(event.set)

    def clear(self) -> None:
        """Forgets what was set; called on the loop."""
        if self._bound is not None:
            self._bound[1].clear()

    async def wait(self, seconds: float) -> None:
        """Waits until the signal is set, at most for some seconds."""
        if self._bound is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._bound[1].wait()


_HELPERS = min(32, (os.cpu_count() or 1) + 4)
"""The number of threads for blocking calls (`asyncio.to_thread`, name lookups); as many as asyncio's own pool has."""
_END_SECONDS = 1.0
"""The seconds that the tasks of a stopped loop may take to end."""


class BackgroundLoop:
    """A daemon thread with an event loop. `stop()` on the loop ends the thread; further work starts another one."""

    def __init__(self, name: str) -> None:
        self.name = name
        # A child keeps the loop of its parent: closing it there would close the parent's loop as well.
        self._here = PerProcess(_LoopThread)

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Starts the coroutine; cancelling the future cancels the coroutine."""
        here = self._here.get()
        with here.lock:  # held so that no work is given to a loop that has stopped
            if here.loop is None or here.thread is None or not here.thread.is_alive():
                here.loop = asyncio.new_event_loop()  # noqa: TID251 - the one place
                here.loop.set_default_executor(DaemonThreads(_HELPERS, f"{self.name}-helper"))
                here.thread = threading.Thread(
                    target=self._serve, args=(here, here.loop), name=self.name, daemon=True
                )
                here.thread.start()
            return asyncio.run_coroutine_threadsafe(work, here.loop)

    def run(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Returns the coroutine's result; the calling thread waits for it. After `timeout` seconds, where one is given,
        the coroutine is cancelled and TimeoutError raised."""
        if self.is_current():
            work.close()
            allowed = "one from another thread: on its own it would wait for itself; await the async form"
            raise InvalidInput("call", self.name, allowed)
        future = self.submit(work)
        try:
            return future.result(timeout)
        finally:
            future.cancel()

    async def within(self, work: Coroutine[Any, Any, T]) -> T:
        """Returns the coroutine's result, awaited on another loop; cancelling the caller cancels the work."""
        if asyncio.get_running_loop() is self._here.get().loop:
            return await work
        future = self.submit(work)
        try:
            return await asyncio.wrap_future(future)
        finally:
            future.cancel()
            del future  # it holds its error, and that this frame

    def stop(self) -> None:
        """Ends the thread of this process once the work under way gives way; further work starts another one."""
        loop = self._here.get().loop
        if loop is not None:
            with suppress(RuntimeError):  # stopped before
                loop.call_soon_threadsafe(loop.stop)

    @property
    def started(self) -> bool:
        """True once anything was submitted in this process."""
        return self._here.get().loop is not None

    def is_current(self) -> bool:
        """True on the loop's own thread, which would wait for itself for ever."""
        return threading.current_thread() is self._here.get().thread

    def _serve(self, here: _LoopThread, loop: asyncio.AbstractEventLoop) -> None:
        """Runs the loop. Runs it again where work has ended it with a SystemExit or KeyboardInterrupt, since other
        work waits for it."""
        while True:
            try:
                loop.run_forever()
                with here.lock:  # work has stopped the loop; the next call starts another one
                    if here.loop is loop:
                        here.thread = None
                _end_tasks(loop)
                loop.close()
                return
            # Raised by submitted work, since no signal reaches this thread.
            except (SystemExit, KeyboardInterrupt) as error:
                NOTICES.warn(
                    f"{self.name} ended by {type(error).__name__}",
                    f"Work on the thread {self.name} raised {describe(error)}; the thread goes on without it.",
                )


@dataclass(slots=True)
class _LoopThread:
    """The thread of one process, and its event loop; None before the first work."""

    loop: asyncio.AbstractEventLoop | None = None
    thread: threading.Thread | None = None
    lock: threading.RLock = field(default_factory=threading.RLock)
    """Reentrant: a finalizer may submit work while the same thread does."""


def _end_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Cancels what still runs on a loop that has stopped, so that its callers do not wait for ever."""
    loop.run_until_complete(asyncio.sleep(0))  # submitted work becomes a task, to be cancelled
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks, timeout=_END_SECONDS))

"""A thread that loads a model and computes with it, for callers on any event loop.

A model takes one batch at a time, so more threads would only wait for each other. A job for which no caller waits any
more is not begun, and may stop itself between two batches.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from typing import Generic, TypeAlias, TypeVar

from ragguard.errors import Closed, EngineUnreachable
from ragguard.runtime.deadline import until
from ragguard.runtime.per_process import PerProcess
from ragguard.runtime.threads import DaemonThreads

M = TypeVar("M")
T = TypeVar("T")

StillWanted: TypeAlias = Callable[[], None]
"""A function that a job calls between batches; it raises where the caller is gone or the deadline has passed."""

JOB_S = 1800.0
"""Seconds after which a job that does not end, with its wait and the model's loading, is waited for no longer."""


class _UnwantedError(Exception):
    """Ends a job whose result nobody waits for."""


class _Thread(Generic[M]):
    """The thread in which a process computes, and the model once it is loaded there."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.loaded: list[M] = []


class Worker(Generic[M]):
    """The thread of one model, or of several models that share a thread. A forked child loads the model anew.

    Args:
        what: The name of the model in errors.
        load: Returns the model; called in the thread, before the first job.
        shared: The thread that several models share. None: a thread of its own.
    """

    def __init__(
        self, what: str, load: Callable[[], M], shared: PerProcess[DaemonThreads] | None = None
    ) -> None:
        self._what, self._load, self._shared = what, load, shared
        self._thread = PerProcess[_Thread[M]](
            lambda: _Thread(
                ThreadPoolExecutor(1, thread_name_prefix="ragguard-model") if shared is None else shared.get()
            )
        )
        self._closed = False

    async def run(self, job: Callable[[M, StillWanted], T], deadline: float | None = None) -> T:
        """Returns what `job` returns, given the model; raises EngineTimeout at the deadline, or after `JOB_S`."""
        if self._closed:
            raise Closed(f"{self._what} was closed: connect again")
        thread, unwanted = self._thread.get(), threading.Event()

        def still_wanted() -> None:
            if unwanted.is_set():
                raise _UnwantedError

        def run() -> T:
            still_wanted()
            if not thread.loaded:
                thread.loaded.append(self._load())
            return job(thread.loaded[0], still_wanted)

        try:
            future = thread.executor.submit(run)
        except RuntimeError as error:  # main() has returned, while other threads still serve
            raise EngineUnreachable(f"{self._what} cannot compute any more: the process is ending") from error
        done = asyncio.wrap_future(future)
        try:
            async with until(time.monotonic() + JOB_S if deadline is None else deadline, self._what):
                return await done
        finally:
            unwanted.set()
            done.cancel()  # or asyncio would report the error of a job that nobody waits for

    async def close(self) -> None:
        """Gives the model's memory back after the jobs under way, and ends the thread unless it is shared."""
        thread, self._closed = self._thread.made, True
        if thread is None:
            return
        if self._shared is not None:
            thread.loaded.clear()
            return
        with suppress(
            RuntimeError
        ):  # closed before, or the process is ending and the model's memory goes with it
            await asyncio.wrap_future(thread.executor.submit(thread.loaded.clear))
        thread.executor.shutdown(wait=False)

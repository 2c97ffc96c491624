"""A thread that computes, for callers on any event loop.

A model takes one batch at a time, so more threads would only wait for each other. A job for which no caller waits any
more is not begun, and may stop itself between two batches.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeAlias, TypeVar

from ragguard.errors import Closed, EngineUnreachable
from ragguard.runtime.deadline import until

T = TypeVar("T")

StillWanted: TypeAlias = Callable[[], None]
"""A function that a job calls between batches; it raises where the caller is gone or the deadline has passed."""


class _UnwantedError(Exception):
    """Ends a job whose result nobody waits for."""


class Worker:
    """The thread of one model, or of several models that share a thread. `what` names a job in errors."""

    def __init__(self, what: str, shared: ThreadPoolExecutor | None = None) -> None:
        self._what = what
        self._owns = shared is None
        self._thread = shared or ThreadPoolExecutor(1, thread_name_prefix="ragguard-model")
        self._closed = False

    async def run(self, job: Callable[[StillWanted], T], deadline: float | None = None) -> T:
        """Returns what `job` returns; raises EngineTimeout at the deadline."""
        if self._closed:
            raise Closed(f"{self._what} was closed: connect again")
        unwanted = threading.Event()

        def still_wanted() -> None:
            if unwanted.is_set():
                raise _UnwantedError

        def run() -> T:
            still_wanted()
            return job(still_wanted)

        try:
            future = self._thread.submit(run)
        except RuntimeError as error:  # main() has returned, while other threads still serve
            raise EngineUnreachable(f"{self._what} cannot compute any more: the process is ending") from error
        try:
            async with until(deadline, self._what):
                return await asyncio.wrap_future(future)
        finally:
            unwanted.set()

    async def close(self, last: Callable[[], None]) -> None:
        """Runs one last job, and ends the thread after the jobs under way unless the thread is shared."""
        if self._closed:
            return
        self._closed = True
        if not self._owns:
            last()
            return
        with suppress(RuntimeError):  # the process is ending, and the model's memory goes with it
            await asyncio.wrap_future(self._thread.submit(last))
        self._thread.shutdown(wait=False)

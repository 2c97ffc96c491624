"""A thread that loads a model and computes with it, for callers on any event loop.

A model takes one batch at a time, so more threads would only wait for each other. A job for which no caller waits any
more is not begun, and may stop itself between two batches.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Generic, TypeAlias, TypeVar

from ragguard.errors import Closed, EngineUnreachable
from ragguard.runtime.deadline import until

M = TypeVar("M")
T = TypeVar("T")

StillWanted: TypeAlias = Callable[[], None]
"""A function that a job calls between batches; it raises where the caller is gone or the deadline has passed."""


class _UnwantedError(Exception):
    """Ends a job whose result nobody waits for."""


class Worker(Generic[M]):
    """The thread of one model, or of several models that share a thread.

    Args:
        what: The name of the model in errors.
        load: Returns the model; called in the thread, before the first job.
        shared: A thread that several models share.
    """

    def __init__(self, what: str, load: Callable[[], M], shared: ThreadPoolExecutor | None = None) -> None:
        self._what, self._load = what, load
        self._owns = shared is None
        self._thread = shared or ThreadPoolExecutor(1, thread_name_prefix="ragguard-model")
        self._forget()
        self._closed = False

    async def run(self, job: Callable[[M, StillWanted], T], deadline: float | None = None) -> T:
        """Returns what `job` returns, given the model; raises EngineTimeout at the deadline."""
        if self._closed:
            raise Closed(f"{self._what} was closed: connect again")
        unwanted = threading.Event()

        def still_wanted() -> None:
            if unwanted.is_set():
                raise _UnwantedError

        def run() -> T:
            still_wanted()
            loaded = self._loaded
            if not loaded:
                loaded.append(self._load())
            return job(loaded[0], still_wanted)

        try:
            future = self._thread.submit(run)
        except RuntimeError as error:  # main() has returned, while other threads still serve
            raise EngineUnreachable(f"{self._what} cannot compute any more: the process is ending") from error
        try:
            async with until(deadline, self._what):
                return await asyncio.wrap_future(future)
        finally:
            unwanted.set()

    async def close(self) -> None:
        """Gives the model's memory back after the jobs under way, and ends the thread unless it is shared."""
        if self._closed:
            return
        self._closed = True
        if not self._owns:
            self._forget()
            return
        with suppress(RuntimeError):  # the process is ending, and the model's memory goes with it
            await asyncio.wrap_future(self._thread.submit(self._forget))
        self._thread.shutdown(wait=False)

    def _forget(self) -> None:
        self._loaded: list[M] = []

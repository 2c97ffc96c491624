"""A value that is found out once, when it is first needed, for all who need it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from ragguard.runtime.deadline import until

T = TypeVar("T")


class Lazy(Generic[T]):
    """Callers of one event loop share one attempt; a failure is not remembered, nor does one caller's
    cancellation or deadline hurt another. Two loops may both find it out: the same thing, twice."""

    def __init__(self, find: Callable[[], Awaitable[T]]) -> None:
        self._find = find
        self._found: list[T] = []
        self._attempts: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[T]] = WeakKeyDictionary()

    async def get(self, deadline: float | None = None) -> T:
        """The value; found out now if it is not known yet."""
        if self._found:
            return self._found[0]
        loop = asyncio.get_running_loop()
        attempt = self._attempts.get(loop)
        if attempt is None or attempt.done():
            attempt = self._attempts[loop] = loop.create_task(self._attempt())
            # Somebody may have gone away; an attempt that failed for nobody is no news.
            attempt.add_done_callback(lambda task: task.cancelled() or task.exception())
        async with until(deadline, "finding out what the engine is"):
            return await asyncio.shield(attempt)

    def forget(self) -> None:
        """Finds it out anew next time."""
        self._found.clear()

    async def _attempt(self) -> T:
        value = await self._find()
        self._found[:] = [value]
        return value

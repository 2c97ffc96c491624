"""A value that is computed once, when it is first needed, and shared by all callers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from ragguard.runtime.deadline import until

T = TypeVar("T")


class Lazy(Generic[T]):
    """A value that a coroutine function finds when it is first needed.

    Callers on one event loop share one attempt. A failure is not remembered, and one caller's cancellation or
    deadline does not affect the others. Two event loops may each make an attempt.
    """

    def __init__(self, find: Callable[[], Awaitable[T]]) -> None:
        self._find = find
        self._found: list[T] = []
        self._attempts: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[T]] = WeakKeyDictionary()

    async def get(self, deadline: float | None = None) -> T:
        """Returns the value; finds it now if it is not known yet."""
        if self._found:
            return self._found[0]
        loop = asyncio.get_running_loop()
        attempt = self._attempts.get(loop)
        if attempt is None or attempt.done():
            attempt = self._attempts[loop] = loop.create_task(self._attempt())
            # All callers may have been cancelled; the error of their attempt then interests nobody.
            attempt.add_done_callback(lambda task: task.cancelled() or task.exception())
        async with until(deadline, "finding out what the engine is"):
            return await asyncio.shield(attempt)

    def forget(self) -> None:
        """Forgets the value, so that the next call finds it anew."""
        self._found.clear()

    async def _attempt(self) -> T:
        value = await self._find()
        self._found[:] = [value]
        return value

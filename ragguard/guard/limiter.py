"""Limits how many passages are judged at once on one event loop.

Hundreds of guards may be called at once on one loop. One at a time writes prompts, so that the loop stays free for
the timers of the budgets. No more passages are judged at once than an engine takes: waiting callers hold no prompts,
so that they cost no memory and no garbage collection, whose pauses would make all guards late.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakKeyDictionary


class Limiter:
    """Admits at most `size` at once on each event loop, first come, first served. A caller that needs more than
    `size` is admitted alone."""

    def __init__(self, size: int) -> None:
        self._size = size
        # Not asyncio's semaphores: they hold their event loop for ever.
        self._queues: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopQueue] = WeakKeyDictionary()

    @asynccontextmanager
    async def admitted(self, many: int) -> AsyncIterator[None]:
        """Waits until `many` are admitted, and holds their slots: `async with limiter.admitted(len(passages)): …`"""
        queue = self._queues.setdefault(asyncio.get_running_loop(), _LoopQueue(self._size))
        need = min(many, self._size)
        await queue.enter(need)
        try:
            yield
        finally:
            queue.leave(need)


class _LoopQueue:
    """The callers that wait on one event loop, first come, first served."""

    def __init__(self, free: int) -> None:
        self._free = free
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def enter(self, need: int) -> None:
        """Takes `need` slots, at once or when the callers before have left."""
        self._admit()
        if not self._waiting and need <= self._free:
            self._free -= need
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((need, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._admit()
            else:  # admitted and cancelled in the same turn of the loop
                self.leave(need)
            raise

    def leave(self, need: int) -> None:
        """Gives `need` slots back."""
        self._free += need
        self._admit()

    def _admit(self) -> None:
        while self._waiting:
            need, turn = self._waiting[0]
            if not turn.cancelled():
                if need > self._free:
                    return
                self._free -= need
                turn.set_result(None)
            self._waiting.popleft()

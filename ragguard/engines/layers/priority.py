"""Priority: a bounded number of calls at a time; of those that wait, the most urgent goes first.

So a guard inside a user's request overtakes the background scoring that waits. A call in flight is never
interrupted; the number is passed on, for a server that can order by it as well.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import threading
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager

from ragguard.engines.base import Engine
from ragguard.engines.deadline import until
from ragguard.engines.requests.base import R, Request
from ragguard.engines.requests.verbs import Layer, put
from ragguard.errors import InvalidInput


class Priority(Layer):
    """Limits how many calls an engine gets at once; the lowest `priority` number goes first, then first come, first
    served.

    Args:
        engine: The engine that the layer wraps.
        concurrency: How many calls may be in flight at once, 1 or more.
    """

    def __init__(self, engine: Engine, concurrency: int = 8) -> None:
        if concurrency < 1:
            raise InvalidInput("concurrency", concurrency, "1 or more")
        super().__init__(engine)
        self._free = concurrency
        self._lock = threading.Lock()
        self._order = itertools.count()
        self._queue: list[tuple[int, int, Future[None]]] = []

    async def send(self, request: Request[R]) -> R:
        """Sends the request on when its turn has come."""
        async with self._slot(request.priority, request.deadline):
            return await put(self._engine, request)

    @asynccontextmanager
    async def _slot(self, priority: int, deadline: float | None) -> AsyncIterator[None]:
        turn: Future[None] = Future()
        # From here on it cannot be cancelled from outside: who gives a slot away knows that it was taken.
        turn.set_running_or_notify_cancel()
        with self._lock:
            if self._free:
                self._free -= 1
                turn.set_result(None)
            else:
                heapq.heappush(self._queue, (priority, next(self._order), turn))
        try:
            if not turn.done():
                async with until(deadline, "a call that waited for its turn"):
                    await asyncio.wrap_future(turn)
            yield
        finally:
            self._give_back(turn)

    def _give_back(self, turn: Future[None]) -> None:
        """Ends a turn: its slot goes to the next in the queue. A turn that never came leaves the queue."""
        with self._lock:
            if not turn.done():
                self._queue = [waiting for waiting in self._queue if waiting[2] is not turn]
                heapq.heapify(self._queue)
            elif self._queue:
                heapq.heappop(self._queue)[2].set_result(None)
            else:
                self._free += 1

"""Priority: a bounded number of calls at a time; of those that wait, the most urgent goes first.

So a guard inside a user's request overtakes the background scoring that waits. What is under way
is never interrupted; the number is passed on, for a server that can order by it as well.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import threading
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager

from ragguard.engines.base import Engine, EngineInfo, LabelMode, LabelProbs, PromptLike, Samples
from ragguard.engines.deadline import until
from ragguard.errors import InvalidInput


class Priority:
    """At most `concurrency` calls at once, lowest `priority` number first, then first come, first served."""

    def __init__(self, engine: Engine, concurrency: int = 8) -> None:
        if concurrency < 1:
            raise InvalidInput("concurrency", concurrency, "1 or more")
        self._engine = engine
        self._free = concurrency
        self._lock = threading.Lock()
        self._order = itertools.count()
        self._queue: list[tuple[int, int, Future[None]]] = []

    async def sample(
        self,
        prompts: Sequence[PromptLike],
        n: int = 10,
        max_tokens: int = 64,
        temperature: float = 1.0,
        seed: int | None = None,
        *,
        deadline: float | None = None,
        priority: int = 0,
    ) -> Samples:
        """`n` answers to each prompt."""
        async with self._slot(priority, deadline):
            return await self._engine.sample(
                prompts, n, max_tokens, temperature, seed, deadline=deadline, priority=priority
            )

    async def label_probs(
        self,
        prompts: Sequence[PromptLike],
        labels: Sequence[str],
        mode: LabelMode | None = None,
        deadline: float | None = None,
        priority: int = 0,
    ) -> LabelProbs:
        """The probability of each label as what follows each prompt."""
        async with self._slot(priority, deadline):
            return await self._engine.label_probs(prompts, labels, mode, deadline, priority)

    async def info(self) -> EngineInfo:
        """What the wrapped engine is."""
        return await self._engine.info()

    async def aclose(self) -> None:
        """Closes the wrapped engine."""
        await self._engine.aclose()

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
        """The turn ends: its slot goes to the next in the queue. One that never came leaves the queue."""
        with self._lock:
            if not turn.done():
                self._queue = [waiting for waiting in self._queue if waiting[2] is not turn]
                heapq.heapify(self._queue)
            elif self._queue:
                heapq.heappop(self._queue)[2].set_result(None)
            else:
                self._free += 1

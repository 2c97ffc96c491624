"""Priority: a bounded number of calls at a time; of those that wait, the most urgent goes first.

So a guard inside a user's request overtakes the background scoring that waits. A call in flight is never
interrupted; the number is passed on, for a server that can order by it as well.
"""

from __future__ import annotations

from ragguard.engines.base import Engine
from ragguard.engines.engine import Layer, send_to
from ragguard.engines.requests.request import R, Request
from ragguard.errors import InvalidInput
from ragguard.runtime.limiter import Limiter


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
        self._limiter = Limiter(concurrency)

    async def send(self, request: Request[R]) -> R:
        """Sends the request on when its turn has come."""
        async with self._limiter.admitted(priority=request.priority, deadline=request.deadline):
            return await send_to(self._engine, request)

"""Budget: refuses calls once what may be spent is spent."""

from __future__ import annotations

from ragguard.engines.account import Account
from ragguard.engines.base import Engine, EngineInfo
from ragguard.engines.engine import Layer, send_to
from ragguard.engines.requests.request import R, Request


class Budget(Layer):
    """Counts what calls spend, and refuses them once a limit is reached. What an engine does not report is counted as
    one token for each byte of the prompts.

    Args:
        engine: The engine that the layer wraps.
        account: What may be spent; several engines may share it.
    """

    def __init__(self, engine: Engine, account: Account) -> None:
        super().__init__(engine)
        self.account = account

    async def send(self, request: Request[R]) -> R:
        """Sends the request on, if no limit is reached."""
        if not request.prompts:
            return await send_to(self._engine, request)
        with self.account.calling() as call:
            reply = await send_to(self._engine, request)
            call.settle(reply.usage, sum(prompt.size for prompt in request.prompts))
            return reply

    async def info(self) -> EngineInfo:
        """Returns the description of the wrapped engine; the requests for it are counted."""
        with self.account.calling(0):
            return await self._engine.info()

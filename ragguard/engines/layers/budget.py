"""Budget: refuses what would overspend, before it is sent.

A request first reserves the most that it can cost: a token is never shorter than a byte, so the bytes of a prompt
bound its tokens whatever its language. The cost that the server reports for a reply is counted, and the rest is
released. Where the bound of all prompts is more than is left, they go out in halves, as long as the least that they can
cost is left. What an engine does not report is counted as reserved, and so is a call that was cancelled.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from ragguard.engines.account import Account, Cost
from ragguard.engines.base import Engine, EngineInfo, Prompt
from ragguard.engines.engine import Layer, send_to
from ragguard.engines.requests.request import R, Request
from ragguard.errors import (
    BudgetExceeded,
    CircuitOpen,
    EngineOverloaded,
    EngineRejected,
    EngineUnreachable,
    PromptTooLong,
)

_TEMPLATE_TOKENS, _MESSAGE_TOKENS = 64, 16
"""Upper bounds on the tokens that chat templates put around a conversation and around each of its messages."""
_FEWEST_TOKENS_PER_BYTE = 0.1
"""The least tokens per byte of usual texts."""


class Budget(Layer):
    """Refuses calls that could cost more than what is left; a batch that does not fit whole is sent in pieces.

    Args:
        engine: The engine that the layer wraps.
        account: What may be spent; several engines may share it.
    """

    def __init__(self, engine: Engine, account: Account) -> None:
        super().__init__(engine)
        self.account = account

    async def send(self, request: Request[R]) -> R:
        """Sends the request on if what it may cost is left, in halves where it has to."""
        if not request.prompts:
            return await send_to(self._engine, request)
        info = await self.info_within(request.deadline)
        most = self._most(request, info)
        refusal = self.account.refusal(most)
        if refusal is None:
            return await self._spend(request, most)
        if len(request.prompts) == 1 or self.account.refusal(self._least(request, info)):
            raise BudgetExceeded(refusal)
        began, half = time.monotonic(), len(request.prompts) // 2
        parts = (request.prompts[:half], request.prompts[half:])
        replies = [await self.send(request.about(part)) for part in parts]
        return request.gathered(replies, time.monotonic() - began)

    async def info(self) -> EngineInfo:
        """Returns the description of the wrapped engine; the requests for it are counted."""
        with self.account.reserving(Cost()):
            return await self._engine.info()

    async def _spend(self, request: Request[R], most: Cost) -> R:
        with self.account.reserving(most) as reservation:
            try:
                reply = await send_to(self._engine, request)
            except (EngineUnreachable, EngineOverloaded, EngineRejected, PromptTooLong):
                reservation.spend_rest(Cost(1))
                raise
            except (CircuitOpen, BudgetExceeded):
                raise
            except BaseException:
                # The call was cancelled or failed half-way: the server may have computed for it.
                reservation.spend_rest(Cost(1, most.prompt_tokens))
                raise
            usage = reply.usage
            if usage.prompt_tokens or usage.output_tokens:
                cost = Cost(max(1, usage.requests), usage.prompt_tokens, usage.output_tokens)
            else:
                cost = Cost(max(1, usage.requests), most.prompt_tokens, most.output_tokens)
            reservation.spend_rest(cost)
            return reply

    def _most(self, request: Request[R], info: EngineInfo) -> Cost:
        """Returns the most that the request can cost."""
        prompts = request.prompts
        tokens = _bytes(prompts) + sum(
            _TEMPLATE_TOKENS + _MESSAGE_TOKENS * len(prompt.messages) for prompt in prompts
        )
        return request.cost(info, tokens)

    def _least(self, request: Request[R], info: EngineInfo) -> Cost:
        """Returns less than the request will cost."""
        tokens = _bytes(request.prompts) * _FEWEST_TOKENS_PER_BYTE
        return Cost(request.cost(info, tokens).requests, tokens)


def _bytes(prompts: Sequence[Prompt]) -> int:
    return sum(
        len(message.content.encode("utf-8", "replace")) for prompt in prompts for message in prompt.messages
    )

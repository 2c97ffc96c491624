"""The budget around a judge of entailment: what it asks is spent from the account that the engines share."""

from __future__ import annotations

from collections.abc import Sequence

from ragguard.engines.account import Account, Cost
from ragguard.engines.base import EngineInfo
from ragguard.engines.entailment.base import Entailer, Entailments, Pair, same

_FRAME_TOKENS = 16
"""More tokens than a tokenizer puts around the two texts of a pair."""


class EntailmentBudget:
    """An entailer that refuses what would overspend, before it is sent."""

    def __init__(self, entailer: Entailer, account: Account) -> None:
        self._entailer, self._account = entailer, account

    async def entail(
        self, pairs: Sequence[Pair], *, deadline: float | None = None, priority: int = 0
    ) -> Entailments:
        """Returns one row for each pair; `BudgetExceeded` where too little is left."""
        asked = {pair for pair in pairs if not same(pair)}
        if not asked:
            return await self._entailer.entail(pairs, deadline=deadline, priority=priority)
        most = Cost(1, float(sum(_bytes(pair) + _FRAME_TOKENS for pair in asked)))
        with self._account.reserving(most) as reservation:
            reply = await self._entailer.entail(pairs, deadline=deadline, priority=priority)
            reservation.settle(Cost(1, reply.usage.prompt_tokens or most.prompt_tokens))
            return reply

    async def info(self) -> EngineInfo:
        """Tells what the entailer is; the requests that it takes to find out are counted."""
        with self._account.reserving(Cost()):
            return await self._entailer.info()

    async def aclose(self) -> None:
        """Closes the entailer."""
        await self._entailer.aclose()


def _bytes(pair: Pair) -> int:
    texts = (pair.question, pair.premise, pair.question, pair.hypothesis)
    return sum(len(text.encode("utf-8", "replace")) for text in texts)

"""`connect_entailer`: makes an entailer, given a word or an address, within the budget that engines share."""

from __future__ import annotations

from collections.abc import Sequence

from ragguard.engines.account import Account, Cost
from ragguard.engines.base import EngineInfo
from ragguard.engines.entailment.base import Entailer, Entailments, Pair, same
from ragguard.errors import InvalidInput, UnknownName
from ragguard.runtime.protocols import implements
from ragguard.secrets import without_secrets

_FRAME_TOKENS = 16
"""An upper bound on the tokens that a tokenizer puts around the two texts of a pair."""
SCHEMES = (
    "http(s)://HOST:PORT/v1[#MODEL] (vLLM's /classify), hf:MODEL_OR_FOLDER (a cross-encoder), or an Entailer"
)


def connect_entailer(entailer: str | Entailer, account: Account | None = None) -> Entailer:
    """Returns an NLI model to compare answers with. Nothing is asked or loaded before its first use.

    Args:
        entailer: The address of a vLLM server (`http://HOST:PORT/v1`, optionally with `#MODEL`), `hf:MODEL` or
            `hf:FOLDER`, or an Entailer.
        account: What it may spend, shared with engines. None: no limit.
    """
    opened = _opened(entailer)
    return opened if account is None else EntailmentBudget(opened, account)


def _opened(entailer: str | Entailer) -> Entailer:
    if not isinstance(entailer, str):
        if not implements(entailer, Entailer):
            raise InvalidInput("entailer", entailer, SCHEMES)
        return entailer
    scheme, _, rest = entailer.strip().partition(":")
    if scheme in ("http", "https"):
        from ragguard.engines.entailment.classify import ClassifyEntailer

        return ClassifyEntailer(entailer)
    if scheme == "hf" and rest:
        from ragguard.engines.entailment.cross_encoder import CrossEncoder

        return CrossEncoder(rest)
    raise UnknownName("entailer", without_secrets(entailer), SCHEMES)


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
        """Returns the description of the entailer; the requests for it are counted."""
        with self._account.reserving(Cost()):
            return await self._entailer.info()

    async def aclose(self) -> None:
        """Closes the entailer."""
        await self._entailer.aclose()


def _bytes(pair: Pair) -> int:
    texts = (pair.question, pair.premise, pair.question, pair.hypothesis)
    return sum(len(text.encode("utf-8", "replace")) for text in texts)

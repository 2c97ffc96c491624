"""`connect_entailer`: makes an entailer, given a word or an address. Around it: the budget that engines share, and a
memory of the pairs that were compared."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ragguard.engines.account import Account, Cost
from ragguard.engines.base import EngineInfo
from ragguard.engines.entailment.base import RELATIONS, Entailer, Entailments, Pair, rows_of, same
from ragguard.errors import InvalidInput, UnknownName
from ragguard.records import Usage
from ragguard.runtime.protocols import implements
from ragguard.text.secret_filter import without_secrets

_FRAME_TOKENS = 16
"""An upper bound on the tokens that a tokenizer puts around the two texts of a pair."""
KEPT = 20_000
"""The most pairs that are kept; the least recently used are removed first."""
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


class _KnownPair(NamedTuple):
    """The answer of an entailer about one pair."""

    p: tuple[float, ...]
    mass: float
    truncated: int


class CachedEntailer:
    """An entailer that asks another one about each pair once: a run that is scored step by step has none twice.

    Args:
        entailer: The entailer that compares.
        kept: How many pairs are kept, 1 or more.
    """

    def __init__(self, entailer: Entailer, kept: int = KEPT) -> None:
        self._entailer, self._most = entailer, kept
        self._lock = threading.Lock()
        self._known: OrderedDict[Pair, _KnownPair] = OrderedDict()

    async def entail(
        self, pairs: Sequence[Pair], *, deadline: float | None = None, priority: int = 0
    ) -> Entailments:
        """Returns one row for each pair; asks about those that are not known."""
        found = self._remembered(pairs)
        missing = [pair for pair in dict.fromkeys(pairs) if pair not in found]
        usage = Usage()
        if missing:
            reply = await self._entailer.entail(missing, deadline=deadline, priority=priority)
            found |= self._remember(missing, reply)
            usage = reply.usage
        answered = len(pairs) - len(missing)
        rows = [found[pair] for pair in pairs]
        return Entailments(
            np.array([row.p for row in rows], dtype=np.float64).reshape(len(pairs), len(RELATIONS)),
            usage + Usage(prompts=answered, cached=answered),
            np.array([row.mass for row in rows]),
            {index: row.truncated for index, row in enumerate(rows) if row.truncated},
        )

    async def info(self) -> EngineInfo:
        """Returns the description of the entailer."""
        return await self._entailer.info()

    async def aclose(self) -> None:
        """Closes the entailer."""
        await self._entailer.aclose()

    def _remembered(self, pairs: Sequence[Pair]) -> dict[Pair, _KnownPair]:
        found = {}
        with self._lock:
            for pair in pairs:
                if pair in self._known:
                    self._known.move_to_end(pair)
                    found[pair] = self._known[pair]
        return found

    def _remember(self, pairs: Sequence[Pair], reply: Entailments) -> dict[Pair, _KnownPair]:
        p = rows_of(reply, len(pairs))
        mass = np.ones(len(pairs)) if reply.mass is None else reply.mass
        made = {
            pair: _KnownPair(tuple(p[row].tolist()), float(mass[row]), reply.truncated.get(row, 0))
            for row, pair in enumerate(pairs)
        }
        with self._lock:
            self._known.update(made)
            while len(self._known) > self._most:
                self._known.popitem(last=False)
        return made


def _bytes(pair: Pair) -> int:
    texts = (pair.question, pair.premise, pair.question, pair.hypothesis)
    return sum(len(text.encode("utf-8", "replace")) for text in texts)

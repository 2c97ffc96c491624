"""`connect_entailer`: makes an entailer ready for many callers, given a word, an address or an Entailer."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import NamedTuple

import numpy as np

from ragguard.engines.base import EngineInfo
from ragguard.engines.entailer import RELATIONS, Entailer, Entailments, Pair, rows_of, same
from ragguard.engines.foreign import ForeignEntailer
from ragguard.engines.layers.budget import Account
from ragguard.errors import InvalidInput, UnknownName
from ragguard.records import Usage
from ragguard.runtime.per_process import PerProcess
from ragguard.text.secret_filter import without_secrets

MOST_PAIRS = 20_000
"""The most pairs that are remembered; the least recently used are removed first."""
SCHEMES = (
    "http(s)://HOST:PORT/v1[#MODEL] (vLLM's /classify), hf:MODEL_OR_FOLDER (a cross-encoder), or an Entailer"
)


def connect_entailer(entailer: str | Entailer, account: Account | None = None) -> ConnectedEntailer:
    """Returns an NLI model to compare answers with. Nothing is asked or loaded before its first use.

    Args:
        entailer: The address of a vLLM server (`http://HOST:PORT/v1`, optionally with `#MODEL`), `hf:MODEL` or
            `hf:FOLDER`, or an Entailer.
        account: What it may spend, shared with engines. None: no limit.
    """
    return ConnectedEntailer(lambda: open_entailer(entailer), account)


def open_entailer(entailer: str | Entailer) -> Entailer:
    """Returns the entailer alone."""
    if not isinstance(entailer, str):
        if not isinstance(entailer, Entailer):
            raise InvalidInput("entailer", entailer, SCHEMES)
        ours = type(entailer).__module__.partition(".")[0] == "ragguard"
        return entailer if ours else ForeignEntailer(entailer)
    scheme, _, rest = entailer.strip().partition(":")
    if scheme in ("http", "https"):
        from ragguard.engines.nli_models import ClassifyEntailer

        return ClassifyEntailer(entailer)
    if scheme == "hf" and rest:
        from ragguard.engines.nli_models import CrossEncoder

        return CrossEncoder(rest)
    raise UnknownName("entailer", without_secrets(entailer), SCHEMES)


class _KnownPair(NamedTuple):
    """The answer of an entailer about one pair."""

    p: tuple[float, ...]
    mass: float
    truncated: int


class _Opened:
    """The entailer of one process, and the pairs that it has compared."""

    def __init__(self, entailer: Entailer) -> None:
        self.entailer = entailer
        self.lock = threading.Lock()
        self.known: OrderedDict[Pair, _KnownPair] = OrderedDict()


class ConnectedEntailer:
    """An entailer around another one: asks about each pair once, and refuses to once what may be spent is spent.
    Opens the other entailer anew in each process.

    Args:
        make: Returns the entailer that compares.
        account: What may be spent. None: no limit.
        most_pairs: How many pairs are remembered, 1 or more.
    """

    def __init__(
        self, make: Callable[[], Entailer], account: Account | None = None, most_pairs: int = MOST_PAIRS
    ) -> None:
        self._opened = PerProcess(lambda: _Opened(make()))
        self._opened.get()
        self._account, self._most = account, most_pairs

    async def entail(
        self, pairs: Sequence[Pair], *, deadline: float | None = None, priority: int = 0
    ) -> Entailments:
        """Returns one row for each pair; asks about those that are not known. Raises `BudgetExceeded` where a
        limit is reached."""
        opened = self._opened.get()
        found: dict[Pair, _KnownPair] = {}
        with opened.lock:
            for pair in pairs:
                if pair in opened.known:
                    opened.known.move_to_end(pair)
                    found[pair] = opened.known[pair]
        missing = [pair for pair in dict.fromkeys(pairs) if pair not in found]
        usage = Usage()
        if missing:
            reply = await self._ask(opened.entailer, missing, deadline, priority)
            found |= self._remember(opened, missing, reply)
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
        """Returns the description of the entailer; the requests for it are counted."""
        with nullcontext() if self._account is None else self._account.calling(0):
            return await self._opened.get().entailer.info()

    async def aclose(self) -> None:
        """Closes the entailer."""
        await self._opened.get().entailer.aclose()

    async def _ask(
        self, entailer: Entailer, pairs: Sequence[Pair], deadline: float | None, priority: int
    ) -> Entailments:
        asked = [pair for pair in pairs if not same(pair)]
        if self._account is None or not asked:
            return await entailer.entail(pairs, deadline=deadline, priority=priority)
        texts = "".join(pair.question * 2 + pair.premise + pair.hypothesis for pair in asked)
        with self._account.calling() as call:
            reply = await entailer.entail(pairs, deadline=deadline, priority=priority)
            call.settle(reply.usage, len(texts.encode("utf-8", "replace")))
            return reply

    def _remember(self, opened: _Opened, pairs: Sequence[Pair], reply: Entailments) -> dict[Pair, _KnownPair]:
        p = rows_of(reply, len(pairs))
        mass = np.ones(len(pairs)) if reply.mass is None else reply.mass
        made = {
            pair: _KnownPair(tuple(p[row].tolist()), float(mass[row]), reply.truncated.get(row, 0))
            for row, pair in enumerate(pairs)
        }
        with opened.lock:
            opened.known.update(made)
            while len(opened.known) > self._most:
                opened.known.popitem(last=False)
        return made

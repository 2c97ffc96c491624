"""Keeps comparisons of answers in memory, so that a run that is scored step by step has no pair compared twice."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ragguard.engines.base import EngineInfo
from ragguard.engines.entailment.base import RELATIONS, Entailer, Entailments, Pair, rows_of
from ragguard.records import Usage

KEPT = 20_000
"""The most pairs that are kept; the least recently used are removed first."""


class _KnownPair(NamedTuple):
    """The answer of an entailer about one pair."""

    p: tuple[float, ...]
    mass: float
    truncated: int


class CachedEntailer:
    """An entailer that asks another one about each pair once.

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

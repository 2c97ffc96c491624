"""Cache: asks no question twice. Memory first, then a file that processes may share.

A kept value belongs to the model's fingerprint, one prompt and the parameters, never to a call; the requests say
what their values and keys are. Equal requests in flight are waited for, not sent again. A request whose reply is
meant to differ each time is never kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic

from ragguard.arguments import file_path, whole_number
from ragguard.engines.base import Engine, EngineInfo, Prompt
from ragguard.engines.layers.disk_cache import DiskCache
from ragguard.engines.layers.kept import Kept
from ragguard.engines.requests.base import KeptValue, Keyed, R, Request
from ragguard.engines.requests.verbs import Layer, put
from ragguard.errors import Closed
from ragguard.records import Usage
from ragguard.runtime.deadline import until


class Cache(Layer):
    """Keeps answers in memory and, with a `path`, in a file too, so that an equal question is asked once.

    An answer in memory takes about half a kilobyte: 25 MB with the default.

    Args:
        engine: The engine that the layer wraps.
        path: The file, which several processes may share. None: memory only.
        max_items: How many label probabilities are kept in memory, 1 or more; samples weigh as much as they take.
            The least recently used go first.
        max_stored: How many answers are kept in the file, 1 or more.
    """

    def __init__(
        self,
        engine: Engine,
        path: str | Path | None = None,
        max_items: int = 50_000,
        max_stored: int = 2_000_000,
    ) -> None:
        for name, value in (("max_items", max_items), ("max_stored", max_stored)):
            whole_number(name, value, 1)
        super().__init__(engine)
        self._disk = None if path is None else DiskCache(file_path("cache", path), max_stored)
        self._max_items = max_items
        self._kept: dict[type[KeptValue], Kept[Any]] = {}
        self._closed = False

    async def send(self, request: Request[R]) -> R:
        """Replies from what is kept, and asks for the rest."""
        if self._closed:
            raise Closed("this engine was closed; connect again")
        if not request.prompts or not request.repeatable:
            return await put(self._engine, request)
        async with until(
            request.deadline, "looking at the engine"
        ):  # the first call may have to look at a server
            info = await self._engine.info()
        keyed = request.keyed(info)
        lookup = _Lookup(self._engine, keyed)
        kept = self._kept.get(keyed.value)
        if kept is None:
            kept = self._kept.setdefault(keyed.value, Kept(keyed.value, self._max_items, self._disk))
        found = await kept.get(keyed.keys, lookup.ask, request.deadline, request.priority)
        return keyed.reply(found, lookup.cost(request.prompts))

    async def info(self) -> EngineInfo:
        """Tells what the wrapped engine is; with a note where the cache's file was given up."""
        info = await self._engine.info()
        if self._disk is not None and self._disk.lost:
            note = f"the answer cache {self._disk.path} was given up: answers are kept in memory only"
            info = replace(info, notes=(*info.notes, note))
        return info

    async def aclose(self) -> None:
        """Writes what is left, closes the file and the wrapped engine."""
        if not self._closed:
            self._closed = True
            if self._disk is not None:
                await self._disk.close()
        await self._engine.aclose()


class _Lookup(Generic[R]):
    """One request on its way through the cache: asks the engine for what is missing, and adds up what that cost.

    An object and no closures: hundreds of calls may wait at once, and each object in them is work for the garbage
    collector, whose pauses make guards late.
    """

    __slots__ = ("_asked", "_engine", "_keyed", "_usage")

    def __init__(self, engine: Engine, keyed: Keyed[R, Any]) -> None:
        self._engine, self._keyed = engine, keyed
        self._usage = Usage()
        self._asked: set[Prompt] = set()

    async def ask(self, missing: Sequence[bytes]) -> dict[bytes, Any]:
        """Asks the engine and returns the values of these keys."""
        requests = self._keyed.missing(missing)
        if len(requests) == 1:
            return await self._values(requests[0])
        found = await asyncio.gather(*(self._values(request) for request in requests))
        return {key: value for values in found for key, value in values.items()}

    async def _values(self, request: Request[R]) -> dict[bytes, Any]:
        reply = await put(self._engine, request)
        self._usage += reply.usage
        self._asked.update(request.prompts)
        return self._keyed.values(request, reply)

    def cost(self, prompts: Sequence[Prompt]) -> Usage:
        """Returns what the questions about these prompts cost; the other prompts came from the cache."""
        cached = len(prompts) - len(self._asked)
        return self._usage + Usage(prompts=cached, cached=cached)

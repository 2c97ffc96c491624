"""Kept values by key: from memory, else from the file, else asked once for all callers that want them.

This file knows values and keys; no prompt, no engine.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Generic

from ragguard.engines.layers.disk_cache import DiskCache
from ragguard.engines.layers.in_flight import InFlight
from ragguard.engines.requests.base import V
from ragguard.runtime.deadline import until


class Kept(Generic[V]):
    """All values of one kind: those of the file, and in memory about as much as `max_items` labels take."""

    def __init__(self, kind: type[V], max_items: int, disk: DiskCache | None) -> None:
        self._kind: type[V] = kind
        self._max_weight, self._disk = max_items, disk
        self._in_flight: InFlight[V] = InFlight()
        self._weight = 0
        self._lock = threading.Lock()
        self._memory: OrderedDict[bytes, tuple[Any, ...]] = OrderedDict()

    async def get(
        self,
        keys: Sequence[bytes],
        ask: Callable[[Sequence[bytes]], Awaitable[Mapping[bytes, V]]],
        deadline: float | None,
        priority: int,
    ) -> dict[bytes, V]:
        """Returns the values of `keys`; `ask` brings those that are not known and that no other call is asking for."""
        found = self._remembered(keys)
        found.update(await self._from_disk(_lacking(keys, found)))
        while missing := _lacking(keys, found):
            mine, others = self._in_flight.join(missing, priority)
            if mine is not None:
                try:
                    # Another call may have brought an answer since the look at the memory.
                    known = self._remembered(mine.keys)
                    unknown = _lacking(mine.keys, known)
                    answers = {**known, **(await ask(unknown) if unknown else {})}
                    self._remember(answers, store=unknown)
                except BaseException as error:
                    self._in_flight.finish(mine, {}, error)
                    # Breaks the reference cycle between the error, this frame and the leader, which holds it.
                    del mine
                    raise
                self._in_flight.finish(mine, answers, None)
                found.update(answers)
            for others_answers in others:
                async with until(deadline, "a call that waited for an equal one"):
                    brought = await asyncio.wrap_future(others_answers)
                found.update((key, brought[key]) for key in missing if key in brought)
        return found

    def _remembered(self, keys: Sequence[bytes]) -> dict[bytes, V]:
        found = {}
        with self._lock:
            for key in keys:
                packed = self._memory.get(key)
                if packed is not None:
                    self._memory.move_to_end(key)
                    found[key] = self._kind.unpacked(packed)
        return found

    async def _from_disk(self, keys: Sequence[bytes]) -> dict[bytes, V]:
        if self._disk is None or not keys:
            return {}
        found = {}
        for key, data in (await self._disk.read(keys)).items():
            try:
                found[key] = self._kind.decode(data)
            except (ValueError, TypeError):
                # A damaged row counts as missing: it is asked again and overwritten.
                continue
        self._remember(found, store=())
        return found

    def _remember(self, answers: Mapping[bytes, V], store: Sequence[bytes]) -> None:
        with self._lock:
            for key, value in answers.items():
                self._forget(key)
                self._memory[key] = value.packed
                self._weight += value.weight
            while self._weight > self._max_weight and len(self._memory) > 1:
                self._forget(next(iter(self._memory)))
        if self._disk is not None and store:
            self._disk.write({key: answers[key].encode() for key in store})

    def _forget(self, key: bytes) -> None:
        packed = self._memory.pop(key, None)
        if packed is not None:
            self._weight -= self._kind.unpacked(packed).weight


def _lacking(keys: Iterable[bytes], found: Mapping[bytes, V]) -> list[bytes]:
    return [key for key in dict.fromkeys(keys) if key not in found]

"""Kept: answers by key, from memory, else from the file, else asked once for all who want them.

Knows answers and keys; no prompt, no engine.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Self, TypeVar

from ragguard.engines.base import HowAnswered, LabelProbs, Sample
from ragguard.engines.deadline import until
from ragguard.engines.layers.flights import Flights
from ragguard.engines.layers.shelf import Shelf


@dataclass(frozen=True, slots=True)
class Labelled:
    """The probability of one label after one prompt."""

    p: float
    exact: bool
    mode: HowAnswered
    bound: bool | None
    stderr: float | None
    cut: int
    weight: ClassVar[int] = 1

    @classmethod
    def of(cls, answer: LabelProbs, row: int, column: int) -> Self:
        """One value of an engine's answer. Where bounds are known one by one, so is what is exact."""
        bound = None if answer.bound is None else bool(answer.bound[row, column])
        stderr = None if answer.stderr is None else float(answer.stderr[row, column])
        exact = not bound if bound is not None and stderr is None else answer.exact
        p, cut = float(answer.p[row, column]), answer.truncated.get(row, 0)
        return cls(p, exact, answer.mode, bound, stderr, cut)

    @property
    def packed(self) -> tuple[Any, ...]:
        """As it is kept in memory: a tuple of plain values is nothing that the garbage collector looks at."""
        return self.p, self.exact, self.mode, self.bound, self.stderr, self.cut

    def encode(self) -> bytes:
        """As JSON."""
        return json.dumps(self.packed).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """From JSON."""
        return cls(*json.loads(data))


@dataclass(frozen=True, slots=True)
class Drawn:
    """The samples drawn from one prompt."""

    samples: tuple[Sample, ...]
    cut: int

    @property
    def weight(self) -> int:
        """How many label probabilities take as much memory."""
        return 1 + sum(len(sample.logprobs) for sample in self.samples) // 8

    @property
    def packed(self) -> tuple[Any, ...]:
        """As it is kept in memory."""
        return self.samples, self.cut

    def encode(self) -> bytes:
        """As JSON."""
        rows = [(sample.text, sample.logprobs, sample.finished) for sample in self.samples]
        return json.dumps([rows, self.cut]).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """From JSON."""
        rows, cut = json.loads(data)
        return cls(tuple(Sample(text, tuple(logprobs), finished) for text, logprobs, finished in rows), cut)


_Value = TypeVar("_Value", Labelled, Drawn)


class Kept(Generic[_Value]):
    """All answers of one kind: those of the shelf, and in memory about as much as `max_items` labels take."""

    def __init__(self, kind: type[_Value], max_items: int, shelf: Shelf | None) -> None:
        self._kind: type[_Value] = kind
        self._max_weight, self._shelf = max_items, shelf
        self._flights: Flights[_Value] = Flights()
        self._weight = 0
        self._lock = threading.Lock()
        self._memory: OrderedDict[bytes, tuple[Any, ...]] = OrderedDict()

    async def get(
        self,
        keys: Sequence[bytes],
        ask: Callable[[Sequence[bytes]], Awaitable[Mapping[bytes, _Value]]],
        deadline: float | None,
        priority: int,
    ) -> dict[bytes, _Value]:
        """The answers to `keys`; `ask` gets those that nobody knows and nobody else is asking just now."""
        found = self._remembered(keys)
        found.update(await self._shelved(_lacking(keys, found)))
        while missing := _lacking(keys, found):
            mine, others = self._flights.board(missing, priority)
            if mine is not None:
                try:
                    # Someone may have landed between the look and the boarding.
                    known = self._remembered(mine.keys)
                    unknown = _lacking(mine.keys, known)
                    answers = {**known, **(await ask(unknown) if unknown else {})}
                    self._remember(answers, shelve=unknown)
                except BaseException as error:
                    self._flights.land(mine, {}, error)
                    del mine  # it knows the error, which knows this frame
                    raise
                self._flights.land(mine, answers, None)
                found.update(answers)
            for landing in others:
                async with until(deadline, "a call that waited for an equal one"):
                    landed = await asyncio.wrap_future(landing)
                found.update((key, landed[key]) for key in missing if key in landed)
        return found

    def _remembered(self, keys: Sequence[bytes]) -> dict[bytes, _Value]:
        found = {}
        with self._lock:
            for key in keys:
                packed = self._memory.get(key)
                if packed is not None:
                    self._memory.move_to_end(key)
                    found[key] = self._kind(*packed)
        return found

    async def _shelved(self, keys: Sequence[bytes]) -> dict[bytes, _Value]:
        if self._shelf is None or not keys:
            return {}
        found = {}
        for key, data in (await self._shelf.read(keys)).items():
            try:
                found[key] = self._kind.decode(data)
            except (ValueError, TypeError):
                # A damaged row is no answer: it is asked again and written over.
                continue
        self._remember(found, shelve=())
        return found

    def _remember(self, answers: Mapping[bytes, _Value], shelve: Sequence[bytes]) -> None:
        with self._lock:
            for key, value in answers.items():
                self._forget(key)
                self._memory[key] = value.packed
                self._weight += value.weight
            while self._weight > self._max_weight and len(self._memory) > 1:
                self._forget(next(iter(self._memory)))
        if self._shelf is not None and shelve:
            self._shelf.write({key: answers[key].encode() for key in shelve})

    def _forget(self, key: bytes) -> None:
        packed = self._memory.pop(key, None)
        if packed is not None:
            self._weight -= self._kind(*packed).weight


def _lacking(keys: Iterable[bytes], found: Mapping[bytes, _Value]) -> list[bytes]:
    return [key for key in dict.fromkeys(keys) if key not in found]

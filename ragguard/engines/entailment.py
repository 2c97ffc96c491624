"""Entailment: does one answer follow from another, as answers to the same question?

Its own small seam beside the engine: `entail(pairs)` gives (entailment, neutral, contradiction) for
each pair. Three implementations stand in files of their own: an NLI classifier behind vLLM's
`/classify`, a transformers cross-encoder, and the engine itself. This file knows none of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ragguard.engines.base import EngineInfo
from ragguard.metrics.answers import normalise
from ragguard.records import Usage

RELATIONS = ("entailment", "neutral", "contradiction")
"""The columns, in this order, whatever order a model has them in."""


class Pair(NamedTuple):
    """Two answers to one question: does `hypothesis` follow, if `premise` is true?"""

    question: str
    premise: str
    hypothesis: str

    @property
    def turned(self) -> Pair:
        """The other direction."""
        return Pair(self.question, self.hypothesis, self.premise)


@dataclass(frozen=True, slots=True)
class Entailments:
    """What follows from what; an array to NumPy."""

    p: NDArray[np.float64]
    """(pairs, 3) in the order of `RELATIONS`; every row sums to 1."""
    usage: Usage = field(default_factory=Usage)
    mass: NDArray[np.float64] | None = None
    """(pairs,) what a language model put on its three labels before they were made to sum to 1. It is 1
    for equal answers and for a classifier, which cannot say anything else; None where nobody counted."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.p, dtype=dtype, copy=True if copy is None else copy)

    def __len__(self) -> int:
        return len(self.p)


@runtime_checkable
class Entailer(Protocol):
    """Something that judges entailment."""

    async def entail(
        self, pairs: Sequence[Pair], *, deadline: float | None = None, priority: int = 0
    ) -> Entailments:
        """One row for each pair. `deadline` and `priority` mean what they mean to an engine."""
        ...

    async def info(self) -> EngineInfo:
        """What it is; its fingerprint stands in the scores that rest on it."""
        ...

    async def aclose(self) -> None:
        """Gives back connections, threads and memory. Safe to call twice."""
        ...


def same(pair: Pair) -> bool:
    """Whether both answers are the same words, so that nobody needs to be asked."""
    premise, hypothesis = normalise(pair.premise), normalise(pair.hypothesis)
    if not premise:
        # Nothing but punctuation or articles: "+" and "-" are equal only as they stand.
        return pair.premise.strip() == pair.hypothesis.strip()
    return premise == hypothesis


async def entail_distinct(
    pairs: Sequence[Pair], ask: Callable[[Sequence[Pair]], Awaitable[Entailments]]
) -> Entailments:
    """Sends each different pair once to `ask`, and none whose two answers are the same words."""
    p = np.zeros((len(pairs), len(RELATIONS)))
    places: dict[Pair, list[int]] = {}
    for index, pair in enumerate(pairs):
        if same(pair):
            p[index, 0] = 1.0
        else:
            places.setdefault(pair, []).append(index)
    if not places:
        return Entailments(p, mass=np.ones(len(pairs)))
    answer = await ask(list(places))
    mass = np.ones(len(pairs))
    for row, indices in enumerate(places.values()):
        p[indices] = answer.p[row]
        if answer.mass is not None:
            mass[indices] = answer.mass[row]
    return Entailments(p, answer.usage, mass)

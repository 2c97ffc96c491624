"""Contexts of one length drawn from annotated pools, with the reader's outcomes and the metrics' values."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ragguard.engines.base import Engine
from ragguard.lab.validation.answering import with_answers, with_outcomes
from ragguard.lab.validation.contexts import Context, Progress, silent
from ragguard.metrics.arrays import Booleans, Floats, Integers
from studies.annotations import Annotated
from studies.pools import draw


@dataclass(frozen=True, slots=True)
class Sample:
    """Contexts as rows: the owner, the passages and the outcome of each."""

    pools: tuple[Annotated, ...]
    owner: Integers
    """The pool, and so the question, that each context belongs to."""
    places: NDArray[np.intp]
    """The position in its pool of each passage, in the order in which it was read: (contexts, k)."""
    outcome: Floats
    """The outcome of each context, as `OUTCOMES`; nan where there is none."""

    def of(self, values: Callable[[Annotated], Floats]) -> Floats:
        """Returns an annotation of each passage: (contexts, k)."""
        return np.array(
            [values(self.pools[owner])[row] for owner, row in zip(self.owner, self.places, strict=True)]
        )

    def ideal(self, values: Callable[[Annotated], Floats]) -> Floats:
        """Returns an annotation of all passages of the context's question, best first: (contexts, longest pool)."""
        longest = max(len(one.pool.passages) for one in self.pools)
        padded = [
            np.pad(np.sort(values(one))[::-1], (0, longest - len(one.pool.passages))) for one in self.pools
        ]
        return np.array(padded)[self.owner]

    @property
    def answerable(self) -> Booleans:
        """True where the context has every fact that is needed."""
        return np.array([
            self.pools[owner].pool.answerable(row.tolist())
            for owner, row in zip(self.owner, self.places, strict=True)
        ])  # fmt: skip

    @property
    def misleading(self) -> Booleans:
        """True where a passage of the context contradicts what is true."""
        return np.array([
            any(self.pools[owner].pool.kinds[place] == "contradiction" for place in row)
            for owner, row in zip(self.owner, self.places, strict=True)
        ])  # fmt: skip

    @property
    def varied(self) -> int:
        """The number of questions that have contexts with different outcomes: the others cannot correlate with
        anything."""
        kinds = [self.outcome[self.owner == owner] for owner in range(len(self.pools))]
        return sum(len(np.unique(found[~np.isnan(found)])) > 1 for found in kinds)


async def read_contexts(
    contexts: Sequence[Context], engine: Engine, judge: Engine | None, progress: Progress = silent
) -> Floats:
    """Returns the outcome of the reader's answer to each context, as `OUTCOMES`; nan where there is none."""
    judged = await with_outcomes(
        await with_answers(contexts, engine, progress=progress), judge, progress=progress
    )
    return np.array([np.nan if one.outcome is None else one.outcome for one in judged])


async def sample(
    pools: Sequence[Annotated],
    engine: Engine,
    judge: Engine | None,
    *,
    k: int = 5,
    contexts: int = 10,
    seed: int = 0,
    progress: Progress = silent,
) -> Sample:
    """Draws so many contexts a question, and lets the reader answer each; `judge` compares answers, see
    `answering.grader`."""
    owners, places, asked = [], [], []
    for owner, one in enumerate(pools):
        rng = random.Random(f"contexts {seed} {k} {one.pool.id} {one.pool.case.question}")
        for number, row in enumerate(draw(one.pool, k, contexts, rng)):
            owners.append(owner)
            places.append(row)
            asked.append(one.pool.context(row, f"{k}-{number}"))
    outcome = await read_contexts(asked, engine, judge, progress)
    return Sample(
        tuple(pools), np.array(owners, dtype=np.intp), np.array(places, dtype=np.intp).reshape(-1, k), outcome
    )

"""Contexts of one length drawn from annotated pools, what the reader made of them, and what the metrics say of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ragguard.engines.base import Engine
from ragguard.metrics.arrays import Booleans, Floats, Integers
from ragguard.validate.answering import with_answers, with_outcomes
from ragguard.validate.contexts import Context
from ragguard.validate.progress import Progress, silent
from studies.annotations import Annotated
from studies.pools import draw


@dataclass(frozen=True, slots=True)
class Sample:
    """Contexts as rows: the owner, the passages and the outcome of each."""

    pools: tuple[Annotated, ...]
    owner: Integers
    """Which pool, and so which question, a context belongs to."""
    places: NDArray[np.intp]
    """(contexts, k): where in its pool each passage stands, in the order it was read."""
    outcome: Floats
    """As `OUTCOMES`; nan where there is none."""

    def of(self, values: Callable[[Annotated], Floats]) -> Floats:
        """Returns (contexts, k): an annotation of each passage."""
        return np.array(
            [values(self.pools[owner])[row] for owner, row in zip(self.owner, self.places, strict=True)]
        )

    def ideal(self, values: Callable[[Annotated], Floats]) -> Floats:
        """(contexts, longest pool): an annotation of all passages of the context's question, best first."""
        longest = max(len(one.pool.passages) for one in self.pools)
        padded = [
            np.pad(np.sort(values(one))[::-1], (0, longest - len(one.pool.passages))) for one in self.pools
        ]
        return np.array(padded)[self.owner]

    @property
    def answerable(self) -> Booleans:
        """Whether the context has all that is needed."""
        return np.array([
            self.pools[owner].pool.answerable(row.tolist())
            for owner, row in zip(self.owner, self.places, strict=True)
        ])  # fmt: skip

    @property
    def misleading(self) -> Booleans:
        """Whether a passage of the context contradicts what is true."""
        return np.array([
            any(self.pools[owner].pool.kinds[place] == "contradiction" for place in row)
            for owner, row in zip(self.owner, self.places, strict=True)
        ])  # fmt: skip

    @property
    def varied(self) -> int:
        """How many questions have contexts with different outcomes: the others cannot correlate with anything."""
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
    """So many contexts a question, answered by the reader; `judge` compares answers, see `answering.grader`."""
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

"""The store as the scorer's event loop uses it: every method is awaited.

Each call waits its turn in the intake's queue, behind all that was captured before it, and runs on the writer's thread.
So the store has one order of writes, and no disk holds up the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from ragguard.errors import InvalidInput
from ragguard.records import Failure, Run, Score
from ragguard.service.intake import Intake
from ragguard.storage.sqlite.ledger import Claim, ScoringOutcome
from ragguard.storage.sqlite.store import Store

T = TypeVar("T")


class AwaitedStore:
    """Calls a store on the writer's thread. The methods do what those of `Store` with their names do."""

    def __init__(self, store: Store, writer: Intake) -> None:
        self._store, self._writer = store, writer

    async def run(self, run_id: str) -> Run | None:
        return await self._called(lambda: self._store.run(run_id))

    async def results(self, run_id: str) -> tuple[list[Score], list[Failure]]:
        """Returns the scores and the failures of a run."""
        return await self._called(lambda: (self._store.scores(run_id), self._store.failures(run_id)))

    async def submit(self, run: Run, identity: str) -> Claim:
        return await self._called(lambda: self._store.submit(run, identity))

    async def claim(self, limit: int, *, at_once: bool) -> tuple[list[Claim], int | None]:
        """Looks for due runs; unless `at_once`, with the next batch of events, since waking the writer for each look
        would make it commit small batches, and slow hooks down."""
        return await self._called(lambda: self._store.claim(limit), wake=at_once)

    async def retry_now(self) -> None:
        await self._called(self._store.retry_now)

    def release(self, run_id: str) -> None:
        """Releases a claimed run; touches no file, and so does not wait."""
        self._store.release(run_id)

    async def store_outcome(self, outcome: ScoringOutcome) -> list[Score]:
        return await self._called(lambda: self._store.store_outcome(outcome))

    async def store_provisional(
        self,
        run_id: str,
        scores: Sequence[Score],
        failures: Sequence[Failure],
        references: Sequence[str] | None,
    ) -> list[Score] | None:
        return await self._called(lambda: self._store.store_provisional(run_id, scores, failures, references))

    async def keep_unscored(self, claim: Claim, *, emit: bool) -> None:
        await self._called(lambda: self._store.keep_unscored(claim, emit=emit))

    async def emitted(self, run_id: str) -> None:
        await self._called(lambda: self._store.emitted(run_id))

    async def add_due(self, runs: Sequence[Run], *, amend: bool) -> dict[str, InvalidInput]:
        return await self._called(lambda: self._store.add_due(runs, amend=amend))

    def add_metadata(
        self, run_id: Callable[[], str], metadata: Mapping[str, Any], *, due: bool
    ) -> Future[bool]:
        """Returns the future result, since threads wait for it as well. The id may not be known before the writer has
        stored what was captured, so it is a function."""
        return self._writer.do(lambda: self._store.add_metadata(run_id(), metadata, due=due))

    async def _called(self, work: Callable[[], T], *, wake: bool = True) -> T:
        return await asyncio.wrap_future(self._writer.do(work, wake=wake))

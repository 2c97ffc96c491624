"""The store as the scorer's event loop uses it: every method is awaited.

Each call waits its turn in the intake's queue, behind all that was captured before it, and runs on the writer's thread.
So the store has one order of writes, and no disk holds up the event loop.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from typing import Any, Concatenate, ParamSpec, TypeVar

from ragguard.records import Failure, Score
from ragguard.service.intake import Intake
from ragguard.storage.sqlite.ledger import Claim
from ragguard.storage.sqlite.store import Store

P = ParamSpec("P")
T = TypeVar("T")


def _awaited(
    method: Callable[Concatenate[Store, P], T],
) -> Callable[Concatenate[AwaitedStore, P], Coroutine[Any, Any, T]]:
    """Returns a coroutine function that calls a method of the store on the writer's thread."""

    @functools.wraps(method)
    async def call(self: AwaitedStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.do(lambda store: method(store, *args, **kwargs))

    return call


class AwaitedStore:
    """Calls a store on the writer's thread. The methods do what those of `Store` with their names do."""

    def __init__(self, store: Store, writer: Intake) -> None:
        self._store, self._writer = store, writer

    run = _awaited(Store.run)
    submit = _awaited(Store.submit)
    retry_now = _awaited(Store.retry_now)
    store_outcome = _awaited(Store.store_outcome)
    store_provisional = _awaited(Store.store_provisional)
    keep_unscored = _awaited(Store.keep_unscored)
    emitted = _awaited(Store.emitted)
    add_due = _awaited(Store.add_due)

    async def results(self, run_id: str) -> tuple[list[Score], list[Failure]]:
        """Returns the scores and the failures of a run."""
        return await self.do(lambda store: (store.scores(run_id), store.failures(run_id)))

    async def claim(self, limit: int, *, at_once: bool) -> tuple[list[Claim], int | None]:
        """Looks for due runs; unless `at_once`, with the next batch of events, since waking the writer for each look
        would make it commit small batches, and slow hooks down."""
        return await self.do(lambda store: store.claim(limit), wake=at_once)

    def release(self, run_id: str) -> None:
        """Releases a claimed run; touches no file, and so does not wait."""
        self._store.release(run_id)

    def add_metadata(
        self, run_id: Callable[[], str], metadata: Mapping[str, Any], *, due: bool
    ) -> Future[bool]:
        """Returns the future result, since threads wait for it as well. The id may not be known before the writer has
        stored what was captured, so it is a function."""
        return self._writer.do(lambda: self._store.add_metadata(run_id(), metadata, due=due))

    async def do(self, work: Callable[[Store], T], *, wake: bool = True) -> T:
        """Returns the result of a function of the store."""
        return await asyncio.wrap_future(self._writer.do(lambda: work(self._store), wake=wake))

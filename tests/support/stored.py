"""Runs put into a store, and what came of scoring them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from support.runs import as_events

from ragguard.records import Failure, Run, Score, ScoredRun
from ragguard.storage.sqlite.ledger import ScoringOutcome
from ragguard.storage.sqlite.store import Store


def captured(store: Store, *runs: Run) -> None:
    """Puts runs into a store as events, as capture does."""
    for run in runs:
        store.record(as_events(run))


def store_scores(
    store: Store,
    run: Run,
    scores: Sequence[Score] = (),
    failures: Sequence[Failure] = (),
    *,
    retry_ns: int | None = None,
    identity: str = "x",
    revision: int = 1,
    emit: bool = False,
) -> list[Score]:
    """Settles a run in a store, as the scorer does."""
    return store.store_outcome(
        ScoringOutcome(run.id, identity, revision, list(scores), list(failures), retry_ns, emit)
    )


def put_scored(store: Store, runs: Iterable[ScoredRun]) -> None:
    """Puts runs into a store, and settles each with its scores and failures."""
    for one in runs:
        store.add_scored([ScoredRun(one.run)])
        store_scores(store, one.run, one.scores, one.failures)


def scored_store(path: str | Path, runs: Iterable[ScoredRun]) -> str:
    """Writes a store of scored runs, or adds them to one, and returns its path."""
    with closing(Store(path)) as store:
        put_scored(store, runs)
    return str(path)


@contextmanager
def closed_after(path: str | Path) -> Iterator[sqlite3.Connection]:
    """A connection to a file, committed and closed at the end of the block."""
    with closing(sqlite3.connect(path)) as db, db:
        yield db

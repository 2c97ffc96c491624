"""Runs put into a store, and what came of scoring them."""

from __future__ import annotations

from collections.abc import Sequence

from support.runs import as_events

from ragguard.records import Failure, Run, Score
from ragguard.store.ledger import Outcome
from ragguard.store.store import Store


def captured(store: Store, *runs: Run) -> None:
    """As capture would bring them."""
    for run in runs:
        store.record(as_events(run))


def settle(
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
    """As the scorer would."""
    return store.settle(Outcome(run.id, identity, revision, list(scores), list(failures), retry_ns, emit))

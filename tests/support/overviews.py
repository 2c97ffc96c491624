"""Scored runs as a report reads them: through a store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ragguard.records import ScoredRun
from ragguard.storage.sqlite.ledger import ScoringOutcome
from ragguard.storage.sqlite.overview import Overview
from ragguard.storage.sqlite.store import Store


def overviews(scored: Iterable[ScoredRun]) -> Iterator[Overview]:
    """Returns the overviews that a store in memory gives of these runs."""
    store = Store()
    for one in scored:
        store.add_scored([ScoredRun(one.run)])
        store.store_outcome(ScoringOutcome(one.run.id, "settings", 1, one.scores, one.failures))
    yield from store.overviews()

"""Scored runs as a report reads them: through a store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from support.stored import put_scored

from ragguard.records import ScoredRun
from ragguard.storage.sqlite.overview import Overview
from ragguard.storage.sqlite.store import Store


def overviews(scored: Iterable[ScoredRun]) -> Iterator[Overview]:
    """Returns the overviews that a store in memory gives of these runs."""
    store = Store()
    put_scored(store, scored)
    yield from store.overviews()

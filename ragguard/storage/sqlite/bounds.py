"""Bounds the runs that memory holds where there is no file, and removes runs beyond the bounds."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection

from ragguard.runtime.notices import NOTICES
from ragguard.storage.sqlite import ledger, reading, removal

MEMORY_RUNS = 10_000
MEMORY_BYTES = 256 * 2**20


def drop_waiting(memory: sqlite3.Connection, owner: str, most: int, claimed: Collection[str]) -> int:
    """Drops the owner's oldest waiting runs beyond `most`, unscored; returns how many."""
    surplus = ledger.left(memory, owner).pending - most
    return 0 if surplus <= 0 else ledger.drop(memory, owner, surplus, but=claimed)


def warn_of_dropped(store: object, dropped: int, most: int) -> None:
    """Warns that runs of a store were dropped unscored, and says how to keep them."""
    NOTICES.warn(
        f"dropped {id(store)}",
        f"{dropped:,} runs so far were let go unscored: more than {most:,} waited, which is the bound without a "
        "store. Raise queue_size=, score a share with score_rate=, score runs at hand with rg.score_runs(...), "
        "which waits, or give RagGuard a store, where nothing is dropped",
    )


def is_full(memory: sqlite3.Connection) -> bool:
    """Returns whether memory holds more runs or bytes than it may."""
    if reading.count_runs(memory) > MEMORY_RUNS:
        return True
    pages, free, size = (
        int(memory.execute(f"PRAGMA {name}").fetchone()[0])
        for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * size > MEMORY_BYTES


def evict_done(memory: sqlite3.Connection) -> None:
    """Removes the oldest runs for which nothing is left to do."""
    done = "WHERE owner IS NULL ORDER BY seq LIMIT ?"
    removal.delete_runs(memory, reading.find_seqs(memory, done, removal.REMOVED_AT_ONCE))

"""The part of a store that belongs to one process. A forked child starts afresh with its own."""

from __future__ import annotations

import sqlite3
from collections import Counter

from ragguard.records import new_id
from ragguard.storage.sqlite import owners
from ragguard.storage.sqlite.counting import Counting
from ragguard.storage.sqlite.failover import Failover
from ragguard.storage.sqlite.segments import Segments


class ProcessState:
    """The lease, the claims, the counters and the continued runs of this process; the owner of its database."""

    def __init__(self) -> None:
        self.forked()

    def forked(self) -> None:
        """Starts with a new owner id and empty state: at first, and in a forked child."""
        self.process = owners.this_process(new_id())
        self.counts: Counter[str] = Counter()
        """The counters of this process; the file has the sums over all processes."""
        self.claimed: set[str] = set()
        """The runs that are being scored or delivered."""
        self.counting = Counting(self.counts)
        self.failover = Failover()
        self.segments = Segments()

    @property
    def owner(self) -> str:
        """The id under which this process owns runs."""
        return self.process.owner

    def opened(self, db: sqlite3.Connection) -> None:
        """Renews the lease, in the first transaction of a connection."""
        owners.renew(db, self.process)

    def to_memory(self, disk: sqlite3.Connection | None, memory: sqlite3.Connection) -> None:
        """Copies the runs on which this process has work left to memory, where the file could be opened."""
        self.failover.to_memory(disk, memory, self.owner)

    def to_disk(self, memory: sqlite3.Connection, disk: sqlite3.Connection) -> list[str]:
        """Copies all runs back to the file; returns why runs could not be copied, one text a run."""
        return self.failover.to_disk(memory, disk, self.owner)

    def count(self, name: str, by: int = 1) -> None:
        """Adds to a counter; the sum reaches the disk with the next write."""
        self.counting.add(name, by)

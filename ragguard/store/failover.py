"""Notes what was written to memory while the file could not be written, so that all of it is copied back to the
file."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence

from ragguard.events import StepAmended
from ragguard.store.bounds import evict_ended, is_full
from ragguard.store.transfer import copy_back, copy_unfinished


class Failover:
    """The state of a store while memory stands in for its file: from the failure until everything is in the file
    again."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        """Starts with nothing in memory."""
        self._copied: set[str] = set()
        self._replaced: set[str] = set()
        self._amendments: list[StepAmended] = []
        self.events = 0
        """The number of events that only memory holds."""

    def to_memory(self, disk: sqlite3.Connection | None, memory: sqlite3.Connection, owner: str) -> None:
        """Begins to write to memory, with copies of the runs in the file on which this process has work left."""
        self._begin()
        if disk is not None:
            self._copied = copy_unfinished(disk, memory, owner)

    def to_disk(self, memory: sqlite3.Connection, disk: sqlite3.Connection, owner: str) -> list[str]:
        """Copies all runs back to the file; returns why runs could not be copied, one text a run."""
        return copy_back(
            memory, disk, owner, copied=self._copied, replaced=self._replaced, amendments=self._amendments
        )

    def recorded(self, events: int, unplaced: Sequence[StepAmended]) -> None:
        """Notes how many events went to memory; `unplaced` are amendments to steps that memory does not have."""
        self.events += events
        self._amendments += unplaced

    def put(self, run_id: str) -> None:
        """Notes a run that was put into memory as a whole."""
        self._replaced.add(run_id)

    def evict_surplus(self, memory: sqlite3.Connection, claimed: Collection[str]) -> int:
        """Removes the oldest ended runs where memory is full; returns how many of them the file lacks."""
        evicted = evict_ended(memory, claimed) if is_full(memory) else ()
        return sum(run_id not in self._copied for run_id in evicted)

"""Counters of one process; the file holds the sums over all processes."""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from collections.abc import Mapping


class Counting:
    """Counts from any thread. `write` puts the new counts into a transaction, `written` confirms its commit."""

    def __init__(self, totals: Counter[str]) -> None:
        self._totals = totals
        self._new: Counter[str] = Counter()
        self._lock = threading.RLock()  # a garbage collection may run a hook inside a hook

    def add(self, name: str, by: int) -> None:
        """Adds `by` to the counter of this name."""
        with self._lock:
            self._totals[name] += by
            self._new[name] += by

    def write(self, connection: sqlite3.Connection) -> dict[str, int]:
        """Writes the new counts; returns them, to be confirmed once the transaction is committed."""
        with self._lock:
            new = {name: by for name, by in self._new.items() if by}
        add_to_counters(connection, new)
        return new

    def written(self, counts: Mapping[str, int]) -> None:
        """Confirms that these counts are committed, so that they are not written again."""
        with self._lock:
            self._new.subtract(counts)


def add_to_counters(connection: sqlite3.Connection, counts: Mapping[str, int]) -> None:
    """Adds counts to the sums over all processes."""
    connection.executemany(
        "INSERT INTO counters (name, value) VALUES (?, ?) "
        "ON CONFLICT (name) DO UPDATE SET value = value + excluded.value",
        list(counts.items()),
    )


def counters_of(connection: sqlite3.Connection) -> dict[str, int]:
    """Returns the sums over all processes."""
    return {row[0]: row[1] for row in connection.execute("SELECT name, value FROM counters")}

"""Taking runs out of a store for good, with every text that nobody else needs."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Sequence

from ragguard.store.rows import digests_in
from ragguard.store.segments import forget_waiting
from ragguard.store.writing import release


def delete_runs(connection: sqlite3.Connection, places: Sequence[int]) -> None:
    """Removes runs with all that hangs on them; texts that nobody else needs go as well."""
    uses: Counter[bytes] = Counter()
    for place in places:
        for table, column in (("runs", "seq"), ("steps", "run")):
            for row in connection.execute(f"SELECT body FROM {table} WHERE {column} = ?", (place,)):
                uses.subtract(digests_in(json.loads(row[0])))
        for table in ("steps", "scores", "failures", "scorings"):
            connection.execute(f"DELETE FROM {table} WHERE run = ?", (place,))
        for row in connection.execute("SELECT id FROM runs WHERE seq = ?", (place,)).fetchall():
            forget_waiting(connection, row[0])
        connection.execute("DELETE FROM runs WHERE seq = ?", (place,))
    release(connection, uses)


def oldest_settled(connection: sqlite3.Connection, limit: int) -> list[int]:
    """The runs that came first and have nothing left to do."""
    rows = connection.execute("SELECT seq FROM runs WHERE owner IS NULL ORDER BY seq LIMIT ?", (limit,))
    return [row[0] for row in rows]


def ended_before(connection: sqlite3.Connection, ended_ns: int, limit: int) -> list[int]:
    """The oldest runs that ended before, scored or not."""
    rows = connection.execute(
        "SELECT seq FROM runs WHERE ended_ns < ? AND status <> 'open' ORDER BY ended_ns LIMIT ?",
        (ended_ns, limit),
    )
    return [row[0] for row in rows]

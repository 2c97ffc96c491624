"""The runs of a store: found by what they are called, and removed for good, with every text that nobody else needs."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Sequence

from ragguard.storage.sqlite.passages import change_uses, digests_in
from ragguard.storage.sqlite.schema import storable

REMOVED_AT_ONCE = 200
"""The number of runs that one transaction removes."""


def find_runs(db: sqlite3.Connection, name: str) -> list[int]:
    """Returns the `seq` of the run with this id, else of all that are called so, the latest last."""
    by_id = db.execute("SELECT seq FROM runs WHERE id = ?", (storable(name),)).fetchall()
    by_name = "SELECT run FROM names WHERE name = ? AND kind <> 'thread' ORDER BY run"
    return [row[0] for row in by_id or db.execute(by_name, (storable(name),))]


def find_run(db: sqlite3.Connection, name: str) -> int | None:
    """Returns the `seq` of the run with this id, else of the latest one that is called so; None where there is none."""
    return found[-1] if (found := find_runs(db, name)) else None


def delete_runs(connection: sqlite3.Connection, seqs: Sequence[int]) -> None:
    """Removes runs with their steps, scores and failures, and the texts that no other run needs."""
    uses: Counter[bytes] = Counter()
    for seq in seqs:
        for table, column in (("runs", "seq"), ("steps", "run")):
            for row in connection.execute(f"SELECT body FROM {table} WHERE {column} = ?", (seq,)):
                uses.subtract(_digests(row[0]))
        for table in ("steps", "scores", "failures", "scorings", "names"):
            connection.execute(f"DELETE FROM {table} WHERE run = ?", (seq,))
        connection.execute("DELETE FROM runs WHERE seq = ?", (seq,))
    change_uses(connection, uses, {})


def _digests(body: str) -> list[bytes]:
    """Returns the digests of the texts that a row needs; none where another program has made the row unreadable: its
    texts stay, as nothing says which they are."""
    try:
        return digests_in(json.loads(body))
    except (ValueError, TypeError, AttributeError, LookupError):
        return []

"""Finds stored runs by what they are called, and removes runs for good, with every text that nobody else needs."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections import Counter
from collections.abc import Sequence

from ragguard.storage.sqlite.passages import change_uses, digests_in
from ragguard.storage.sqlite.schema import storable

_DELETED = "deleted:"
"""Prefix of keys in `meta`: the digest of the id of a run that was deleted while it was open."""
REMOVED_AT_ONCE = 200


def find_runs(db: sqlite3.Connection, name: str) -> list[int]:
    """Returns the `seq` of the run with this id, else of all that are called so, the latest last."""
    by_id = db.execute("SELECT seq FROM runs WHERE id = ?", (storable(name),)).fetchall()
    by_name = "SELECT run FROM names WHERE name = ? AND kind <> 'thread' ORDER BY run"
    return [row[0] for row in by_id or db.execute(by_name, (storable(name),))]


def find_run(db: sqlite3.Connection, name: str) -> int | None:
    """Returns the `seq` of the run with this id, else of the latest one that is called so; None where there is none."""
    return found[-1] if (found := find_runs(db, name)) else None


def _forget_names(db: sqlite3.Connection, seq: int) -> None:
    """Removes what a run was called. Of a run that is deleted while it is open, digests of its ids are kept, so that no
    later event of any process brings it back."""
    if open_run := db.execute("SELECT id FROM runs WHERE seq = ? AND status = 'open'", (seq,)).fetchone():
        parts = db.execute("SELECT name FROM names WHERE run = ? AND kind = 'part'", (seq,)).fetchall()
        for (id,) in (open_run, *parts):
            db.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, '')", (_deleted_key(id),))
    db.execute("DELETE FROM names WHERE run = ?", (seq,))


def was_deleted(db: sqlite3.Connection, run_id: str) -> bool:
    """Returns whether a run was deleted while it was open, and has not ended since."""
    return db.execute("SELECT 1 FROM meta WHERE key = ?", (_deleted_key(run_id),)).fetchone() is not None


def forget_deleted(db: sqlite3.Connection, run_id: str) -> None:
    """Forgets that a run was deleted, since it has ended."""
    db.execute("DELETE FROM meta WHERE key = ?", (_deleted_key(run_id),))


def _deleted_key(run_id: str) -> str:
    """Returns a key that does not show the id, of which nothing may be left."""
    return _DELETED + hashlib.sha256(storable(run_id).encode("utf-8", "replace")).hexdigest()


def delete_runs(connection: sqlite3.Connection, seqs: Sequence[int]) -> None:
    """Removes runs with their steps, scores and failures, and the texts that no other run needs."""
    uses: Counter[bytes] = Counter()
    for seq in seqs:
        for table, column in (("runs", "seq"), ("steps", "run")):
            for row in connection.execute(f"SELECT body FROM {table} WHERE {column} = ?", (seq,)):
                uses.subtract(_digests(row[0]))
        for table in ("steps", "scores", "failures", "scorings"):
            connection.execute(f"DELETE FROM {table} WHERE run = ?", (seq,))
        _forget_names(connection, seq)
        connection.execute("DELETE FROM runs WHERE seq = ?", (seq,))
    change_uses(connection, uses, {})


def _digests(body: str) -> list[bytes]:
    """Returns the digests of the texts that a row needs; none where another program has made the row unreadable: its
    texts stay, as nothing says which they are."""
    try:
        return digests_in(json.loads(body))
    except (ValueError, TypeError, AttributeError, LookupError):
        return []

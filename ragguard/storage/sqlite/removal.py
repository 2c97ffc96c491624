"""Removes runs from a store for good, with every text that nobody else needs."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Sequence

from ragguard.errors import StoreError
from ragguard.storage.sqlite import reading, run_names
from ragguard.storage.sqlite.database import Database
from ragguard.storage.sqlite.passages import digests_in, release

REMOVED_AT_ONCE = 200


class Removals:
    """Deletes runs, and knows which deleted texts may still be in the log of the file."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._unwiped: set[str] = set()
        """Runs that were deleted, whose texts may still be in the log; "" stands for those that grew old."""

    def delete(self, run_id: str) -> bool:
        """Removes a run for good, or all that are called so, as `Store.delete` says."""
        with self._db.transaction() as db:
            seqs = run_names.find_runs(db, run_id)
            delete_runs(db, seqs)
        with self._db.lock:
            if seqs:
                self._unwiped.add(run_id)
            if run_id not in self._unwiped:
                return False
            if not self._wipe():
                raise StoreError(
                    f"{run_id!r} is deleted, but its texts are still in the log of {self._db.path}, which another "
                    "process is reading; they go within seconds of its end: call again to know"
                )
        return True

    def prune(self, ended_before_ns: int) -> int:
        """Removes all runs that ended before `ended_before_ns`, scored or not; returns how many."""

        ended = "WHERE ended_ns < ? AND status <> 'open' ORDER BY ended_ns LIMIT ?"
        total, removed = 0, 1
        while removed:
            with self._db.transaction() as db:
                seqs = reading.find_seqs(db, ended, ended_before_ns, REMOVED_AT_ONCE)
                delete_runs(db, seqs)
            removed = len(seqs)
            total += removed
        if total:
            self._unwiped.add("")
            self._wipe()
        return total

    def wipe_rest(self) -> None:
        """Empties the log of the texts of deleted runs, where that could not be done at once."""
        if self._unwiped:
            self._wipe()

    def _wipe(self) -> bool:
        """Empties the log of the texts of deleted runs; where that cannot be done yet, `wipe_rest` tries again."""
        wiped = self._db.wipe()
        if wiped:
            self._unwiped.clear()
        return wiped


def delete_runs(connection: sqlite3.Connection, seqs: Sequence[int]) -> None:
    """Removes runs with their steps, scores and failures, and the texts that no other run needs."""
    uses: Counter[bytes] = Counter()
    for seq in seqs:
        for table, column in (("runs", "seq"), ("steps", "run")):
            for row in connection.execute(f"SELECT body FROM {table} WHERE {column} = ?", (seq,)):
                uses.subtract(_digests(row[0]))
        for table in ("steps", "scores", "failures", "scorings"):
            connection.execute(f"DELETE FROM {table} WHERE run = ?", (seq,))
        run_names.forget(connection, seq)
        connection.execute("DELETE FROM runs WHERE seq = ?", (seq,))
    release(connection, uses)


def _digests(body: str) -> list[bytes]:
    """Returns the digests of the texts that a row needs; none where another program has made the row unreadable: its
    texts stay, as nothing says which they are."""
    try:
        return digests_in(json.loads(body))
    except (ValueError, TypeError, AttributeError, LookupError):
        return []

"""The rows of runs: found by what a run is called, changed in memory and written once, and removed for good, with every
text that nobody else needs."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final

from ragguard.capture.events import CALLER_ID
from ragguard.records import FEEDBACK, Run
from ragguard.storage.sqlite.passages import PassageTable, change_uses, digests_in
from ragguard.storage.sqlite.rows import StepRow, run_body
from ragguard.storage.sqlite.schema import Data, dump, storable

_DELETED = "deleted:"
"""Prefix of keys in `meta`: the digest of the id of a run that was deleted while it was open."""
REMOVED_AT_ONCE = 200
_COLUMNS: Final = (
    "seq", "id", "name", "question", "answer", "status", "started_ns", "ended_ns", "revision", "owner", "due_ns",
    "queued_ns", "attempts", "body",
)  # fmt: skip
_values_of = attrgetter(*_COLUMNS[:-1])
"""Returns the columns of a run's row, without its body."""
WRITE_RUN: Final = (
    f"INSERT INTO runs ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))}) "
    f"ON CONFLICT (seq) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in _COLUMNS[2:])}"
)


@dataclass(slots=True, kw_only=True)
class RunRow:
    """A row of the table `runs` that this transaction has made or changes, with the steps that it adds."""

    seq: int
    id: str
    name: str
    question: str
    answer: str | None = None
    status: str
    started_ns: int
    ended_ns: int = 0
    body: Data
    revision: int = 1
    owner: str | None = None
    due_ns: int | None = None
    queued_ns: int | None = None
    attempts: int = 0
    is_new: bool = False
    steps: dict[str, StepRow] = field(default_factory=dict)
    """The steps that are not in the tables yet, by their ids; a step that is reported twice counts once."""
    names: list[tuple[str, str]] = field(default_factory=list)
    """The names to be noted, each with its kind."""
    digests: list[bytes] = field(default_factory=list)
    """The texts that were put into the body."""

    def table(self, texts: dict[bytes, str]) -> PassageTable:
        """Takes the passages out of the body, to add some; `put_back` ends that."""
        return PassageTable(texts, self.body.pop("items", ()))

    def put_back(self, table: PassageTable) -> None:
        """Puts the passages into the body, behind everything else."""
        self.body = table.within(self.body)
        self.digests += table.digests

    def begin(self, run: Run, texts: dict[bytes, str]) -> None:
        """Takes what the start of a run says of it."""
        table = PassageTable(texts)
        self.name, self.question, self.started_ns = storable(run.name), storable(run.question), run.started_ns
        self.body = run_body(run, table)
        self.digests = []
        self.put_back(table)
        if caller_id := run.metadata.get(CALLER_ID):
            self.names.append((storable(str(caller_id)), "caller"))

    def make_due(self, owner: str, now: int) -> None:
        """Marks the run as to be scored by its owner."""
        self.owner, self.due_ns, self.queued_ns = owner, now, now

    def columns(self) -> tuple[Any, ...]:
        """Returns the values that `WRITE_RUN` takes."""
        return (*_values_of(self), dump(self.body))

    def captured(self) -> tuple[object, ...]:
        """Returns what makes a run another one: all that was captured of it, without feedback."""
        body: Data = json.loads(dump(self.body))
        body.get("metadata", {}).pop(FEEDBACK, None)
        return self.name, self.question, self.answer, self.status, self.started_ns, self.ended_ns, body


def stored_row(stored: sqlite3.Row) -> RunRow:
    """Returns the row of a stored run."""
    return RunRow(**{name: stored[name] for name in _COLUMNS} | {"body": json.loads(stored["body"])})


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

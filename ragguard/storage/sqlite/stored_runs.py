"""The rows of runs: those that begin in one transaction, the names beside their ids, parts that go on, and removal.

The runs that begin in a transaction are collected, and each is written once, as one row; most also end in it. Writing
the start, the steps and the end one after the other takes several times as long: the end reads, changes and indexes the
row again.

The id of a run is made where the run begins. Beside it stand the id that the application gave, which later runs may
have too, and the thread that an interrupted run waits for. A part that goes on with a stored run is captured under an
id of its own, often by another process; its steps are written behind those that the run had before.

A run is removed for good, with every text that nobody else needs.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ragguard.capture.events import CALLER_ID, RunEnded, RunNames
from ragguard.errors import StoreError
from ragguard.records import Run
from ragguard.runtime.threads import TimeSlice
from ragguard.storage.sqlite.database import Database
from ragguard.storage.sqlite.passages import NeededTexts, PassageTable, digests_in, release
from ragguard.storage.sqlite.rows import STEP_COLUMNS, StepRow, add_end, run_data
from ragguard.storage.sqlite.schema import dump, maybe, storable
from ragguard.text.plain import plain_metadata

PART = "part"
"""Key in a run's body: the number of its latest part, where the run has gone on."""
_DELETED = "deleted:"
"""Prefix of keys in `meta`: the digest of the id of a run that was deleted while it was open."""
_ADD = "INSERT OR IGNORE INTO names (name, kind, run) VALUES (?, ?, ?)"


class StoredPart(NamedTuple):
    """The stored run that the events of one captured run, or of a part that goes on, are written to."""

    seq: int
    run_id: str
    number: int = 0
    """0 for a run as it began, 1 for the first part that goes on with it."""
    steps: int = 0
    """The number of steps that the run had before."""
    turns: int = 0
    """The number of turns that the run had before."""

    def step_behind(self, step: StepRow) -> StepRow:
        """Returns a captured step as a step of the run, behind those that the run had before."""
        id, index, turn, *rest = step.columns
        return step._replace(columns=(id, index + self.steps, turn + self.turns, *rest))


def find_runs(db: sqlite3.Connection, name: str) -> list[int]:
    """Returns the `seq` of the run with this id, else of all that are called so, the latest last."""
    by_id = db.execute("SELECT seq FROM runs WHERE id = ?", (storable(name),)).fetchall()
    by_name = "SELECT run FROM names WHERE name = ? AND kind <> 'thread' ORDER BY run"
    return [row[0] for row in by_id or db.execute(by_name, (storable(name),))]


def find_run(db: sqlite3.Connection, name: str) -> int | None:
    """Returns the `seq` of the run with this id, else of the latest one that is called so; None where there is none."""
    return found[-1] if (found := find_runs(db, name)) else None


def find_part(db: sqlite3.Connection, id: str) -> tuple[StoredPart, bool] | None:
    """Returns the run, or the part of a run, that was captured under this id, and whether the run is open; None where
    there is none."""
    row = db.execute(
        "SELECT seq, id, 0, 0, 0, status FROM runs WHERE id = ?1 UNION ALL "
        "SELECT run, runs.id, part, steps, turns, status FROM names JOIN runs ON seq = run "
        "WHERE names.name = ?1 AND kind = 'part'",
        (storable(id),),
    ).fetchone()
    return None if row is None else (StoredPart(*row[:-1]), row[-1] == "open")


def note_caller_id(db: sqlite3.Connection, seq: int, run: Run) -> None:
    """Notes the id that the application gave to a run."""
    if caller_id := run.metadata.get(CALLER_ID):
        db.execute(_ADD, (storable(str(caller_id)), "caller", seq))


def note_waiting(db: sqlite3.Connection, seq: int, thread: str) -> None:
    """Notes the thread that an interrupted run waits for, so that any process finds the run."""
    db.execute(_ADD, (storable(thread), "thread", seq))


def go_on(db: sqlite3.Connection, run: Run, names: RunNames, owner: str) -> StoredPart | None:
    """Opens the stored run that a captured one goes on with, so that this process can append to it; its question stays.
    Returns None where the store has no such run."""
    waiting = "SELECT max(run) FROM names WHERE name = ? AND kind = 'thread'"
    seq = db.execute(waiting, (storable(names.thread),)).fetchone()[0] if names.thread else None
    if seq is None and names.caller_id:
        seq = find_run(db, names.caller_id)
    if seq is None:
        return None
    there = db.execute("SELECT id, body FROM runs WHERE seq = ?", (seq,)).fetchone()
    body: dict[str, Any] = json.loads(there["body"])
    body[PART] = body.get(PART, 0) + 1
    if run.references is not None:
        body["references"] = list(run.references)
    if run.sub_questions is not None:
        body["sub_questions"] = list(run.sub_questions)
    if run.metadata:
        body["metadata"] = {**plain_metadata(run.metadata), **body.get("metadata", {})}
    db.execute(
        "UPDATE runs SET status = 'open', owner = ?, due_ns = NULL, queued_ns = NULL, body = ?, attempts = 0, "
        "question = CASE question WHEN '' THEN ? ELSE question END, revision = revision + 1 WHERE seq = ?",
        (owner, dump(body), storable(run.question), seq),
    )
    db.execute("DELETE FROM names WHERE run = ? AND kind = 'thread'", (seq,))
    steps, turns = db.execute(
        "SELECT coalesce(max(idx) + 1, 0), coalesce(max(turn) + 1, 0) FROM steps WHERE run = ?", (seq,)
    ).fetchone()
    part = StoredPart(seq, there["id"], body[PART], steps=steps, turns=turns)
    db.execute(
        "INSERT INTO names (name, kind, run, part, steps, turns) VALUES (?, 'part', ?, ?, ?, ?)",
        (storable(run.id), seq, part.number, steps, turns),
    )
    return part


def forget_names(db: sqlite3.Connection, seq: int) -> None:
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


INSERT_STEP: Final = (
    f"INSERT INTO steps ({', '.join(STEP_COLUMNS)}, run) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
INSERT_RUN: Final = (
    "INSERT INTO runs (seq, id, name, question, answer, status, started_ns, ended_ns, body, owner, due_ns, queued_ns) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


@dataclass(slots=True)
class NewRun:
    """A run that begins in the present transaction, with its steps and its end so far."""

    run: Run
    """The run without its steps: as it began, or as it ended."""
    steps: dict[str, StepRow] = field(default_factory=dict)
    """Id → step; a step that is reported twice counts once."""
    end: RunEnded | None = None

    @property
    def is_open(self) -> bool:
        """True for a run that has not ended."""
        return self.end is None and self.run.status == "open"


def insert_new(
    db: sqlite3.Connection, new: Iterable[NewRun], needed: NeededTexts, owner: str, now: int, *, scored: bool
) -> range:
    """Writes new runs of an owner and their steps; returns the `seq` of each run. Their texts are noted in `needed`.

    A run that has ended is due to be scored; with `scored=False` it belongs to nobody.
    """
    first = _next_seq(db)
    runs: list[tuple[Any, ...]] = []
    steps: list[tuple[Any, ...]] = []
    time_slice = TimeSlice()
    opened = (owner, None, None)
    due = (owner, now, now) if scored else (None, None, None)
    for seq, one in enumerate(new, first):
        runs.append((seq, *_columns(one, needed, now), *(opened if one.is_open else due)))
        for step in one.steps.values():
            steps.append((*step.columns, seq))
            needed.add(step.digests)
        time_slice.rest_if_used()
    db.executemany(INSERT_RUN, runs)
    db.executemany(INSERT_STEP, steps)
    return range(first, first + len(runs))


def _columns(new: NewRun, needed: NeededTexts, now: int) -> tuple[Any, ...]:
    """Returns the columns of a run from `id` to `body`; notes its texts in `needed`."""
    run, end, table = new.run, new.end, PassageTable(needed.texts)
    body = run_data(run, table)
    question, answer, status, ended_ns = storable(run.question), run.answer, run.status, run.ended_ns
    if end is not None:
        add_end(body, end, table)
        question = storable(end.question) or question
        answer = answer if end.answer is None else end.answer
        status, ended_ns = end.status, end.ended_ns or now
    needed.add(table.digests)
    return (
        storable(run.id), storable(run.name), question, maybe(answer), status, run.started_ns, ended_ns,
        table.body(body),
    )  # fmt: skip


def _next_seq(db: sqlite3.Connection) -> int:
    """Returns the `seq` that SQLite would give to the next run."""
    last: int = db.execute(
        "SELECT max(coalesce((SELECT max(seq) FROM runs), 0), "
        "coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'runs'), 0))"
    ).fetchone()[0]
    return last + 1


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
            seqs = find_runs(db, run_id)
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

        ended = "SELECT seq FROM runs WHERE ended_ns < ? AND status <> 'open' ORDER BY ended_ns LIMIT ?"
        total, removed = 0, 1
        while removed:
            with self._db.transaction() as db:
                seqs = [row[0] for row in db.execute(ended, (ended_before_ns, REMOVED_AT_ONCE))]
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
        forget_names(connection, seq)
        connection.execute("DELETE FROM runs WHERE seq = ?", (seq,))
    release(connection, uses)


def _digests(body: str) -> list[bytes]:
    """Returns the digests of the texts that a row needs; none where another program has made the row unreadable: its
    texts stay, as nothing says which they are."""
    try:
        return digests_in(json.loads(body))
    except (ValueError, TypeError, AttributeError, LookupError):
        return []

"""The names of stored runs beside their ids, and the parts of a run that goes on.

The id of a run is made where the run begins. Beside it stand the id that the application gave, which later runs may
have too, and the thread that an interrupted run waits for. A part that goes on with a stored run is captured under an
id of its own, often by another process; its steps are written behind those that the run had before.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from typing import Any, NamedTuple

from ragguard.capture.events import CALLER_ID, RunNames
from ragguard.records import Run
from ragguard.storage.sqlite.columns import dump, storable
from ragguard.storage.sqlite.rows import StepRow
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


def call(db: sqlite3.Connection, seq: int, run: Run) -> None:
    """Notes the id that the application gave to a run."""
    if caller_id := run.metadata.get(CALLER_ID):
        db.execute(_ADD, (storable(str(caller_id)), "caller", seq))


def wait(db: sqlite3.Connection, seq: int, thread: str) -> None:
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


def forget(db: sqlite3.Connection, seq: int) -> None:
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

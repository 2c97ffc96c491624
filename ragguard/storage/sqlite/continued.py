"""Finds the stored run that captured events belong to: the run of that id, a new run with an id of its own, or a run to
continue.

A run whose id another run has gets an id of its own. A run that continues another one is appended to it: the numbers of
its steps go on, and the first question stays. Only the start event tells these cases apart, so the answer is kept for
the events that follow.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from ragguard.capture.events import ASKED, RunIdentity, RunStarted, renamed
from ragguard.records import Run
from ragguard.runtime.notices import NOTICES
from ragguard.storage.sqlite.columns import dump, storable
from ragguard.storage.sqlite.rows import StepRow
from ragguard.text.plain import plain_metadata

KEPT = 10_000
"""The number of runs with another id or a predecessor that are remembered, so that their events find them."""
TIMES_CONTINUED = "part"
"""Key in a run's body of the number of times it was continued."""
UNANNOUNCED = "unannounced"
"""Key in the body of a run that a step has opened, while the run's start is not known."""
_WAITING = "waiting:"
"""Prefix of keys in `meta`: the key that an interrupted run waits for → the run's id."""
_DELETED = "deleted:"
"""Prefix of keys in `meta`: the digest of the id of a run that was deleted while it was open."""


@dataclass(slots=True)
class StoredRun:
    """The stored run that the events of one captured run are written to."""

    run_id: str
    index: int = 0
    """The number of steps that the run had before."""
    turn: int = 0
    """The number of turns that the run had before."""
    times_continued: int = 0
    unwritten: RunStarted | None = None
    """The start of a run that is written with its first step, if there is any."""
    dropped: bool = False
    """True for a run of which nothing is recorded."""

    def step_behind(self, step: StepRow) -> StepRow:
        """Returns a captured step as a step of this run, behind those that the run had before."""
        id, index, turn, *rest = step.columns
        return step._replace(run_id=self.run_id, columns=(id, index + self.index, turn + self.turn, *rest))


class ContinuedRuns:
    """The captured runs of one process that have another id in the store, or continue a stored run; by the id under
    which they are captured."""

    def __init__(self) -> None:
        self._stored: OrderedDict[str, StoredRun] = OrderedDict()
        self._ended: OrderedDict[str, None] = OrderedDict()

    def keep_ended(self, run_ids: Iterable[str]) -> None:
        """Remembers runs that have ended, so that a run which is continued counts once."""
        self._ended.update(dict.fromkeys(run_ids))
        while len(self._ended) > KEPT:
            self._ended.popitem(last=False)

    def has_ended(self, run_id: str) -> bool:
        """Returns whether the end of a run was written here before."""
        return run_id in self._ended

    def get(self, run_id: str) -> StoredRun | None:
        """Returns where the events of such a run are written; None for any other run."""
        return self._stored.get(run_id)

    def begin(self, db: sqlite3.Connection, owner: str, event: RunStarted) -> Run | None:
        """Finds the stored run of a run that begins. Returns the run to be written; None where nothing is to be written
        now."""
        run, identity = event.run, event.identity
        if identity is None:
            return run
        self._stored.pop(run.id, None)
        sought = _waiting(db, identity.thread)
        if not sought and (identity.resumes or not identity.thread):
            sought = run.id
        there = _row(db, sought) if sought else None
        if there is None:
            forget_deleted(db, sought or run.id)
            return self._begin_new(event, identity)
        if _is_same(there, run, owner):
            return replace(run, id=sought)
        if identity.continues:
            db.execute("DELETE FROM meta WHERE key = ?", (_key(identity.thread),))
            identity.stored = sought
            self._keep(run.id, _continued(db, there, run, owner))
            return None
        return self._begin_with_fresh_id(run, identity)

    def begin_unwritten(self, stored: StoredRun) -> Run | None:
        """Returns the run whose start waited for its first step; None where its start was written before."""
        if stored.unwritten is None:
            return None
        del self._stored[stored.run_id]
        return stored.unwritten.run

    def _begin_new(self, event: RunStarted, identity: RunIdentity) -> Run | None:
        run = event.run
        if identity.otherwise == "drop":
            self._keep(run.id, StoredRun(run.id, dropped=True))
            return None
        if identity.otherwise == "begin with a step":
            self._keep(run.id, StoredRun(run.id, unwritten=event))
            return None
        return run

    def _begin_with_fresh_id(self, run: Run, identity: RunIdentity) -> Run:
        if identity.stored != identity.fresh:  # else the batch is repeated
            NOTICES.warn("run id used twice", renamed(run.id, identity.fresh), pause=1.0)
        identity.stored = identity.fresh
        self._keep(run.id, StoredRun(identity.fresh))
        return replace(run, id=identity.fresh, metadata={**run.metadata, ASKED: run.id})

    def _keep(self, captured_id: str, stored: StoredRun) -> None:
        self._stored[captured_id] = stored
        if len(self._stored) > KEPT:
            self._stored.popitem(last=False)


def wait(db: sqlite3.Connection, thread: str, run_id: str) -> None:
    """Notes the key that an interrupted run waits for, so that any process finds the run."""
    db.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (_key(thread), storable(run_id)))


def forget_waiting(db: sqlite3.Connection, run_id: str) -> None:
    """Forgets the key that a deleted run waited for."""
    db.execute("DELETE FROM meta WHERE key >= ? AND key < ? AND value = ?", (_WAITING, "waiting;", run_id))


def note_deleted(db: sqlite3.Connection, run_id: str) -> None:
    """Notes that a run was deleted while it was open, so that no later event of any process brings it back."""
    db.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, '')", (_deleted_key(run_id),))


def was_deleted(db: sqlite3.Connection, run_id: str) -> bool:
    """Returns whether a run was deleted while it was open, and has not ended since."""
    return db.execute("SELECT 1 FROM meta WHERE key = ?", (_deleted_key(run_id),)).fetchone() is not None


def forget_deleted(db: sqlite3.Connection, run_id: str) -> None:
    """Forgets that a run was deleted: it has ended, or another one with its id begins."""
    db.execute("DELETE FROM meta WHERE key = ?", (_deleted_key(run_id),))


def _deleted_key(run_id: str) -> str:
    """Returns a key that does not show the id, of which nothing may be left."""
    return _DELETED + hashlib.sha256(storable(run_id).encode("utf-8", "replace")).hexdigest()


def _continued(db: sqlite3.Connection, there: sqlite3.Row, run: Run, owner: str) -> StoredRun:
    """Opens an ended run again, so that this process can append to it; its question stays."""
    seq = there["seq"]
    index, turn = db.execute(
        "SELECT coalesce(max(idx) + 1, 0), coalesce(max(turn) + 1, 0) FROM steps WHERE run = ?", (seq,)
    ).fetchone()
    body: dict[str, Any] = json.loads(there["body"])
    body[TIMES_CONTINUED] = body.get(TIMES_CONTINUED, 0) + 1
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
    return StoredRun(there["id"], index, turn, body[TIMES_CONTINUED])


def _row(db: sqlite3.Connection, run_id: str) -> sqlite3.Row | None:
    row: sqlite3.Row | None = db.execute(
        "SELECT seq, id, status, question, started_ns, body, owner FROM runs WHERE id = ?",
        (storable(run_id),),
    ).fetchone()
    return row


def _is_same(there: sqlite3.Row, run: Run, owner: str) -> bool:
    """True where the stored run is the same run: a repeated batch has written it before, or a step has opened it."""
    if there["started_ns"] == run.started_ns:
        return True
    return there["owner"] == owner and UNANNOUNCED in json.loads(there["body"])


def _waiting(db: sqlite3.Connection, thread: str) -> str:
    if not thread:
        return ""
    row = db.execute("SELECT value FROM meta WHERE key = ?", (_key(thread),)).fetchone()
    return "" if row is None else str(row[0])


def _key(thread: str) -> str:
    return storable(_WAITING + thread)

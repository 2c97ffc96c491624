"""Keeps account of the runs that a process has still to score or deliver, writes whole runs that are to be scored or
come with their scores, and stores the results of scoring, each score once.

In memory it lets go of what is beyond the bounds.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ragguard.errors import InvalidInput
from ragguard.records import Failure, Run, Score, ScoredRun
from ragguard.runtime.deadline import now_ns
from ragguard.runtime.faults import NOTICES
from ragguard.storage.sqlite import reading
from ragguard.storage.sqlite.owners import make_due
from ragguard.storage.sqlite.schema import dump, storable
from ragguard.storage.sqlite.score_rows import (
    clear_provisional,
    delete_of_origins,
    insert_in_place,
    insert_scores,
    replace_changed,
)
from ragguard.storage.sqlite.stored_runs import REMOVED_AT_ONCE, delete_runs, find_run
from ragguard.storage.sqlite.writing import Writing
from ragguard.text.plain import plain_metadata

INSERT_SCORING: Final = (
    "INSERT INTO scorings (run, identity, revision, finished) VALUES (?, ?, ?, ?) "
    "ON CONFLICT (run, identity) DO UPDATE SET revision = excluded.revision, finished = excluded.finished"
)


class Due(NamedTuple):
    """A run that its owner has to score or deliver."""

    seq: int
    run_id: str
    revision: int
    attempts: int
    score: bool
    """False where the run is scored and only to be delivered to the sinks."""


class Claim(NamedTuple):
    """A run to be scored or delivered; nobody else gets the run until it is stored or released."""

    due: Due
    run: Run
    unsent: list[Score]
    """The scores of the run that no sink has received yet."""


class Submission(NamedTuple):
    """A run that a caller has put in and scores itself."""

    due: Due
    scored: bool
    """True where the same settings have scored the run already; it is then not claimed."""


class Left(NamedTuple):
    """The number of runs that a process has still to score or deliver."""

    pending: int
    open: int
    next_ns: int | None
    """The time at which the first of the pending runs is due."""
    retrying: int = 0
    """The number of pending runs that failed before and are tried again."""
    undelivered: int = 0
    """The number of pending runs that are scored, or kept without a score, and still to be delivered to the sinks."""


@dataclass(frozen=True, slots=True)
class ScoringOutcome:
    """The result of scoring one revision of a run."""

    run_id: str
    identity: str
    revision: int
    scores: Sequence[Score] = ()
    failures: Sequence[Failure] = ()
    retry_ns: int | None = None
    """The time at which to score the run again; None where nothing is left to score."""
    emit: bool = False
    """True where the result is to be delivered to the sinks."""
    attempts: int = 1
    references: Sequence[str] | None = None
    """References that were found while scoring; kept with the run."""
    uncertain: Collection[tuple[str, str]] = ()
    """The scorers, each with a step's id or "", that could not give all their scores for now; their provisional
    scores of the open run stay until they can."""

    @property
    def says_something(self) -> bool:
        """True where sinks get the run although no score is new: with failures, and once for a run that has no
        scores at all, such as one whose retrieval failed."""
        return bool(self.failures) or (not self.scores and self.attempts == 1)


def due(connection: sqlite3.Connection, owner: str, limit: int) -> list[Due]:
    """Returns the first runs that a process has to score or deliver."""
    rows = connection.execute(
        "SELECT seq, id, revision, attempts, due_ns FROM runs "
        "WHERE owner = ? AND (due_ns <= ? OR emit_after IS NOT NULL) ORDER BY due_ns, seq LIMIT ?",
        (owner, now_ns(), limit),
    )
    return [
        Due(row["seq"], row["id"], row["revision"], row["attempts"], score=row["due_ns"] is not None)
        for row in rows
    ]


def next_due(connection: sqlite3.Connection, owner: str) -> int | None:
    """Returns the first time after now at which a run of a process is to be scored; None where there is none."""
    found: int | None = connection.execute(
        "SELECT min(due_ns) FROM runs WHERE owner = ? AND due_ns > ?", (owner, now_ns())
    ).fetchone()[0]
    return found


def claim_of(connection: sqlite3.Connection, due: Due) -> Claim:
    """Returns a due run with its scores that no sink has received yet."""
    run = reading.runs_at(connection, [due.seq])[due.seq]
    return Claim(due, run, reading.unsent_scores(connection, due.seq, due.run_id))


def left(connection: sqlite3.Connection, owner: str, queued_until_ns: int | None = None) -> Left:
    """Returns what a process still has to do, of the runs that were queued until that time."""
    until = queued_until_ns if queued_until_ns is not None else now_ns()
    pending, next_ns, retrying, undelivered = connection.execute(
        "SELECT count(*), min(due_ns), count(*) FILTER (WHERE due_ns IS NOT NULL AND attempts > 0), "
        "count(*) FILTER (WHERE due_ns IS NULL) FROM runs "
        "WHERE owner = ? AND (due_ns IS NOT NULL OR emit_after IS NOT NULL) AND queued_ns <= ?",
        (owner, until),
    ).fetchone()
    opened = connection.execute(
        "SELECT count(*) FROM runs WHERE owner = ? AND status = 'open'", (owner,)
    ).fetchone()[0]
    return Left(pending, opened, next_ns, retrying=retrying, undelivered=undelivered)


def is_scored(connection: sqlite3.Connection, seq: int, identity: str) -> bool:
    """Returns whether a scoring with these settings is finished for the present revision of the run."""
    row = connection.execute(
        "SELECT 1 FROM scorings JOIN runs ON runs.seq = scorings.run "
        "WHERE run = ? AND identity = ? AND finished AND scorings.revision = runs.revision",
        (seq, identity),
    ).fetchone()
    return row is not None


def store_outcome(connection: sqlite3.Connection, outcome: ScoringOutcome) -> list[Score]:
    """Stores scores, each once, and failures in place of those of the last attempt; returns the new scores."""
    head = connection.execute(
        "SELECT seq, revision FROM runs WHERE id = ?", (storable(outcome.run_id),)
    ).fetchone()
    if head is None:
        return []  # deleted meanwhile
    run = head["seq"]
    last = connection.execute("SELECT coalesce(max(seq), 0) FROM scores WHERE run = ?", (run,)).fetchone()[0]
    scored = connection.execute(
        "SELECT revision FROM scorings WHERE run = ? AND identity = ?", (run, outcome.identity)
    ).fetchone()
    earlier = clear_provisional(connection, run, outcome.scores, outcome.uncertain)
    if scored is not None and scored["revision"] < outcome.revision:
        # The run has changed since then: its earlier scores by the same settings are no longer valid.
        delete_of_origins(connection, run, outcome.scores)
    if earlier:
        new = insert_in_place(connection, run, outcome.scores, earlier)
    else:
        new = insert_scores(connection, run, outcome.scores)
    connection.execute("DELETE FROM failures WHERE run = ? AND identity IN (?, '')", (run, outcome.identity))
    insert_failures(connection, run, outcome.identity, outcome.failures)
    finished = outcome.retry_ns is None
    connection.execute(INSERT_SCORING, (run, outcome.identity, outcome.revision, finished))
    if outcome.emit and (new or outcome.says_something):
        connection.execute("UPDATE runs SET emit_after = coalesce(emit_after, ?) WHERE seq = ?", (last, run))
    keep_references(connection, run, outcome.references)
    if outcome.revision == head["revision"]:
        connection.execute(
            "UPDATE runs SET due_ns = ?, attempts = ? WHERE seq = ?",
            (outcome.retry_ns, outcome.attempts, run),
        )
    _let_go(connection, run)
    return new


def keep_unscored(connection: sqlite3.Connection, due: Due, *, emit: bool) -> None:
    """Marks a run as not to be scored now; it can be scored later."""
    connection.execute(
        "UPDATE runs SET due_ns = NULL, emit_after = CASE WHEN ? THEN coalesce(emit_after, "
        "(SELECT coalesce(max(seq), 0) FROM scores WHERE run = runs.seq)) ELSE emit_after END "
        "WHERE seq = ? AND revision = ?",
        (emit, due.seq, due.revision),
    )
    _let_go(connection, due.seq)


def emitted(connection: sqlite3.Connection, run_id: str) -> None:
    """Marks a run as delivered to the sinks."""
    seq = find_run(connection, run_id)
    if seq is not None:
        connection.execute("UPDATE runs SET emit_after = NULL WHERE seq = ?", (seq,))
        _let_go(connection, seq)


def give_up(connection: sqlite3.Connection, due: Due, reason: str) -> None:
    """Marks a run that cannot be read as done, with the reason as a failure."""
    message = f"the run cannot be read from the store ({reason}), so it is not scored"
    insert_failures(connection, due.seq, "", [Failure("store", "StoreError", message, run_id=due.run_id)])
    connection.execute("UPDATE runs SET due_ns = NULL, emit_after = NULL WHERE seq = ?", (due.seq,))
    _let_go(connection, due.seq)


def keep_all_unscored(connection: sqlite3.Connection, owner: str) -> None:
    """Marks all ended runs of an owner as not to be scored, for a process that only captures."""
    connection.execute(
        "UPDATE runs SET owner = NULL, due_ns = NULL, queued_ns = NULL WHERE owner = ? AND due_ns IS NOT NULL",
        (owner,),
    )


def insert_failures(
    connection: sqlite3.Connection, run: int, identity: str, failures: Sequence[Failure]
) -> None:
    """Writes failures of a run."""
    connection.executemany(
        "INSERT INTO failures (run, identity, step_id, scorer, error, message, will_retry, attempts, occurred_ns) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                run, identity, storable(one.step_id), storable(one.scorer), storable(one.error),
                storable(one.message), one.will_retry, one.attempts, one.occurred_ns,
            )
            for one in failures
        ],
    )  # fmt: skip


def _let_go(connection: sqlite3.Connection, run: int) -> None:
    connection.execute(
        "UPDATE runs SET owner = NULL, queued_ns = NULL WHERE seq = ? AND due_ns IS NULL "
        "AND emit_after IS NULL AND status <> 'open'",
        (run,),
    )


def store_provisional(
    connection: sqlite3.Connection,
    run_id: str,
    scores: Sequence[Score],
    failures: Sequence[Failure],
    references: Sequence[str] | None,
) -> list[Score] | None:
    """Stores the provisional results of an open run; returns the scores that are new or have changed. Returns None
    and stores nothing where the run has ended since. No settings count as done for the run."""
    head = connection.execute("SELECT seq, status FROM runs WHERE id = ?", (storable(run_id),)).fetchone()
    if head is None or head["status"] != "open":
        return None
    run = head["seq"]
    connection.execute("DELETE FROM failures WHERE run = ?", (run,))
    insert_failures(connection, run, "", failures)
    keep_references(connection, run, references)
    return replace_changed(connection, run, scores)


def keep_references(connection: sqlite3.Connection, run: int, references: Sequence[str] | None) -> None:
    """Writes references that were found while scoring into the run; None leaves it as it is."""
    if references is not None:
        body = json.loads(connection.execute("SELECT body FROM runs WHERE seq = ?", (run,)).fetchone()[0])
        body["references"] = list(references)
        connection.execute("UPDATE runs SET body = ? WHERE seq = ?", (dump(body), run))


MEMORY_RUNS = 10_000
MEMORY_BYTES = 256 * 2**20


def drop_waiting(memory: sqlite3.Connection, owner: str, most: int, claimed: Collection[str]) -> int:
    """Drops the owner's oldest runs that wait to be scored beyond `most`, with a failure each; returns how many."""
    surplus = left(memory, owner).pending - most
    if surplus <= 0:
        return 0
    rows = memory.execute(
        "SELECT seq, id FROM runs WHERE owner = ? AND due_ns IS NOT NULL ORDER BY queued_ns, seq LIMIT ?",
        (owner, surplus + len(claimed)),
    ).fetchall()
    dropped = [row for row in rows if row["id"] not in claimed][:surplus]
    for row in dropped:
        message = (
            "more runs waited to be scored than queue_size allows, so this one was let go; raise queue_size, "
            "sample less, or give RagGuard a store, where nothing is dropped"
        )
        insert_failures(memory, row["seq"], "", [Failure("queue", "QueueFull", message, run_id=row["id"])])
        memory.execute("UPDATE runs SET due_ns = NULL WHERE seq = ?", (row["seq"],))
        _let_go(memory, row["seq"])
    return len(dropped)


def warn_of_dropped(store: object, dropped: int, most: int) -> None:
    """Warns that runs of a store were dropped unscored, and says how to keep them."""
    NOTICES.warn(
        f"dropped {id(store)}",
        f"{dropped:,} runs so far were let go unscored: more than {most:,} waited, which is the bound without a "
        "store. Raise queue_size=, score a share with score_rate=, score runs at hand with rg.score_runs(...), "
        "which waits, or give RagGuard a store, where nothing is dropped",
    )


def is_full(memory: sqlite3.Connection) -> bool:
    """Returns whether memory holds more runs or bytes than it may."""
    if reading.count_runs(memory) > MEMORY_RUNS:
        return True
    pages, free, size = (
        int(memory.execute(f"PRAGMA {name}").fetchone()[0])
        for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * size > MEMORY_BYTES


def evict_done(memory: sqlite3.Connection) -> None:
    """Removes the oldest runs for which nothing is left to do."""
    done = "WHERE owner IS NULL ORDER BY seq LIMIT ?"
    delete_runs(memory, reading.find_seqs(memory, done, REMOVED_AT_ONCE))


def write_scored(db: sqlite3.Connection, scored: Iterable[ScoredRun], owner: str) -> None:
    """Writes runs with their scores and failures. A run that is there gets more scores."""
    for one in scored:
        writing = Writing(db, owner)  # one a run, so that the texts of one run alone are in memory
        writing.write_run(one.run)
        writing.finish()
        seq = find_run(db, one.run.id)
        assert seq is not None
        insert_scores(db, seq, one.scores)
        insert_failures(db, seq, "", one.failures)


def write_due(
    db: sqlite3.Connection, runs: Iterable[Run], owner: str, *, scored: bool
) -> dict[str, InvalidInput]:
    """Writes runs in place of the stored ones of their ids; those that are new or different become due, unless nothing
    is `scored`. Returns the errors of those that cannot be written, by their ids."""
    refused: dict[str, InvalidInput] = {}
    writing = Writing(db, owner)
    for run in runs:
        try:
            changed = writing.write_run(run)
        except InvalidInput as error:
            refused[run.id] = error
            continue
        if changed and scored:
            seq = db.execute("SELECT seq FROM runs WHERE id = ?", (storable(run.id),)).fetchone()[0]
            make_due(db, seq, owner, now_ns())
    writing.finish()
    return refused


def add_metadata(
    db: sqlite3.Connection, run_id: str, metadata: Mapping[str, Any], *, due_with: str = ""
) -> bool:
    """Adds metadata to a stored run, open or not; returns False where it is not there. One that has ended is due again
    with the owner `due_with`, where one is named."""
    seq = find_run(db, run_id)
    if seq is None:
        return False
    run = db.execute("SELECT body, status FROM runs WHERE seq = ?", (seq,)).fetchone()
    body = json.loads(run["body"])
    body["metadata"] = {**body.get("metadata", {}), **plain_metadata(metadata)}
    db.execute("UPDATE runs SET body = ? WHERE seq = ?", (dump(body), seq))
    if due_with and run["status"] != "open":
        db.execute("UPDATE runs SET revision = revision + 1, attempts = 0 WHERE seq = ?", (seq,))
        make_due(db, seq, due_with, now_ns())
    return True

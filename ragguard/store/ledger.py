"""The runs that a process has still to score or deliver, and the results of scoring: each score stored once."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ragguard.plain import plain_metadata
from ragguard.records import Failure, Score
from ragguard.runtime.clock import now_ns
from ragguard.store.columns import dump, storable
from ragguard.store.rows import key_of, usage_text


class Due(NamedTuple):
    """A run that its owner has to score or deliver."""

    seq: int
    run_id: str
    revision: int
    attempts: int
    score: bool
    """False where the run is scored and only to be delivered to the sinks."""


class Left(NamedTuple):
    """How many runs a process has still to score or deliver."""

    pending: int
    open: int
    next_ns: int | None
    """When the first of the pending runs is due."""
    retrying: int = 0
    """How many of the pending runs failed before and are tried again."""


@dataclass(frozen=True, slots=True)
class ScoringOutcome:
    """The result of scoring one revision of a run."""

    run_id: str
    identity: str
    revision: int
    scores: Sequence[Score] = ()
    failures: Sequence[Failure] = ()
    retry_ns: int | None = None
    """When to score the run again; None where nothing is left to score."""
    emit: bool = False
    """Whether the result is to be delivered to the sinks."""
    attempts: int = 1
    references: Sequence[str] | None = None
    """References that were found while scoring; kept with the run."""

    @property
    def says_something(self) -> bool:
        """Whether sinks hear of it where no score is new: of failures; and once of a run of which there is nothing to
        say, such as one whose retrieval failed."""
        return bool(self.failures) or (not self.scores and self.attempts == 1)


# What is due


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


def left(connection: sqlite3.Connection, owner: str, queued_until_ns: int | None = None) -> Left:
    """Returns what a process still has to do, of the runs that were queued until that time."""
    until = queued_until_ns if queued_until_ns is not None else now_ns()
    pending, next_ns, retrying = connection.execute(
        "SELECT count(*), min(due_ns), count(*) FILTER (WHERE due_ns IS NOT NULL AND attempts > 0) FROM runs "
        "WHERE owner = ? AND (due_ns IS NOT NULL OR emit_after IS NOT NULL) AND queued_ns <= ?",
        (owner, until),
    ).fetchone()
    opened = connection.execute(
        "SELECT count(*) FROM runs WHERE owner = ? AND status = 'open'", (owner,)
    ).fetchone()[0]
    return Left(pending, opened, next_ns, retrying)


def is_settled(connection: sqlite3.Connection, seq: int, identity: str) -> bool:
    """Returns whether a scoring with these settings is finished for the present revision of the run."""
    row = connection.execute(
        "SELECT 1 FROM scorings JOIN runs ON runs.seq = scorings.run "
        "WHERE run = ? AND identity = ? AND finished AND scorings.revision = runs.revision",
        (seq, identity),
    ).fetchone()
    return row is not None


# What came of it


def settle(connection: sqlite3.Connection, outcome: ScoringOutcome) -> list[Score]:
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
    if scored is not None and scored["revision"] < outcome.revision:
        # The run has changed since: what the same settings said of it then no longer holds.
        origins: dict[tuple[str, ...], int] = {}
        connection.executemany(
            "DELETE FROM scores WHERE run = ? AND origin = ?",
            {(run, _origin(connection, score, origins)) for score in outcome.scores},
        )
    new = insert_scores(connection, run, outcome.scores)
    connection.execute("DELETE FROM failures WHERE run = ? AND identity IN (?, '')", (run, outcome.identity))
    insert_failures(connection, run, outcome.identity, outcome.failures)
    connection.execute(
        "INSERT INTO scorings (run, identity, revision, finished) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (run, identity) DO UPDATE SET revision = excluded.revision, finished = excluded.finished",
        (run, outcome.identity, outcome.revision, outcome.retry_ns is None),
    )
    if outcome.emit and (new or outcome.says_something):
        connection.execute("UPDATE runs SET emit_after = coalesce(emit_after, ?) WHERE seq = ?", (last, run))
    if outcome.references is not None:
        body = json.loads(connection.execute("SELECT body FROM runs WHERE seq = ?", (run,)).fetchone()[0])
        body["references"] = list(outcome.references)
        connection.execute("UPDATE runs SET body = ? WHERE seq = ?", (dump(body), run))
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
    row = connection.execute("SELECT seq FROM runs WHERE id = ?", (storable(run_id),)).fetchone()
    if row is not None:
        connection.execute("UPDATE runs SET emit_after = NULL WHERE seq = ?", (row["seq"],))
        _let_go(connection, row["seq"])


def drop(
    connection: sqlite3.Connection, owner: str, surplus: int, *, newest: bool, but: Collection[str]
) -> int:
    """Drops runs that wait to be scored, with a failure each; returns how many."""
    rows = connection.execute(
        "SELECT seq, id FROM runs WHERE owner = ? AND due_ns IS NOT NULL ORDER BY queued_ns "
        f"{'DESC' if newest else 'ASC'}, seq {'DESC' if newest else 'ASC'} LIMIT ?",
        (owner, surplus + len(but)),
    ).fetchall()
    dropped = [row for row in rows if row["id"] not in but][:surplus]
    for row in dropped:
        message = (
            "more runs waited to be scored than queue_size allows, so this one was let go; raise queue_size, "
            "sample less, or give RagGuard a store, where nothing is dropped"
        )
        insert_failures(
            connection, row["seq"], "", [Failure("queue", "QueueFull", message, run_id=row["id"])]
        )
        connection.execute("UPDATE runs SET due_ns = NULL WHERE seq = ?", (row["seq"],))
        _let_go(connection, row["seq"])
    return len(dropped)


def give_up(connection: sqlite3.Connection, reasons: Mapping[str, str]) -> None:
    """Marks runs that cannot be read as done, with the reason as a failure."""
    for run_id, reason in reasons.items():
        row = connection.execute(  # the id itself may be what is wrong
            "SELECT seq FROM runs WHERE CAST(id AS BLOB) = ?", (run_id.encode("utf-8", "replace"),)
        ).fetchone()
        if row is None:
            continue
        message = f"the run cannot be read from the store ({reason}), so it is not scored"
        insert_failures(connection, row[0], "", [Failure("store", "StoreError", message, run_id=run_id)])
        connection.execute("UPDATE runs SET due_ns = NULL, emit_after = NULL WHERE seq = ?", (row[0],))
        _let_go(connection, row[0])


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


def insert_scores(connection: sqlite3.Connection, run: int, scores: Sequence[Score]) -> list[Score]:
    """Writes the scores that are not stored yet; returns those."""
    origins: dict[tuple[str, ...], int] = {}
    rows = [_score_row(connection, run, score, origins) for score in scores]
    if connection.execute("SELECT 1 FROM scores WHERE run = ? LIMIT 1", (run,)).fetchone() is None:
        connection.executemany(_INSERT_SCORE, rows)
        return list({row[1]: score for row, score in zip(rows, scores, strict=True)}.values())
    return [
        score
        for row, score in zip(rows, scores, strict=True)
        if connection.execute(_INSERT_SCORE, row).rowcount > 0
    ]


_INSERT_SCORE = (
    "INSERT INTO scores (run, key, name, value, level, step_id, passage_id, position, stage, sub_question, "
    "stderr, expectation, label, explanation, origin, usage, metadata) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO NOTHING"
)


def _score_row(
    connection: sqlite3.Connection, run: int, score: Score, origins: dict[tuple[str, ...], int]
) -> tuple[Any, ...]:
    return (
        run, key_of(score), score.name, float(score.value), score.level, storable(score.step_id),
        storable(score.passage_id), score.position, score.stage, score.sub_question, score.stderr,
        score.expectation, storable(score.label), storable(score.explanation),
        _origin(connection, score, origins), usage_text(score.usage),
        dump(plain_metadata(score.metadata)) if score.metadata else "",
    )  # fmt: skip


def _origin(connection: sqlite3.Connection, score: Score, known: dict[tuple[str, ...], int]) -> int:
    """Returns the id of the row that names scorer, engine, prompts and references; scores share such rows."""
    values = (
        score.scorer, score.version, score.engine, score.prompts, score.references_hash,
        score.reference_source,
    )  # fmt: skip
    if values in known:
        return known[values]
    stored = tuple(map(storable, values))
    connection.execute(
        "INSERT OR IGNORE INTO origins (scorer, version, engine, prompts, references_hash, reference_source) "
        "VALUES (?, ?, ?, ?, ?, ?)",
        stored,
    )
    row = connection.execute(
        "SELECT id FROM origins WHERE scorer = ? AND version = ? AND engine = ? AND prompts = ? "
        "AND references_hash = ? AND reference_source = ?",
        stored,
    ).fetchone()
    known[values] = row[0]
    return known[values]

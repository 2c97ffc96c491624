"""Reads runs, scores and failures out of the tables, inside the caller's transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from ragguard.records import Failure, Level, Run, Score, ScoredRun
from ragguard.storage.sqlite.passages import digests_in
from ragguard.storage.sqlite.rows import run_of, step_of, usage_of
from ragguard.storage.sqlite.schema import Data

_MOST_PARAMETERS = 500

Origin: TypeAlias = tuple[Any, ...]
"""The values that many scores share: reference_source, engine, prompts, scorer, version, references_hash."""

# `_score_of` reads the columns in this order. What many scores share, their origin, is read once and not joined.
_SCORES = (
    "SELECT scores.seq, run, name, value, level, step_id, passage_id, position, stderr, label, explanation, usage, "
    "sub_question, expectation, metadata, stage, origin FROM scores WHERE {} ORDER BY scores.seq"
)
_ORIGINS = (
    "SELECT id, reference_source, engine, prompts, scorer, version, references_hash FROM origins "
    "WHERE id IN ({})"
)


def find_seqs(connection: sqlite3.Connection, clauses: str, *values: object) -> list[int]:
    """Returns the `seq` of the runs that SQL clauses select (`WHERE`, `ORDER BY`, `LIMIT`)."""
    return [row[0] for row in connection.execute(f"SELECT seq FROM runs {clauses}", values)]


def runs_at(connection: sqlite3.Connection, seqs: Iterable[int], *, texts: bool = True) -> dict[int, Run]:
    """Returns the runs with these `seq`, with their steps, in order; raises where a row cannot be read."""
    heads, steps = rows_at(connection, seqs)
    known = texts_of(connection, [body for _, body in heads + steps]) if texts else {}
    runs = {row["seq"]: run_of(row, body, known) for row, body in heads}
    for row, body in steps:
        run = runs[row["run"]]
        run.steps.append(step_of(row, body, run.id, known))
    return runs


def scores_at(
    connection: sqlite3.Connection, runs: dict[int, str], level: Level | None = None, *, unsent: bool = False
) -> dict[int, list[Score]]:
    """Returns the scores of the runs (`seq` → id), or those of one level, or those that no sink has received yet, in
    the order in which they were stored."""
    scores: dict[int, list[Score]] = {seq: [] for seq in runs}
    cursor = connection.cursor()
    cursor.row_factory = None  # plain tuples, since there may be a million rows
    wanted, of_level = ("", ()) if level is None else ("level = ? AND ", (level,))
    wanted += "scores.seq > (SELECT emit_after FROM runs WHERE seq = scores.run) AND " if unsent else ""
    rows = list(chunks(cursor, _SCORES.format(f"{wanted}run IN ({{}})"), list(runs), *of_level))
    origins = origins_of(connection, {row[-1] for row in rows})
    for row in rows:
        scores[row[1]].append(_score_of(row, runs[row[1]], origins[row[-1]]))
    return scores


def scored_at(
    connection: sqlite3.Connection, seqs: Iterable[int], *, texts: bool = True, level: Level | None = None
) -> dict[int, ScoredRun]:
    """Returns the runs with these `seq`, with their failures and their scores, of one level where one is named."""
    runs = runs_at(connection, seqs, texts=texts)
    ids = {seq: run.id for seq, run in runs.items()}
    scores, failures = scores_at(connection, ids, level), failures_at(connection, ids)
    return {seq: ScoredRun(run, scores[seq], failures[seq]) for seq, run in runs.items()}


def _score_of(row: Sequence[Any], run_id: str, origin: Origin) -> Score:
    (
        _, _, name, value, level, step_id, passage_id, position, stderr, label, explanation, usage,
        sub_question, expectation, metadata, stage, _,
    ) = row  # fmt: skip
    reference_source, engine, prompts, scorer, version, references_hash = origin
    return Score(
        name, value, level, run_id, step_id=step_id, passage_id=passage_id, position=position,
        stderr=stderr, label=label, explanation=explanation, reference_source=reference_source,
        engine=engine, prompts=prompts, usage=usage_of(usage), scorer=scorer,
        version=version, references_hash=references_hash, sub_question=sub_question,
        expectation=expectation, metadata=json.loads(metadata) if metadata else {}, stage=stage,
    )  # fmt: skip


def failures_at(connection: sqlite3.Connection, runs: dict[int, str]) -> dict[int, list[Failure]]:
    """Returns the failures of the runs (`seq` → id)."""
    failures: dict[int, list[Failure]] = {seq: [] for seq in runs}
    for row in chunks(connection, "SELECT * FROM failures WHERE run IN ({}) ORDER BY seq", list(runs)):
        failures[row["run"]].append(
            Failure(
                row["scorer"], row["error"], row["message"], bool(row["will_retry"]), run_id=runs[row["run"]],
                step_id=row["step_id"], attempts=row["attempts"], occurred_ns=row["occurred_ns"],
            )
        )  # fmt: skip
    return failures


def documents_at(connection: sqlite3.Connection, seqs: Sequence[int]) -> dict[int, set[str]]:
    """Returns the digests of the passages that the runs with these `seq` saw; raises where a row cannot be read."""
    found: dict[int, set[str]] = {seq: set() for seq in seqs}
    items = (
        "SELECT DISTINCT run, json_extract(item.value, '$[0]') FROM steps, json_each(body, '$.items') AS item "
        "WHERE run IN ({})"
    )
    for seq, digest in chunks(connection, items, seqs):
        found[seq].add(digest)
    return found


def origins_of(connection: sqlite3.Connection, numbers: Iterable[int]) -> dict[int, Origin]:
    """Returns the origins with these numbers."""
    found = chunks(connection, _ORIGINS, list(numbers))
    return {number: tuple(origin) for number, *origin in found}


def rows_at(
    connection: sqlite3.Connection, seqs: Iterable[int]
) -> tuple[list[tuple[sqlite3.Row, Data]], list[tuple[sqlite3.Row, Data]]]:
    """Returns the rows of runs and of their steps, in order, each with its body; raises where one cannot be read."""
    runs, steps = (
        [(row, json.loads(row["body"])) for row in chunks(connection, statement, list(seqs))]
        for statement in (
            "SELECT * FROM runs WHERE seq IN ({}) ORDER BY seq",
            "SELECT * FROM steps WHERE run IN ({}) ORDER BY run, idx, seq",
        )
    )
    return runs, steps


def texts_of(connection: sqlite3.Connection, bodies: Sequence[Data]) -> dict[str, str]:
    """Returns the texts that bodies need, by digest."""
    wanted = list({digest for body in bodies for digest in digests_in(body)})
    rows = chunks(connection, "SELECT digest, text FROM passages WHERE digest IN ({})", wanted)
    return {row["digest"].hex(): row["text"] for row in rows}


def chunks(
    connection: sqlite3.Connection | sqlite3.Cursor, statement: str, values: Sequence[Any], *before: object
) -> Iterator[sqlite3.Row]:
    """Yields the rows of a statement over more values than SQLite takes at once, behind the parameters `before`."""
    for start in range(0, len(values), _MOST_PARAMETERS):
        chunk = values[start : start + _MOST_PARAMETERS]
        yield from connection.execute(
            statement.format(",".join("?" * len(chunk))), (*before, *chunk)
        ).fetchall()

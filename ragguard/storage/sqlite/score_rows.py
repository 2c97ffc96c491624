"""Writes scores as rows. What many scores share (scorer, engine, prompts, references) is one row, their origin."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

from ragguard.records import Score
from ragguard.storage.sqlite.columns import dump, storable
from ragguard.storage.sqlite.rows import key_of, usage_text
from ragguard.text.plain import plain_metadata

ScoreRow: TypeAlias = tuple[Any, ...]
"""The values of a score in the order of `COLUMNS`."""
COLUMNS: Final = (
    "run", "key", "name", "value", "level", "step_id", "passage_id", "position", "stage", "sub_question",
    "stderr", "expectation", "label", "explanation", "origin", "usage", "metadata",
)  # fmt: skip
INSERT_SCORE: Final = (
    f"INSERT INTO scores ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))}) "
    "ON CONFLICT (key) DO NOTHING"
)


def insert_scores(connection: sqlite3.Connection, run: int, scores: Sequence[Score]) -> list[Score]:
    """Writes the scores that are not stored yet; returns those."""
    rows = score_rows(connection, run, scores)
    if connection.execute("SELECT 1 FROM scores WHERE run = ? LIMIT 1", (run,)).fetchone() is None:
        connection.executemany(INSERT_SCORE, rows)
        return list({row[1]: score for row, score in zip(rows, scores, strict=True)}.values())
    return [
        score
        for row, score in zip(rows, scores, strict=True)
        if connection.execute(INSERT_SCORE, row).rowcount > 0
    ]


def delete_of_origins(connection: sqlite3.Connection, run: int, scores: Iterable[Score]) -> None:
    """Removes the earlier scores of a run by the scorers of these scores, with the same settings and references."""
    origins: dict[tuple[str, ...], int] = {}
    connection.executemany(
        "DELETE FROM scores WHERE run = ? AND origin = ?",
        {(run, _origin(connection, score, origins)) for score in scores},
    )


def score_rows(connection: sqlite3.Connection, run: int, scores: Sequence[Score]) -> list[ScoreRow]:
    """Returns the rows of scores; writes their origins."""
    origins: dict[tuple[str, ...], int] = {}
    return [
        (
            run, key_of(score), score.name, float(score.value), score.level, storable(score.step_id),
            storable(score.passage_id), score.position, score.stage, score.sub_question, score.stderr,
            score.expectation, storable(score.label), storable(score.explanation),
            _origin(connection, score, origins), usage_text(score.usage),
            dump(plain_metadata(score.metadata)) if score.metadata else "",
        )
        for score in scores
    ]  # fmt: skip


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

"""Writes provisional scores, those of open runs: each is marked, replaced when more is known, and replaced for good at
the run's end.

The cost of a score is added to the score that replaces it, since the cache answered the later attempt.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from ragguard.records import PROVISIONAL, Score, Usage
from ragguard.storage.sqlite.reading import chunks
from ragguard.storage.sqlite.rows import key_of, usage_of, usage_text
from ragguard.storage.sqlite.score_rows import COLUMNS, INSERT_SCORE, ScoreRow, score_rows

BEFORE = "provisional_value"
"""Metadata key of a score that had another value while its run was open: the last such value."""
IS_PROVISIONAL = f"""instr(scores.metadata, '"{PROVISIONAL}":true') > 0"""
"""The SQL condition for a provisional score. A text in the metadata cannot meet it: quotes in texts are escaped."""
_SAID = ("value", "stderr", "expectation", "label", "explanation", "passage_id", "metadata")
"""The columns in which two scores of one key may differ, beside their cost."""
_USAGE = COLUMNS.index("usage")


@dataclass(frozen=True, slots=True)
class EarlierScore:
    """A provisional score that is replaced: its value and its cost."""

    value: float
    usage: Usage


def clear(
    connection: sqlite3.Connection, run: int, scores: Sequence[Score], uncertain: Collection[tuple[str, str]]
) -> dict[bytes, EarlierScore]:
    """Removes the provisional scores of a run that has ended and has these scores now; returns the removed ones by key.

    `uncertain` are scorers, each with a step's id or "" for the whole run, that could not give all their scores for
    now. Their provisional scores stay where they have given no new ones.
    """
    rows = connection.execute(
        "SELECT key, value, usage, step_id, scorer FROM scores JOIN origins ON origins.id = origin "
        f"WHERE run = ? AND {IS_PROVISIONAL}",
        (run,),
    ).fetchall()
    if not rows:
        return {}
    given = set(map(key_of, scores))
    gone = [
        row
        for row in rows
        if row["key"] in given or not {(row["scorer"], ""), (row["scorer"], row["step_id"])} & {*uncertain}
    ]
    connection.executemany("DELETE FROM scores WHERE key = ?", [(row["key"],) for row in gone])
    return {row["key"]: EarlierScore(row["value"], usage_of(row["usage"])) for row in gone}


def insert_in_place(
    connection: sqlite3.Connection, run: int, scores: Sequence[Score], earlier: Mapping[bytes, EarlierScore]
) -> list[Score]:
    """Writes the scores that are not stored yet, each with the cost of the provisional one that it replaces; returns
    those, with their own cost alone."""
    said = [_after(score, earlier.get(key_of(score))) for score in scores]
    rows = score_rows(connection, run, said)
    return [
        score
        for row, score in zip(rows, said, strict=True)
        if connection.execute(INSERT_SCORE, _with_cost(row, score, earlier.get(row[1]))).rowcount > 0
    ]


def replace_changed(connection: sqlite3.Connection, run: int, scores: Sequence[Score]) -> list[Score]:
    """Writes the provisional scores that are new or have changed; returns those, with their own cost alone.

    A final score stays: the run was continued, and its next end replaces the score.
    """
    rows = score_rows(connection, run, scores)
    stored = {
        row["key"]: row
        for row in chunks(
            connection,
            f"SELECT key, usage, {IS_PROVISIONAL} AS provisional, {', '.join(_SAID)} "
            "FROM scores WHERE key IN ({})",
            [row[1] for row in rows],
        )
    }
    written: list[Score] = []
    for row, score in zip(rows, scores, strict=True):
        before = stored.get(row[1])
        if before is not None and not before["provisional"]:
            continue
        if before is not None and _says_the_same(before, row) and _cost_of(score) == Usage():
            continue
        cost = None
        if before is not None:
            connection.execute("DELETE FROM scores WHERE key = ?", (row[1],))
            cost = EarlierScore(before["value"], usage_of(before["usage"]))
        if connection.execute(INSERT_SCORE, _with_cost(row, score, cost)).rowcount > 0:
            written.append(score)
    return written


def _says_the_same(stored: sqlite3.Row, row: ScoreRow) -> bool:
    said = dict(zip(COLUMNS, row, strict=True))
    return all(stored[name] == said[name] for name in _SAID)


def _after(score: Score, earlier: EarlierScore | None) -> Score:
    """Returns the score, with its earlier value in its metadata where that was another one."""
    if earlier is None or earlier.value == score.value:
        return score
    return replace(score, metadata={**score.metadata, BEFORE: earlier.value})


def _with_cost(row: ScoreRow, score: Score, earlier: EarlierScore | None) -> ScoreRow:
    """Returns the row with the cost of the earlier score added; prompts that were answered from a cache are counted
    where they were asked."""
    if earlier is None:
        return row
    return (*row[:_USAGE], usage_text(earlier.usage + _cost_of(score)), *row[_USAGE + 1 :])


def _cost_of(score: Score) -> Usage:
    """Returns the cost of a score, without answers from a cache."""
    return replace(score.usage, prompts=score.usage.prompts - score.usage.cached, cached=0)

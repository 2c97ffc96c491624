"""Writes scores as rows, and computes their means in SQL: one for each metric of a run, for a comparison.

What many scores share (scorer, engine, prompts, references) is one row, their origin. Provisional scores, those of open
runs, are marked, replaced when more is known, and replaced for good at the run's end. The cost of a score is added to
the score that replaces it, since the cache answered the later attempt.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, TypeAlias

from ragguard.records import PROVISIONAL, Level, Score, Usage
from ragguard.storage.sqlite.reading import chunks
from ragguard.storage.sqlite.rows import key_of, usage_of, usage_text
from ragguard.storage.sqlite.schema import dump, storable
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


IS_PROVISIONAL = f"""instr(scores.metadata, '"{PROVISIONAL}":true') > 0"""
"""The SQL condition for a provisional score. A text in the metadata cannot meet it: quotes in texts are escaped."""
_COMPARED_COLUMNS = ("value", "stderr", "expectation", "label", "explanation", "passage_id", "metadata")
"""The columns in which two scores of one key may differ, beside their cost."""
_USAGE = COLUMNS.index("usage")


def clear_provisional(
    connection: sqlite3.Connection, run: int, scores: Sequence[Score], uncertain: Collection[tuple[str, str]]
) -> dict[bytes, Usage]:
    """Removes the provisional scores of a run that has ended and has these scores now; returns their costs by key.

    `uncertain` are scorers, each with a step's id or "" for the whole run, that could not give all their scores for
    now. Their provisional scores stay where they have given no new ones.
    """
    rows = connection.execute(
        "SELECT key, usage, step_id, scorer FROM scores JOIN origins ON origins.id = origin "
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
    return {row["key"]: usage_of(row["usage"]) for row in gone}


def insert_in_place(
    connection: sqlite3.Connection, run: int, scores: Sequence[Score], earlier: Mapping[bytes, Usage]
) -> list[Score]:
    """Writes the scores that are not stored yet, each with the cost of the provisional one that it replaces; returns
    those, with their own cost alone."""
    rows = score_rows(connection, run, scores)
    return [
        score
        for row, score in zip(rows, scores, strict=True)
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
            f"SELECT key, usage, {IS_PROVISIONAL} AS provisional, {', '.join(_COMPARED_COLUMNS)} "
            "FROM scores WHERE key IN ({})",
            [row[1] for row in rows],
        )
    }
    written: list[Score] = []
    for row, score in zip(rows, scores, strict=True):
        before = stored.get(row[1])
        if before is not None and not before["provisional"]:
            continue
        if before is not None and _same_score(before, row) and _cost_of(score) == Usage():
            continue
        cost = None
        if before is not None:
            connection.execute("DELETE FROM scores WHERE key = ?", (row[1],))
            cost = usage_of(before["usage"])
        if connection.execute(INSERT_SCORE, _with_cost(row, score, cost)).rowcount > 0:
            written.append(score)
    return written


def _same_score(stored: sqlite3.Row, row: ScoreRow) -> bool:
    said = dict(zip(COLUMNS, row, strict=True))
    return all(stored[name] == said[name] for name in _COMPARED_COLUMNS)


def _with_cost(row: ScoreRow, score: Score, earlier: Usage | None) -> ScoreRow:
    """Returns the row with the cost of the earlier score added; prompts that were answered from a cache are counted
    where they were asked."""
    if earlier is None:
        return row
    return (*row[:_USAGE], usage_text(earlier + _cost_of(score)), *row[_USAGE + 1 :])


def _cost_of(score: Score) -> Usage:
    """Returns the cost of a score, without answers from a cache."""
    return replace(score.usage, prompts=score.usage.prompts - score.usage.cached, cached=0)


class Series(NamedTuple):
    """The properties in which two numbers must agree to be comparable: gold is never mixed with support, nor before
    the guard with after. Whether a judge saw the references makes no other series."""

    name: str
    level: Level
    support: bool
    """True for belief in the run's own answer, False for belief in a reference and for all other scores."""
    stage: str

    @property
    def title(self) -> str:
        """The name of the series where no other shares it; see `titles`."""
        support = ".support" if self.support else ""
        before = ".candidates" if self.stage == "candidates" else ""
        return f"{self.name}{support}{before}"


def titles(all_series: Iterable[Series]) -> dict[Series, str]:
    """Returns the name under which each series is shown and which `--fail-if` takes. Series of one name are told apart
    by their level: `contested.step` and `contested.run`."""
    named: dict[str, list[Series]] = defaultdict(list)
    for one in all_series:
        named[one.title].append(one)
    return {
        one: f"{title}.{one.level}" if len(group) > 1 else title
        for title, group in named.items()
        for one in group
    }


@dataclass(slots=True)
class RunMeans:
    """A run, with the mean of each of its series over steps or passages."""

    question: str
    steps: int = 0
    passages: int = 0
    places: int = 0
    """The sum of K over all steps."""
    failures: int = 0
    steps_known: bool = True
    """False for a run of a score file, which holds no steps."""
    means: dict[Series, float] = field(default_factory=dict)
    origins: dict[Series, str] = field(default_factory=dict)
    """The engine, the prompts and the scorer with its settings, by series."""

    def add(self, series: Series, origin: str, mean: float) -> None:
        """Adds a series."""
        self.means[series], self.origins[series] = mean, origin


# K as `places_of` in `records.py` says.
_STEPS = (
    "SELECT run, count(*), sum(passages), "
    "sum(coalesce(k, nullif(passages + iif(passages >= kept, dropped, 0), 0), candidates)) FROM "
    "(SELECT run, k, json_array_length(body, '$.passages') AS passages, "
    "coalesce(json_array_length(body, '$.candidates'), 0) AS candidates, "
    "coalesce(json_array_length(body, '$.decision.kept'), 0) AS kept, "
    "coalesce(json_array_length(body, '$.decision.dropped'), 0) AS dropped "
    "FROM steps WHERE run IN ({})) GROUP BY run"
)
_FAILURES = "SELECT run, count(*) FROM failures WHERE run IN ({}) GROUP BY run"
# Where a series was scored in several ways, the latest way holds; where a step was scored with several references, the
# latest of these: beside max(), SQLite gives the other columns of the row that has it.
_SERIES = "run, name, level, of_stage, support"
_MEANS = (
    f"SELECT {_SERIES}, way, total / number, max(last) FROM ("
    f"SELECT {_SERIES}, way, sum(total) AS total, sum(number) AS number, max(last) AS last FROM ("
    f"SELECT {_SERIES}, way, step_id, total, number, max(last) AS last FROM ("
    "SELECT run, name, level, iif(level = 'run', 'passages', stage) AS of_stage, "
    "reference_source = 'answer' AS support, engine || ', ' || prompts || ', ' || scorer || ' ' || version AS way, "
    f"step_id, sum(value) AS total, count(*) AS number, max(scores.seq) AS last "
    f"FROM scores JOIN origins ON origins.id = origin WHERE run IN ({{}}) AND NOT ({IS_PROVISIONAL}) "
    "GROUP BY run, name, level, of_stage, origin, step_id) "
    f"GROUP BY {_SERIES}, way, step_id) GROUP BY {_SERIES}, way) GROUP BY {_SERIES} ORDER BY run, max(last)"
)


def means_at(connection: sqlite3.Connection, seqs: Sequence[int]) -> dict[int, RunMeans]:
    """Returns the runs with these `seq`; raises where a row cannot be read."""
    rows = chunks(connection, "SELECT seq, question FROM runs WHERE seq IN ({}) ORDER BY seq", seqs)
    runs = {seq: RunMeans(storable(question)) for seq, question in rows}
    for seq, *counts in chunks(connection, _STEPS, seqs):
        runs[seq].steps, runs[seq].passages, runs[seq].places = counts
    for seq, failures in chunks(connection, _FAILURES, seqs):
        runs[seq].failures = failures
    for seq, name, level, stage, support, way, mean, _ in chunks(connection, _MEANS, seqs):
        runs[seq].add(Series(name, level, bool(support), stage), way, mean)
    return runs

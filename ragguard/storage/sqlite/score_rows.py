"""Writes scores as rows, and computes their means in SQL: one for each metric of a run, for a comparison.

What many scores share (scorer, engine, prompts, references) is one row, their origin. Provisional scores, those of open
runs, are marked, replaced when more is known, and replaced for good at the run's end. The cost of a score is added to
the score that replaces it, since the cache answered the later attempt.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from operator import attrgetter
from typing import Any, Final, NamedTuple

from ragguard.facts.causes import JUDGED
from ragguard.facts.scores import Way, ways_that_count
from ragguard.records import PROVISIONAL, Level, Score, Usage, places_of
from ragguard.storage.sqlite.cause_rows import notes_at
from ragguard.storage.sqlite.layout import DIGEST_BYTES, dump, storable
from ragguard.storage.sqlite.rows import check_types, chunks, usage_of, usage_text
from ragguard.text.plain import plain_metadata

COLUMNS: Final = (
    "run", "key", "name", "value", "level", "step_id", "passage_id", "position", "stage", "sub_question",
    "stderr", "expectation", "label", "explanation", "origin", "usage", "metadata",
)  # fmt: skip
_INSERT: Final = f"INSERT INTO scores ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"
_ORIGIN: Final = ("scorer", "version", "engine", "prompts", "references_hash", "reference_source")
_origin_of = attrgetter(*_ORIGIN)
IS_PROVISIONAL = f"""instr(scores.metadata, '"{PROVISIONAL}":true') > 0"""
"""The SQL condition for a provisional score. A text in the metadata cannot meet it: quotes in texts are escaped."""
_SAID = ("value", "stderr", "expectation", "label", "explanation", "passage_id", "metadata")
"""The columns in which two scores of one key may differ, beside their cost."""


def insert_scores(connection: sqlite3.Connection, run: int, scores: Iterable[Score]) -> list[Score]:
    """Writes the scores that are not stored yet, and those that replace a provisional one; returns these.

    What was paid for the provisional score is added to the cost of the one that replaces it. A stored score that is not
    provisional stays, as does a provisional one that says the same and cost nothing more.
    """
    final, provisional = set[bytes](), dict[bytes, sqlite3.Row]()
    for key, may_change in connection.execute(
        f"SELECT key, {IS_PROVISIONAL} FROM scores WHERE run = ?", (run,)
    ):
        if may_change:
            provisional[key] = connection.execute("SELECT * FROM scores WHERE key = ?", (key,)).fetchone()
        else:
            final.add(key)
    origins: dict[tuple[str, ...], int] = {}
    new: dict[bytes, Score] = {}
    rows: list[tuple[Any, ...]] = []
    replaced: list[tuple[bytes]] = []
    for score in scores:
        key, cost = key_of(score), score.usage
        if key in new or key in final:
            continue
        before = provisional.get(key)
        if before is not None:
            more = _asked(cost)
            cost = usage_of(before["usage"]) + more
        row = _row(run, key, score, _origin(connection, score, origins), cost)
        if before is not None:
            said = dict(zip(COLUMNS, row, strict=True))
            if more == Usage() and all(before[name] == said[name] for name in _SAID):
                continue
            replaced.append((key,))
        rows.append(row)
        new[key] = score if before is None else replace(score, usage=cost)
    connection.executemany("DELETE FROM scores WHERE key = ?", replaced)
    connection.executemany(_INSERT, rows)
    return list(new.values())


def add_costs(connection: sqlite3.Connection, scores: Iterable[Score]) -> None:
    """Adds the costs of provisional scores that came too late to the final scores of the same keys."""
    find = f"SELECT usage FROM scores WHERE key = ? AND NOT ({IS_PROVISIONAL})"
    for score in scores:
        key = key_of(score)
        stored = connection.execute(find, (key,)).fetchone()
        if stored is not None and (more := _asked(score.usage)) != Usage():
            total = usage_text(usage_of(stored[0]) + more)
            connection.execute("UPDATE scores SET usage = ? WHERE key = ?", (total, key))


def _asked(cost: Usage) -> Usage:
    """Returns a cost without the prompts that a cache answered: these are counted where they were asked."""
    return replace(cost, prompts=cost.prompts - cost.cached, cached=0)


def delete_outdated(
    connection: sqlite3.Connection,
    run: int,
    scores: Sequence[Score],
    uncertain: Collection[tuple[str, str]],
    *,
    revised: bool,
) -> None:
    """Removes what is no longer true of a run that has ended and has these scores now: provisional scores that were not
    given again and, where the run was `revised`, earlier scores by the same scorers, settings and references.

    `uncertain` are scorers, each with a step's id or "" for the whole run, that could not give all their scores for
    now: their provisional scores stay.
    """
    rows = connection.execute(
        "SELECT key, step_id, scorer FROM scores JOIN origins ON origins.id = origin "
        f"WHERE run = ? AND {IS_PROVISIONAL}",
        (run,),
    ).fetchall()
    given = set(map(key_of, scores)) if rows else set()
    gone = [
        (key,)
        for key, step_id, scorer in rows
        if key not in given and not {(scorer, ""), (scorer, step_id)} & {*uncertain}
    ]
    connection.executemany("DELETE FROM scores WHERE key = ?", gone)
    if revised:
        origins: dict[tuple[str, ...], int] = {}
        connection.executemany(
            f"DELETE FROM scores WHERE run = ? AND origin = ? AND NOT ({IS_PROVISIONAL})",
            {(run, _origin(connection, score, origins)) for score in scores},
        )


def _row(run: int, key: bytes, score: Score, origin: int, cost: Usage) -> tuple[Any, ...]:
    """Returns the values of a score in the order of `COLUMNS`."""
    return (
        run, key, score.name, float(score.value), score.level, storable(score.step_id),
        storable(score.passage_id), score.position, score.stage, score.sub_question, score.stderr,
        score.expectation, storable(score.label), storable(score.explanation), origin, usage_text(cost),
        dump(plain_metadata(score.metadata)) if score.metadata else "",
    )  # fmt: skip


def key_of(score: Score) -> bytes:
    """Returns the key of a score, in 16 bytes."""
    return sha256(dump(list(score.key)).encode("utf-8")).digest()[:DIGEST_BYTES]


def _origin(connection: sqlite3.Connection, score: Score, known: dict[tuple[str, ...], int]) -> int:
    """Returns the id of the row that names scorer, engine, prompts and references; scores share such rows."""
    values = _origin_of(score)
    if values not in known:
        stored = tuple(map(storable, values))
        columns = ", ".join(_ORIGIN)
        connection.execute(f"INSERT OR IGNORE INTO origins ({columns}) VALUES (?, ?, ?, ?, ?, ?)", stored)
        found = connection.execute(f"SELECT id FROM origins WHERE ({columns}) = (?, ?, ?, ?, ?, ?)", stored)
        known[values] = found.fetchone()[0]
    return known[values]


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
    cause: str = ""
    """The cause of the run, a word of `CAUSES`; empty if its answer was not judged."""

    def add(self, series: Series, origin: str, mean: float) -> None:
        """Adds a series."""
        self.means[series], self.origins[series] = mean, origin


_STEPS = (
    "SELECT run, k, json_array_length(body, '$.passages'), coalesce(json_array_length(body, '$.candidates'), 0), "
    "coalesce(json_array_length(body, '$.decision.kept'), 0), "
    "coalesce(json_array_length(body, '$.decision.dropped'), 0) FROM steps WHERE run IN ({})"
)
_FAILURES = "SELECT run, count(*) FROM failures WHERE run IN ({}) GROUP BY run"
# If a step was scored with several references, the latest of these holds: beside max(), SQLite gives the other columns
# of the row that has it. Which of several ways of scoring counts is said by `facts/scores.py`.
_SERIES = "run, name, level, of_stage, support"
_MEANS = (
    f"SELECT {_SERIES}, way, total / number, count(*), max(last) FROM ("
    f"SELECT {_SERIES}, way, sum(total) AS total, sum(number) AS number, max(last) AS last FROM ("
    f"SELECT {_SERIES}, way, step_id, total, number, max(last) AS last FROM ("
    "SELECT run, name, level, iif(level = 'run', 'passages', stage) AS of_stage, "
    "reference_source = 'answer' AS support, engine || ', ' || prompts || ', ' || scorer || ' ' || version AS way, "
    f"step_id, sum(value) AS total, count(*) AS number, max(scores.seq) AS last "
    f"FROM scores JOIN origins ON origins.id = origin WHERE run IN ({{}}) AND NOT ({IS_PROVISIONAL}) AND "
    "origin NOT IN (SELECT value FROM json_each('{left_out}')) GROUP BY run, name, level, of_stage, origin, step_id) "
    f"GROUP BY {_SERIES}, way, step_id) GROUP BY {_SERIES}, way) GROUP BY {_SERIES} ORDER BY run, max(last)"
)


def means_at(connection: sqlite3.Connection, seqs: Iterable[int]) -> dict[int, RunMeans]:
    """Returns the runs with these `seq`; raises where a row cannot be read."""
    seqs = list(seqs)
    check_types(connection, seqs, "scores")
    rows = chunks(connection, "SELECT seq, question FROM runs WHERE seq IN ({}) ORDER BY seq", seqs)
    runs = {seq: RunMeans(storable(question)) for seq, question in rows}
    for seq, k, passages, candidates, kept, dropped in chunks(connection, _STEPS, seqs):
        run = runs[seq]
        run.steps += 1
        run.passages += passages
        run.places += places_of(k, passages, candidates, kept=kept, dropped=dropped)
    for seq, failures in chunks(connection, _FAILURES, seqs):
        runs[seq].failures = failures
    several = _add_means(runs, _means(connection, seqs))
    for origins, some in left_out(ways_at(connection, several)).items():
        for seq in some:
            runs[seq].means.clear()
            runs[seq].origins.clear()
        _add_means(runs, _means(connection, some, origins))
    for seq, note in notes_at(connection, runs).items():
        runs[seq].cause = note.cause if note.cause in JUDGED else ""
    return runs


def _add_means(runs: Mapping[int, RunMeans], rows: Iterable[sqlite3.Row]) -> set[int]:
    """Adds the series of rows to their runs; returns the runs that may have been scored in several ways."""
    versions: dict[tuple[int, str], str] = {}
    several: set[int] = set()
    for seq, name, level, stage, support, way, mean, ways, _ in rows:
        runs[seq].add(Series(name, level, bool(support), stage), way, mean)
        scorer, _, version = way.rpartition(", ")[2].rpartition(" ")
        if ways > 1 or versions.setdefault((seq, scorer), version) != version:
            several.add(seq)
    return several


def _means(
    connection: sqlite3.Connection, seqs: Iterable[int], left_out: Iterable[int] = ()
) -> Iterator[sqlite3.Row]:
    return chunks(connection, _MEANS.replace("{left_out}", dump([*left_out])), seqs)


@dataclass(frozen=True, slots=True)
class StoredWay(Way):
    """A way in which a stored run was scored."""

    origins: frozenset[int]
    """The origins of its scores."""


_WAYS = (
    "SELECT run, scorer, version, json_group_array(DISTINCT engine) AS engines, "
    "count(DISTINCT json_array(step_id, position, stage)) AS judged, max(scores.seq) AS newest, "
    "json_group_array(DISTINCT origin) AS origins "
    "FROM scores JOIN origins ON origins.id = origin WHERE run IN ({}) GROUP BY run, scorer, version"
)


def ways_at(connection: sqlite3.Connection, seqs: Iterable[int]) -> dict[int, list[StoredWay]]:
    """Returns the ways in which the runs with these `seq` were scored."""
    found: dict[int, list[StoredWay]] = defaultdict(list)
    for row in chunks(connection, _WAYS, seqs):
        found[row["run"]].append(
            StoredWay(
                row["scorer"], row["version"], tuple(json.loads(row["engines"])), judged=row["judged"],
                newest=row["newest"], origins=frozenset(json.loads(row["origins"])),
            )
        )  # fmt: skip
    return found


def left_out(ways: Mapping[int, Sequence[StoredWay]]) -> dict[frozenset[int], list[int]]:
    """Returns the runs by the origins whose scores do not count in them; no runs of which all scores count."""
    found: dict[frozenset[int], list[int]] = defaultdict(list)
    for seq, some in ways.items():
        counted = ways_that_count(some).values()
        if origins := frozenset[int]().union(*(way.origins for way in some if way not in counted)):
            found[origins].append(seq)
    return found

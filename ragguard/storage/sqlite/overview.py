"""Reads runs for reports. SQL gathers the scores of each run, since ten thousand runs have a million scores.

Numbers leave SQLite as JSON of whole numbers in units of 1 / SCALE, in the order in which they were stored; only those
that reports compute with become records here.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ragguard.facts.run_view import RunView
from ragguard.facts.scores import Way
from ragguard.records import CUT_TOKENS, LEFT_OUT, PROVISIONAL, Level, Score, ScoredRun, Usage
from ragguard.scorers.answer_words import AnswerWords
from ragguard.storage.sqlite.layout import Data
from ragguard.storage.sqlite.rows import check_types, chunks, failures_at, origins_of, runs_at, usage_of
from ragguard.storage.sqlite.score_rows import IS_PROVISIONAL, left_out, ways_at

SCALE = 10_000
"""Units of a score's value and error in the gathered JSON."""


@dataclass
class Overview:
    """A scored run for a report. Its scores are those that count (`facts/scores.py`), as JSON; those about the run and
    its steps and the utilities of its passages are records as well."""

    scored: ScoredRun
    places: list[int]
    """The number by which the rows of scores name each step, in the order of the run's steps."""
    of_passages: str = "[]"
    """JSON rows with the step's number, rank, name, value, sub-question, and the error of a utility."""
    of_steps: str = "[]"
    """JSON rows with the step's number, name, value, error, label, source of the reference, stage."""
    of_run: str = "[]"
    """JSON rows as those of `of_steps`, without a number."""
    sub_questions: list[str] = field(default_factory=list)
    """The run's own sub-questions, else those that a scorer made."""
    usage: Usage = field(default_factory=Usage)
    engines: list[str] = field(default_factory=list)
    ways: Sequence[Way] = ()
    """The ways in which the run was scored; empty if each of its scorers scored it in one way."""
    shortened: str = "[]"
    """JSON rows, of scores about less than the passages hold: the step's number, rank, name, passages left out, tokens
    cut."""

    @cached_property
    def view(self) -> RunView:
        """The run as printers show it."""
        return RunView(self.scored.run, self.scored.scores, self.scored.failures, self.ways)

    def take_scores(self, row: sqlite3.Row) -> None:
        """Takes the scores of a row that was gathered."""
        self.of_passages, self.of_steps, self.of_run = row["of_passages"], row["of_steps"], row["of_run"]
        self.shortened = row["shortened"]
        made = json.loads(row["sub_questions"] or "[]")
        self.sub_questions = list(self.scored.run.sub_questions or [str(question) for question in made])
        self.scored.scores = [
            *self._scores(row["utilities"], {PROVISIONAL: True} if row["provisional"] else {})
        ]

    def _scores(self, utilities: str, metadata: Data) -> Iterator[Score]:
        """Yields the scores about the run and its steps, and the utilities of its passages."""
        run = self.scored.run
        ids = {seq: step.id for seq, step in zip(self.places, run.steps, strict=True)}
        for seq, rank, value, stderr in json.loads(utilities):
            yield Score(
                "utility", value, "passage", run.id, step_id=ids.get(seq, ""), position=rank, stderr=stderr,
                metadata=metadata,
            )  # fmt: skip
        levels: tuple[tuple[Level, str], ...] = (("step", self.of_steps), ("run", self.of_run))
        for level, rows in levels:
            for seq, name, value, error, label, source, stage in json.loads(rows):
                yield Score(
                    name, value / SCALE, level, run.id, step_id=ids.get(seq, ""),
                    stderr=None if error is None else error / SCALE, label=label, reference_source=source,
                    stage=stage, metadata=metadata,
                )  # fmt: skip


def overviews_at(
    connection: sqlite3.Connection, seqs: Iterable[int], *, texts: bool = True
) -> dict[int, Overview]:
    """Returns the runs with these `seq`; raises where a row cannot be read."""
    runs = runs_at(connection, seqs, texts=texts)
    failures = failures_at(connection, {seq: run.id for seq, run in runs.items()})
    numbers: dict[int, list[int]] = {seq: [] for seq in runs}
    for row in chunks(
        connection, "SELECT run, seq FROM steps WHERE run IN ({}) ORDER BY run, idx, seq", runs
    ):
        numbers[row[0]].append(row[1])
    found = {
        seq: Overview(
            ScoredRun(run, [], failures[seq]), numbers[seq], sub_questions=list(run.sub_questions or ())
        )
        for seq, run in runs.items()
    }
    gathered = _gathered(connection, seqs)
    origins = origins_of(connection, {number for row in gathered for number in _origins_in(row)})
    several = []
    for row in gathered:
        overview, of_run = found[row["run"]], [origins[number] for number in _origins_in(row)]
        overview.usage = _sum(row["usages"].split("\n"))
        overview.engines = sorted(
            {engine for _, engine, _, scorer, *_ in of_run if scorer != AnswerWords.name} - {""}
        )
        overview.take_scores(row)
        if len({origin[3:5] for origin in of_run}) > len({origin[3] for origin in of_run}):
            several.append(row["run"])
    ways = ways_at(connection, several)
    for seq, stored in ways.items():
        found[seq].ways = stored
    for others, some in left_out(ways).items():
        for row in _gathered(connection, some, others):
            found[row["run"]].take_scores(row)
    return found


def _gathered(
    connection: sqlite3.Connection, seqs: Iterable[int], left_out: Iterable[int] = ()
) -> list[sqlite3.Row]:
    """Returns the scores of runs, a row a run, without those of some origins."""
    seqs = list(seqs)
    check_types(connection, seqs, "scores")
    statement = _SCORES_OF_RUNS.replace("{left_out}", json.dumps([*left_out]))
    return list(chunks(connection, statement, seqs))


def _origins_in(row: sqlite3.Row) -> list[int]:
    return [int(number) for number in row["origins"].split(",")]


_UNITS = f"CAST(round({{}} * {SCALE}) AS INTEGER)"
_SCORES_OF_LEVEL = (
    f"json_group_array(json_array({{}}, name, {_UNITS.format('value')}, {_UNITS.format('stderr')}, label, "
    "(SELECT reference_source FROM origins WHERE id = origin), stage)) FILTER (WHERE level = '{}')"
)
_IS_SHORTENED = " OR ".join(f"""instr(scores.metadata, '"{key}":') > 0""" for key in (LEFT_OUT, CUT_TOKENS))
# Grouped by the run alone, so that the index on it serves the groups, and nothing is sorted.
_SCORES_OF_RUNS = (
    "SELECT scores.run, "
    f"json_group_array(json_array(steps.seq, position, name, {_UNITS.format('value')}, sub_question, "
    f"iif(name = 'utility', {_UNITS.format('stderr')}, NULL))) "
    "FILTER (WHERE level = 'passage' AND position IS NOT NULL) AS of_passages, "
    f"{_SCORES_OF_LEVEL.format('steps.seq', 'step')} AS of_steps, {_SCORES_OF_LEVEL.format('NULL', 'run')} AS of_run, "
    "group_concat(usage, char(10)) AS usages, group_concat(DISTINCT origin) AS origins, "
    "min(json_extract(metadata, '$.sub_questions')) "
    "FILTER (WHERE metadata <> '' AND json_type(metadata, '$.sub_questions') = 'array') AS sub_questions, "
    f"count(*) FILTER (WHERE {IS_PROVISIONAL}) AS provisional, "
    "json_group_array(json_array(steps.seq, position, name, "
    f"json_extract(metadata, '$.{LEFT_OUT}'), json_extract(metadata, '$.{CUT_TOKENS}'))) "
    f"FILTER (WHERE steps.seq IS NOT NULL AND ({_IS_SHORTENED})) AS shortened, "
    "json_group_array(json_array(steps.seq, position, value, stderr)) FILTER (WHERE name = 'utility') AS utilities "
    "FROM scores LEFT JOIN steps ON steps.run = scores.run AND steps.id = scores.step_id "
    "WHERE scores.run IN ({}) AND origin NOT IN (SELECT value FROM json_each('{left_out}')) GROUP BY scores.run"
)


def _sum(usages: list[str]) -> Usage:
    total = Usage()
    for written, times in Counter(usages).items():
        one = usage_of(written)
        total += Usage(
            one.requests * times, one.prompts * times, one.prompt_tokens * times,
            one.output_tokens * times, seconds=one.seconds * times, cached=one.cached * times,
        )  # fmt: skip
    return total

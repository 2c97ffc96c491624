"""Reads runs for reports. SQL gathers the scores of each run, since ten thousand runs have a million scores.

Numbers leave SQLite as JSON of whole numbers in units of 1 / SCALE, in the order in which they were stored; only those
about a run as a whole become objects here. Knows the content of a row's body, and nothing of the looks of a report.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ragguard.capture.model_calls import notice
from ragguard.records import (
    CUT_TOKENS,
    FEEDBACK,
    K_ERROR,
    LEFT_OUT,
    Advice,
    Decision,
    Failure,
    Score,
    Usage,
    places_of,
    read_candidates,
)
from ragguard.storage.sqlite.layout import Data
from ragguard.storage.sqlite.rows import (
    chunks,
    failures_at,
    origins_of,
    passages_in,
    rows_at,
    step_values,
    texts_of,
    usage_of,
)
from ragguard.storage.sqlite.score_rows import IS_PROVISIONAL

SCALE = 10_000
"""Units of a score's value and error in the gathered JSON."""


@dataclass(slots=True)
class StepLine:
    """A step with its passages in columns: the candidates in the retriever's order, then what the model read that is
    none of them."""

    seq: int
    """The number by which the rows of `ScoreSummary` name the step."""
    row: sqlite3.Row
    texts: list[str]
    kept: list[bool]
    """True for each of the texts that the model got."""
    reasons: dict[int, str]
    """The guard's reason for each dropped passage, by its rank."""
    decision: Decision | None
    advice: Advice | None
    error: str
    places: int
    """K, the number of passages that the prompt had a place for; 0 where the step's K cannot be right."""
    notice: str
    """A notice for readers of the step's numbers where it is unknown what the model read."""


@dataclass(slots=True)
class Overview:
    """A run with its steps and failures, and with its scores: those of passages and steps as JSON, with some numbers
    about them."""

    row: sqlite3.Row
    references: list[str]
    sub_questions: list[str]
    """The run's own sub-questions, else those that a scorer made."""
    failures: list[Failure]
    metadata: Data
    steps: list[StepLine] = field(default_factory=list)
    of_passages: str = "[]"
    """JSON rows with the step's `seq`, rank, name, value, sub-question, and the error of a utility."""
    of_steps: str = "[]"
    """JSON rows with the step's `seq`, name, value, error, label, source of the reference, stage."""
    of_run: str = "[]"
    """JSON rows as those of `of_steps`, without a `seq`."""
    worst: float | None = None
    """The least utility of a passage that the model got."""
    misleading: int = 0
    """The number of passages that the model got and whose utility is under the bound that was asked for, and under zero
    by two standard errors."""
    usage: Usage = field(default_factory=Usage)
    engines: list[str] = field(default_factory=list)
    provisional: int = 0
    """How many scores were given while the run was open and are not replaced yet."""
    shortened: str = "[]"
    """JSON rows, of scores about less than the passages hold: the step's `seq`, rank, name, passages left out, tokens
    cut."""

    def run_scores(self) -> list[Score]:
        """Returns the scores about the run as a whole, as far as they are read."""
        return [
            Score(
                name, value / SCALE, "run", "", stderr=None if stderr is None else stderr / SCALE, label=label,
                reference_source=source, stage=stage,
            )
            for _, name, value, stderr, label, source, stage in json.loads(self.of_run)
        ]  # fmt: skip

    @property
    def feedback(self) -> Data:
        """Returns the feedback on the run; nothing where the metadata hold something else under that key."""
        said = self.metadata.get(FEEDBACK)
        return said if isinstance(said, dict) else {}


def overviews_at(
    connection: sqlite3.Connection, seqs: Iterable[int], misleads: float, *, texts: bool = True
) -> dict[int, Overview]:
    """Returns the runs with these `seq`; raises where a row cannot be read."""
    heads, steps = rows_at(connection, seqs)
    known = texts_of(connection, [body for _, body in steps]) if texts else {}
    failures = failures_at(connection, {row["seq"]: row["id"] for row, _ in heads})
    found = {
        row["seq"]: Overview(
            row, body.get("references") or [], body.get("sub_questions") or [], failures=failures[row["seq"]],
            metadata=body.get("metadata") or {},
        )
        for row, body in heads
    }  # fmt: skip
    for row, body in steps:
        found[row["run"]].steps.append(_step(row, body, known))
    gathered = list(chunks(connection, _SCORES_OF_RUNS, seqs))
    origins = origins_of(
        connection, {int(number) for row in gathered for number in row["origins"].split(",")}
    )
    for row in gathered:
        overview = found[row["run"]]
        unread = {
            (step.seq, position)
            for step in overview.steps
            for position, kept in enumerate(step.kept, 1)
            if not kept
        }
        utilities = json.loads(row["utilities"])
        read = [(value, 2 * error) for *at, value, error in utilities if tuple(at) not in unread]
        overview.of_passages, overview.of_steps, overview.of_run = (
            row["of_passages"],
            row["of_steps"],
            row["of_run"],
        )
        overview.worst = min((value for value, _ in read), default=None)
        overview.misleading = sum(value < misleads and value + error < 0 for value, error in read)
        overview.usage = _sum(row["usages"].split("\n"))
        overview.engines = sorted({origins[int(number)][1] for number in row["origins"].split(",")} - {""})
        made = json.loads(row["sub_questions"] or "[]")
        overview.sub_questions = overview.sub_questions or [str(question) for question in made]
        overview.provisional, overview.shortened = row["provisional"], row["shortened"]
    return found


def _step(row: sqlite3.Row, body: Data, texts: Mapping[str, str]) -> StepLine:
    items, given = body.get("items", ()), body["passages"]
    candidates = body.get("candidates") or given
    decided = step_values(body, passages_in(body, texts), ("decision", "advice"))
    decision: Decision | None = decided.get("decision")
    reasons = {} if decision is None else {drop.position: drop.reason for drop in decision.dropped}
    read, more = [*range(len(given))], []
    if candidates != given:
        found, got = ([tuple(items[at][:2]) for at in positions] for positions in (candidates, given))
        read = read_candidates(found, got)
        more = [at for at, index in zip(given, read, strict=True) if index >= len(candidates)]
    left = {*read} - {rank - 1 for rank in reasons}
    kept = [index in left for index in range(len(candidates) + len(more))]
    shown = [texts.get(items[position][0], "") for position in (*candidates, *more)]
    metadata = body.get("metadata", {})
    kept_by_guard, dropped = (0, 0) if decision is None else (len(decision.kept), len(decision.dropped))
    k = places_of(row["k"], len(given), len(candidates), kept=kept_by_guard, dropped=dropped)
    return StepLine(
        row["seq"], row, shown, kept, reasons=reasons, decision=decision,
        advice=decided.get("advice"), error=body.get("error", ""),
        places=0 if K_ERROR in metadata else k, notice=notice(metadata, len(given)),
    )  # fmt: skip


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
    "json_group_array(json_array(steps.seq, position, value, coalesce(stderr, 0))) "
    "FILTER (WHERE name = 'utility') AS utilities "
    "FROM scores LEFT JOIN steps ON steps.run = scores.run AND steps.id = scores.step_id "
    "WHERE scores.run IN ({}) GROUP BY scores.run"
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

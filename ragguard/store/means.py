"""Prepares scored runs for a comparison: one mean for each metric of a run, computed in SQL for the runs of a store."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ragguard.records import Level, ScoredRun
from ragguard.store.columns import storable
from ragguard.store.provisional import IS_PROVISIONAL
from ragguard.store.reading import chunks
from ragguard.store.unreadable import WRONG_SCORES, check_scores


class Series(NamedTuple):
    """The properties in which two numbers must agree to be comparable: gold is never mixed with support, nor before
    the guard with after."""

    name: str
    level: Level
    reference_source: str
    stage: str

    @property
    def title(self) -> str:
        """The name of the series where no other shares it; see `titles`."""
        support = ".support" if self.reference_source == "answer" else ""
        before = ".candidates" if self.stage == "candidates" else ""
        return f"{self.name}{support}{before}"


def titles(all_series: Iterable[Series]) -> dict[Series, str]:
    """Returns the name under which each series is shown and which `--fail-if` takes.

    Series of one name are told apart by their level (`contested.step` and `contested.run`), and those of one level by
    whether the judge saw references (`udcg.gold` and `udcg.none`).
    """
    named: dict[str, list[Series]] = defaultdict(list)
    for one in all_series:
        named[one.title].append(one)
    found: dict[Series, str] = {}
    for title, group in named.items():
        several_levels = len({one.level for one in group}) > 1
        several_sources = len({one.reference_source for one in group}) > 1
        for one in group:
            level = f".{one.level}" if several_levels else ""
            found[one] = f"{title}{level}{f'.{one.reference_source}' if several_sources else ''}"
    return found


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


def means_of(scored: ScoredRun) -> RunMeans:
    """Returns the means of a run's records. Where a series was scored in several ways, the latest way holds."""
    values: dict[tuple[Series, str], list[float]] = defaultdict(list)
    origins: dict[Series, str] = {}
    for score in scored.scores:
        if score.provisional:  # the run is open
            continue
        stage = score.stage if score.level != "run" else "passages"
        series = Series(score.name, score.level, score.reference_source, stage)
        origin = f"{score.engine}, {score.prompts}, {score.scorer} {score.version}"
        values[series, origin].append(score.value)
        origins[series] = origin
    means = {series: values[series, origin] for series, origin in origins.items()}
    steps = scored.run.steps
    return RunMeans(
        scored.run.question, len(steps), sum(len(step.passages) for step in steps),
        sum(step.places for step in steps), failures=len(scored.failures),
        means={series: sum(found) / len(found) for series, found in means.items()}, origins=origins,
    )  # fmt: skip


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
_MEANS = (
    "SELECT run, avg(value), engine || ', ' || prompts || ', ' || scorer || ' ' || version AS of_origin, "
    f"{WRONG_SCORES}, "
    "name, level, reference_source, iif(level = 'run', 'passages', stage) AS of_stage "
    f"FROM scores JOIN origins ON origins.id = origin WHERE run IN ({{}}) AND NOT ({IS_PROVISIONAL}) "
    "GROUP BY run, name, level, reference_source, of_stage, of_origin ORDER BY run, max(scores.seq)"
)


def means_at(connection: sqlite3.Connection, seqs: Sequence[int]) -> dict[int, RunMeans]:
    """Returns the runs with these `seq`; raises where a row cannot be read."""
    rows = chunks(connection, "SELECT seq, question FROM runs WHERE seq IN ({}) ORDER BY seq", seqs)
    found = {seq: RunMeans(storable(question)) for seq, question in rows}
    for seq, *counts in chunks(connection, _STEPS, seqs):
        found[seq].steps, found[seq].passages, found[seq].places = counts
    for seq, failures in chunks(connection, _FAILURES, seqs):
        found[seq].failures = failures
    for seq, mean, origin, wrong, *names in chunks(connection, _MEANS, seqs):
        check_scores(wrong)
        # Of several rows for one series the latest comes last, and replaces the others.
        series = Series(*names)
        found[seq].means[series], found[seq].origins[series] = mean, origin
    return found

"""Prepares scored runs for a comparison: one mean for each metric of a run, computed in SQL."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ragguard.records import Level
from ragguard.storage.sqlite.columns import storable
from ragguard.storage.sqlite.reading import chunks
from ragguard.storage.sqlite.score_rows import IS_PROVISIONAL


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

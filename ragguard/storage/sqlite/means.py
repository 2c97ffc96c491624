"""Prepares scored runs for a comparison: one mean for each metric of a run, computed in SQL."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from ragguard.records import Level
from ragguard.storage.sqlite.columns import storable
from ragguard.storage.sqlite.provisional import IS_PROVISIONAL
from ragguard.storage.sqlite.reading import chunks
from ragguard.storage.sqlite.unreadable import WRONG_SCORES, check_scores

K = TypeVar("K")
V = TypeVar("V")


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


class _ScoresOfRun:
    """The scores of a run, added in the order in which they were stored. Where a series was scored in several ways, the
    latest way holds, and where a step was scored with several references, the latest of these."""

    def __init__(self) -> None:
        self._found: dict[Series, dict[str, dict[str, dict[tuple[str, str], tuple[float, int]]]]] = {}
        """Series → origin → step → source and hash of the references → sum and number; the latest key is the last."""

    def add(
        self, series: Series, origin: str, step: str, references: tuple[str, str], total: float, count: int
    ) -> None:
        """Adds scores of a step, or of the run where `step` is empty."""
        readings = _made_last(_made_last(self._found.setdefault(series, {}), origin), step)
        sum_before, count_before = readings.pop(references, (0.0, 0))
        readings[references] = (sum_before + total, count_before + count)

    def into(self, means: RunMeans) -> None:
        """Adds the mean of each series."""
        for series, ways in self._found.items():
            origin, steps = next(reversed(ways.items()))
            latest = [next(reversed(readings.values())) for readings in steps.values()]
            means.add(series, origin, sum(total for total, _ in latest) / sum(count for _, count in latest))


def _made_last(inner: dict[str, dict[K, V]], key: str) -> dict[K, V]:
    """Returns the dictionary under a key, an empty one where there is none, and makes the key the last one."""
    found = inner[key] = inner.pop(key, {})
    return found


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
    "SELECT run, sum(value), count(*), engine || ', ' || prompts || ', ' || scorer || ' ' || version, "
    f"{WRONG_SCORES}, step_id, reference_source, references_hash, "
    "name, level, iif(level = 'run', 'passages', stage) AS of_stage "
    f"FROM scores JOIN origins ON origins.id = origin WHERE run IN ({{}}) AND NOT ({IS_PROVISIONAL}) "
    "GROUP BY run, name, level, of_stage, origin, step_id ORDER BY run, max(scores.seq)"
)


def means_at(connection: sqlite3.Connection, seqs: Sequence[int]) -> dict[int, RunMeans]:
    """Returns the runs with these `seq`; raises where a row cannot be read."""
    rows = chunks(connection, "SELECT seq, question FROM runs WHERE seq IN ({}) ORDER BY seq", seqs)
    found = {seq: RunMeans(storable(question)) for seq, question in rows}
    for seq, *counts in chunks(connection, _STEPS, seqs):
        found[seq].steps, found[seq].passages, found[seq].places = counts
    for seq, failures in chunks(connection, _FAILURES, seqs):
        found[seq].failures = failures
    scores: dict[int, _ScoresOfRun] = defaultdict(_ScoresOfRun)
    for seq, total, count, origin, wrong, step, *references, name, level, stage in chunks(
        connection, _MEANS, seqs
    ):
        check_scores(wrong)
        source, digest = references
        series = Series(name, level, source == "answer", stage)
        scores[seq].add(series, origin, step, (source, digest), total, count)
    for seq, of_run in scores.items():
        of_run.into(found[seq])
    return found

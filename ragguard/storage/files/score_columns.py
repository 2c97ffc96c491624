"""Groups the scores of many runs as columns, and makes means and records from them with Arrow and numpy.

A million scores are grouped without an object for each of them. The numbers are those of a store of the same runs
(`means.py`). Knows the columns of the tables of parts, and neither files nor folders.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute

from ragguard.errors import StoreError
from ragguard.records import K_ERROR, Failure, Level, Passage, RetrievalStep, Run, Score, ScoredRun, Usage
from ragguard.storage.files.scoretable import FIELDS, USAGE
from ragguard.storage.sqlite.means import RunMeans, Series

Codes = NDArray[np.int64]
Numbers = NDArray[np.float64]

ORIGIN = ("engine", "prompts", "scorer", "version")
FOR_MEANS = ("run_id", "name", "level", "reference_source", "stage", *ORIGIN, "value")
FOR_RECORDS = (*FIELDS, *USAGE, "metadata")
FOR_OUTLINES = ("run_id", "step_id", "step_index", "position", "passage_id")
UNKNOWN_K = {K_ERROR: "the folder of parts does not hold it"}
"""The metadata of a step that is known by its scores alone."""


@dataclass(frozen=True)
class PartTables:
    """The tables of some parts: their runs in order, and the scores and failures of these runs."""

    folder: str
    """The name of the folder, for errors."""
    runs: Any
    scores: Any
    failures: Any

    def places(self, table: Any) -> Codes:
        """Returns for each row of a table the index of its run among the runs."""
        codes, ids = coded(table["run_id"])
        known = {id: place for place, id in enumerate(self.runs["run_id"].to_pylist())}
        places = np.array([known.get(id, -1) for id in ids], dtype=np.int64)[codes]
        if (places < 0).any():
            raise StoreError(
                f"{self.folder} is damaged: it has scores of runs that it does not hold; score into a new folder"
            )
        return places

    def heads(self) -> list[Run]:
        """Returns the runs without steps and texts."""
        names = ("run_id", "question", "name", "status", "started_ns", "ended_ns")
        return [
            Run(id, question, name=name, status=status, started_ns=started_ns, ended_ns=ended_ns)
            for id, question, name, status, started_ns, ended_ns in rows_of(self.runs, names)
        ]


def coded(column: Any) -> tuple[Codes, list[Any]]:
    """Returns a column as indices into a list of its distinct values, and that list."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    whole = column.unify_dictionaries().combine_chunks()
    return whole.indices.to_numpy(zero_copy_only=False).astype(np.int64), whole.dictionary.to_pylist()


def numbers(column: Any) -> Numbers:
    """Returns a column of numbers, nan where there is none."""
    found: Numbers = column.cast(pa.float64()).to_numpy()
    return found


def combined(*columns: Codes) -> tuple[Codes, NDArray[np.int64]]:
    """Returns for each row the index of its combination of values, and the distinct combinations, one in each row."""
    sizes = [int(column.max(initial=-1)) + 1 for column in columns]
    key = np.zeros(len(columns[0]), dtype=np.int64)
    for column, size in zip(columns, sizes, strict=True):
        key = key * max(size, 1) + column
    codes, keys = coded(pa.chunked_array([pa.array(key)]))
    parts: list[Codes] = []
    rest = np.array(keys, dtype=np.int64)
    for size in reversed(sizes):
        rest, part = np.divmod(rest, max(size, 1))
        parts.append(part)
    return codes, np.stack(parts[::-1], axis=1)


def means_of_batch(batch: PartTables) -> Iterator[RunMeans]:
    """Yields the means of each run. Where a series was scored in several ways, the latest way counts. A step has one
    score of each kind: a part is scored with one table of references."""
    failures = np.bincount(batch.places(batch.failures), minlength=len(batch.runs)).tolist()
    found = [
        RunMeans(question, steps, passages, places, failures=failed)
        for (question, steps, passages, places), failed in zip(
            rows_of(batch.runs, ("question", "steps", "passages", "places")), failures, strict=True
        )
    ]
    series, all_series = _series(batch.scores)
    origins, all_origins = _origins(batch.scores)
    groups, parts = combined(batch.places(batch.scores), series, origins)
    count = len(parts)
    sizes = np.bincount(groups, None, count)
    means = np.bincount(groups, numbers(batch.scores["value"]), count) / sizes
    sources, names = coded(batch.scores["reference_source"])
    seen = (
        np.bincount(groups, np.array([name == "gold" for name in names], dtype=float)[sources], count) / sizes
    )
    last = np.zeros(count, dtype=np.int64)
    last[groups] = np.arange(len(groups))  # of several rows of a group the last one counts
    order = np.argsort(last)
    for (run, of, origin), mean, share in zip(
        parts[order].tolist(), means[order].tolist(), seen[order].tolist(), strict=True
    ):
        found[run].add(all_series[of], all_origins[origin], mean, share)
    yield from found


def _series(table: Any) -> tuple[Codes, list[Series]]:
    names, levels, sources, stages = (
        coded(table[name]) for name in ("name", "level", "reference_source", "stage")
    )
    of_run = np.array([level == "run" for level in levels[1]], dtype=bool)[levels[0]]
    stage_names = [*stages[1], "passages"]  # scores of a run have one stage
    support = np.array([source == "answer" for source in sources[1]], dtype=np.int64)[sources[0]]
    codes, found = combined(names[0], levels[0], support, np.where(of_run, len(stage_names) - 1, stages[0]))
    return codes, [
        Series(names[1][name], levels[1][level], bool(of_answer), stage_names[stage])
        for name, level, of_answer, stage in found.tolist()
    ]


def _origins(table: Any) -> tuple[Codes, list[str]]:
    columns = [coded(table[name]) for name in ORIGIN]
    codes, found = combined(*(column for column, _ in columns))
    return codes, [
        "{}, {}, {} {}".format(*(names[code] for code, (_, names) in zip(row, columns, strict=True)))
        for row in found.tolist()
    ]


def scored_runs_of_batch(batch: PartTables, level: Level | None = None) -> Iterator[ScoredRun]:
    """Yields each run, without steps and texts, with its failures and its scores, of one level where one is named."""
    table = (
        batch.scores if level is None else batch.scores.filter(compute.equal(batch.scores["level"], level))
    )
    scores: list[list[Score]] = [[] for _ in range(len(batch.runs))]
    for place, score in zip(batch.places(table).tolist(), _scores(table), strict=True):
        scores[place].append(score)
    yield from map(ScoredRun, batch.heads(), scores, failures_of_batch(batch))


def failures_of_batch(batch: PartTables) -> list[list[Failure]]:
    """Returns the failures of each run."""
    names = tuple(field.name for field in fields(Failure))
    found: list[list[Failure]] = [[] for _ in range(len(batch.runs))]
    for place, row in zip(batch.places(batch.failures).tolist(), rows_of(batch.failures, names), strict=True):
        found[place].append(Failure(**dict(zip(names, row, strict=True))))
    return found


def _scores(table: Any) -> Iterator[Score]:
    for row, usage, metadata in zip(
        rows_of(table, FIELDS), rows_of(table, tuple(USAGE)), table["metadata"].to_pylist(), strict=True
    ):
        yield Score(
            **dict(zip(FIELDS, row, strict=True)),
            usage=Usage(**dict(zip(USAGE.values(), usage, strict=True))),
            metadata=json.loads(metadata) if metadata else {},
        )


def outlines_of_batch(batch: PartTables) -> list[Run]:
    """Returns the runs, with the steps and the ids of the judged passages that their scores name."""
    found = batch.heads()
    table = batch.scores.filter(compute.not_equal(batch.scores["step_id"], ""))
    indices, positions = (
        compute.fill_null(table[name], 0).to_numpy().astype(np.int64) for name in ("step_index", "position")
    )
    runs = batch.places(table)
    order = np.lexsort((positions, indices, runs))
    rows = rows_of(table.select(FOR_OUTLINES).take(order), ("step_id", "passage_id"))
    for run, index, position, (step_id, passage_id) in zip(
        runs[order].tolist(), indices[order].tolist(), positions[order].tolist(), rows, strict=True
    ):
        steps = found[run].steps
        if not steps or steps[-1].id != step_id:
            steps.append(RetrievalStep(step_id, found[run].id, index, index, metadata=UNKNOWN_K))
            steps[-1].candidates = steps[-1].passages
        known = steps[-1].passages
        while len(known) < position:
            known.append(Passage(""))
        if position and passage_id:
            known[position - 1].id = passage_id
    return found


def rows_of(table: Any, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Yields the values of these columns, row by row."""
    return zip(*(table[name].to_pylist() for name in names), strict=True)

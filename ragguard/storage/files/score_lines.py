"""Makes lines of a list, and the gathered numbers of a page, from the scores of many runs as columns.

The numbers are those that `overview.py` has SQL gather from a store of the same runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute

from ragguard.records import CUT_TOKENS, LEFT_OUT, Usage
from ragguard.runtime.once import computed_once
from ragguard.storage.files.score_columns import FOR_OUTLINES, PartTables, coded, combined, numbers, rows_of
from ragguard.storage.files.scoretable import USAGE
from ragguard.storage.sqlite.overview import SCALE, RunLine, RunScore, ScoreSummary

FOR_LINES = (
    "run_id",
    "name",
    "level",
    "reference_source",
    "stage",
    "label",
    "value",
    "stderr",
    *USAGE,
    "step_id",
    "position",
)
FOR_SUMMARIES = (*dict.fromkeys((*FOR_LINES, *FOR_OUTLINES)), "sub_question", "engine", "metadata")


def lines_of_batch(batch: PartTables, misleads: float) -> Iterator[RunLine]:
    """Yields each run as a line of a list."""
    gathered = _Gathered(batch, misleads)
    scores, worst, misleading = gathered.run_scores(), gathered.worst(), gathered.misleading()
    usages, scored = gathered.usages(), gathered.scored()
    failures = np.bincount(batch.places(batch.failures), minlength=len(batch.runs)).tolist()
    heads = rows_of(batch.runs, ("run_id", "question", "name", "status", "started_ns", "steps", "dropped"))
    for place, (id, question, name, status, started_ns, hops, dropped) in enumerate(heads):
        yield RunLine(
            id, question, name, status, started_ns=started_ns, hops=hops, dropped=dropped,
            failures=failures[place], scores=scores[place], worst=worst[place],
            misleading=misleading[place], usage=usages[place], scored=scored[place],
        )  # fmt: skip


def summaries_of_batch(batch: PartTables, misleads: float) -> list[ScoreSummary]:
    """Returns the gathered scores of each run; a step is numbered by its position in the run."""
    gathered = _Gathered(batch, misleads)
    of_passages, of_steps, of_run = gathered.of_passages(), gathered.of_steps(), gathered.of_run()
    worst, misleading, usages = gathered.worst(), gathered.misleading(), gathered.usages()
    engines, asked, shortened = gathered.engines(), gathered.sub_questions(), gathered.shortened()
    return [
        ScoreSummary(
            of_passages[place], of_steps[place], of_run[place], worst[place],
            misleading=misleading[place], usage=usages[place], engines=sorted(engines[place] - {""}),
            sub_questions=asked.get(place, []), shortened=json.dumps(shortened.get(place, [])),
        )
        for place in range(len(batch.runs))
    ]  # fmt: skip


class _Gathered:
    """The scores of a batch, gathered by run: each method returns a value for every run."""

    def __init__(self, batch: PartTables, misleads: float) -> None:
        self._table, self._count, self._misleads = batch.scores, len(batch.runs), misleads
        self._runs = batch.places(batch.scores)
        self._unread = batch.runs["unread"]
        self._value = numbers(batch.scores["value"])

    @computed_once
    def _utilities(self) -> NDArray[np.bool_]:
        """The rows with the utility of a passage that the model got."""
        found = self._where("name", "utility")
        unread = {
            (run, one["step_id"], one["position"])
            for run, passages in enumerate(self._unread.to_pylist())
            for one in passages or ()
        }
        if not unread:
            return found
        rows = np.flatnonzero(found & np.isin(self._runs, [*{run for run, *_ in unread}]))
        named = rows_of(self._table.select(["step_id", "position"]).take(rows), ("step_id", "position"))
        found[rows] = [
            (run, *passage) not in unread
            for run, passage in zip(self._runs[rows].tolist(), named, strict=True)
        ]
        return found

    def _where(self, column: str, value: str) -> NDArray[np.bool_]:
        codes, names = coded(self._table[column])
        return np.array([name == value for name in names], dtype=bool)[codes]

    def worst(self) -> list[float | None]:
        """The least utility of a passage that the model got, for each run."""
        least = np.full(self._count, np.inf)
        np.minimum.at(least, self._runs[self._utilities], self._value[self._utilities])
        return [None if value == np.inf else value for value in least.tolist()]

    def misleading(self) -> list[int]:
        """The number of passages that the model got and whose utility is under the bound, for each run."""
        rows = self._utilities & (self._value < self._misleads)
        found: list[int] = np.bincount(self._runs[rows], minlength=self._count).tolist()
        return found

    def scored(self) -> list[bool]:
        """True for each run that has any score."""
        found: list[bool] = (np.bincount(self._runs, minlength=self._count) > 0).tolist()
        return found

    def usages(self) -> list[Usage]:
        """The sum of all usages, for each run."""
        sums = [np.bincount(self._runs, numbers(self._table[name]), self._count).tolist() for name in USAGE]
        whole = [
            values if name == "usage_seconds" else map(int, values)
            for name, values in zip(USAGE, sums, strict=True)
        ]
        return [Usage(**dict(zip(USAGE.values(), row, strict=True))) for row in zip(*whole, strict=True)]

    def run_scores(self) -> list[list[RunScore]]:
        """The scores about each run as a whole."""
        found: list[list[RunScore]] = [[] for _ in range(self._count)]
        rows = np.flatnonzero(self._where("level", "run"))
        table = self._table.select(["name", "label", "reference_source", "stage"]).take(rows)
        columns = [table[name].to_pylist() for name in table.column_names]
        values, errors = (self._units(name)[rows] / SCALE for name in ("value", "stderr"))
        for run, value, error, name, label, source, stage in zip(
            self._runs[rows].tolist(), values.tolist(), errors.tolist(), *columns, strict=True
        ):
            error = None if error != error else error
            found[run].append(
                RunScore(None, name, value, error, label=label, reference_source=source, stage=stage)
            )
        return found

    def of_passages(self) -> list[str]:
        """Returns the JSON rows of the scores of passages."""
        rows = self._where("level", "passage") & self._table["position"].is_valid().to_numpy()
        return self._joined(
            rows, self._whole("step_index"), self._whole("position"), self._quoted("name"), self._written("value"),
            self._whole("sub_question"),
        )  # fmt: skip

    def of_steps(self) -> list[str]:
        """Returns the JSON rows of the scores of steps."""
        return self._joined(self._where("level", "step"), self._whole("step_index"), *self._said)

    def of_run(self) -> list[str]:
        """Returns the JSON rows of the scores of the run."""
        return self._joined(self._where("level", "run"), "null", *self._said)

    @computed_once
    def _said(self) -> tuple[Any, ...]:
        names = ("name", "label", "reference_source", "stage")
        name, label, source, stage = (self._quoted(column) for column in names)
        return name, self._written("value"), self._written("stderr"), label, source, stage

    def engines(self) -> list[set[str]]:
        """The engines that gave the scores, for each run."""
        codes, names = coded(self._table["engine"])
        found: list[set[str]] = [set() for _ in range(self._count)]
        for run, engine in combined(self._runs, codes)[1].tolist():
            found[run].add(names[engine])
        return found

    def sub_questions(self) -> dict[int, list[str]]:
        """The sub-questions that a scorer made, of the runs that have some."""
        rows = self._with_metadata('"sub_questions"')
        found: dict[int, str] = {}
        for run, metadata in zip(
            self._runs[rows].tolist(), self._table["metadata"].take(rows).to_pylist(), strict=True
        ):
            made = json.loads(metadata).get("sub_questions")
            if isinstance(made, list):
                written = json.dumps(made, ensure_ascii=False, separators=(",", ":"))
                found[run] = min(written, found.get(run, written))
        return {run: [str(question) for question in json.loads(made)] for run, made in found.items()}

    def shortened(self) -> dict[int, list[tuple[Any, ...]]]:
        """The scores of steps and passages that are about less than the passages hold, of the runs that have some."""
        rows = self._with_metadata(f'"({LEFT_OUT}|{CUT_TOKENS})"')
        columns = ("step_index", "position", "name", "metadata")
        chosen = [self._table[name].take(rows).to_pylist() for name in columns]
        found: dict[int, list[tuple[Any, ...]]] = {}
        for run, step, position, name, metadata in zip(self._runs[rows].tolist(), *chosen, strict=True):
            facts = json.loads(metadata)
            if step is not None:
                row = (step, position, name, facts.get(LEFT_OUT), facts.get(CUT_TOKENS))
                found.setdefault(run, []).append(row)
        return found

    def _with_metadata(self, pattern: str) -> NDArray[np.intp]:
        """Returns the rows whose metadata, as JSON, match a regular expression."""
        told = compute.match_substring_regex(self._table["metadata"].cast(pa.string()), pattern)
        return np.flatnonzero(compute.fill_null(told, False).to_numpy())

    def _units(self, name: str) -> NDArray[np.float64]:
        """Returns a column of numbers in units of 1 / SCALE, rounded as SQLite does: halves away from zero."""
        value = numbers(self._table[name])
        found: NDArray[np.float64] = np.sign(value) * np.floor(np.abs(value * SCALE) + 0.5)
        return found

    def _written(self, name: str) -> Any:
        """Returns a column of numbers as JSON of whole units."""
        units = self._units(name)
        return _texts(pa.array(np.nan_to_num(units).astype(np.int64), mask=np.isnan(units)))

    def _whole(self, name: str) -> Any:
        """Returns a column of whole numbers as JSON."""
        return _texts(self._table[name].combine_chunks())

    def _quoted(self, name: str) -> Any:
        """Returns a column of texts as JSON."""
        codes, names = coded(self._table[name])
        return pa.array([json.dumps(text) for text in names], pa.string()).take(pa.array(codes))

    def _joined(self, rows: NDArray[np.bool_], *columns: Any) -> list[str]:
        """Returns for each run the JSON of its rows in order; `rows` selects the rows."""
        places = np.flatnonzero(rows)
        places = places[np.argsort(self._runs[places], kind="stable")]
        chosen = [column if isinstance(column, str) else column.take(pa.array(places)) for column in columns]
        inner = compute.binary_join_element_wise(*chosen, ",") if len(places) else pa.array([], pa.string())
        written = compute.binary_join_element_wise("[", inner, "]", "")
        ends = np.cumsum(np.bincount(self._runs[places], minlength=self._count))
        lists = pa.ListArray.from_arrays(pa.array(np.concatenate([[0], ends]), pa.int32()), written)
        found: list[str] = [f"[{text}]" for text in compute.binary_join(lists, ",").to_pylist()]
        return found


def _texts(column: Any) -> Any:
    return compute.fill_null(column.cast(pa.string()), "null")

"""Scored runs as wide tables: a row a question, a hop or a passage, for spreadsheets and data frames.

frame = Frame.of("questions", store.each)
frame.write_csv("runs.csv")      # cells that a spreadsheet would take for a formula are quoted
frame.arrow()                    # a table of pyarrow, which pandas and Polars take
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias

from ragguard.errors import MissingDependency
from ragguard.facts.causes import cause_of
from ragguard.facts.documents import document_of
from ragguard.facts.run_view import HopView, RunView
from ragguard.records import Level, Run, Score
from ragguard.runtime.arguments import one_of
from ragguard.storage.files.jsonl import writing
from ragguard.storage.sqlite.reader import StoreReader
from ragguard.storage.sqlite.rows import scored_at
from ragguard.storage.sqlite.score_rows import RunMeans, Series, means_at, titles

Row: TypeAlias = dict[str, Any]
ReadStores: TypeAlias = Callable[[Callable[[StoreReader], Iterable[Any]]], Iterator[Any]]
"""Yields what a function reads of each store, such as `ScoredSource.each`."""
LEVELS: Mapping[str, Level] = {"questions": "run", "hops": "step", "passages": "passage"}
"""The kinds of rows, each with the level of the scores that it has."""
_SEVERAL = " | "
"""The text between several references in one cell."""
_FORMULAS = ("=", "+", "-", "@", "\t", "\r")
"""The beginnings of texts that spreadsheets compute."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A table that is read from stores as often as it is asked for."""

    columns: list[str]
    rows: Callable[[], Iterator[Row]]

    @classmethod
    def of(cls, kind: str, read: ReadStores) -> Frame:
        """Returns the table with a row for each question, hop or passage, as `kind` says."""
        level = LEVELS[one_of("rows", kind, [*LEVELS])]
        series = {one: None for means in read(StoreReader.means) for one in means.means}
        named = titles(series)
        of_level = [one for one in series if level in ("run", one.level)]
        numbers = {one: named[one] if level == "run" else one.title for one in of_level}
        make = {"run": _question_row, "step": _hop_rows, "passage": _passage_rows}[level]

        def rows() -> Iterator[Row]:
            for view, means in read(lambda store: store.each(_viewed)):
                yield from make(view, means, numbers)

        return cls([*_COLUMNS[level], *dict.fromkeys(numbers.values())], rows)

    def write_csv(self, path: str | Path) -> int:
        """Writes the table as CSV and returns how many rows it has. Texts that a spreadsheet would compute begin with
        an apostrophe."""
        count = 0
        with writing(path), open(path, "w", encoding="utf-8", errors="replace", newline="") as file:
            table = csv.DictWriter(file, self.columns, restval="", extrasaction="ignore")
            table.writeheader()
            for count, row in enumerate(self.rows(), 1):  # noqa: B007 - counted
                table.writerow({name: _as_cell(cell) for name, cell in row.items()})
        return count

    def arrow(self) -> Any:
        """Returns the table as one of pyarrow."""
        try:
            pyarrow = import_module("pyarrow")
        except ImportError as error:
            raise MissingDependency("pyarrow", "a data frame", "arrow") from error
        rows = list(self.rows())
        return pyarrow.table({name: [row.get(name) for row in rows] for name in self.columns})


_ABOUT_RUN = ("run", "question")
_COLUMNS: Mapping[Level, tuple[str, ...]] = {
    "run": (
        *_ABOUT_RUN, "answer", "reference", "verdict", "cause", "decided_by", "name", "status", "started", "thumb",
        "hops", "passages_found", "passages_read", "passages_misleading", "passages_dropped", "failures",
    ),
    "step": (*_ABOUT_RUN, "hop", "query", "tool", "status", "found", "read", "k", "misleading"),
    "passage": (
        *_ABOUT_RUN, "hop", "rank", "id", "document", "text", "was_read", "verdict", "retriever_score", "given_grade",
    ),
}  # fmt: skip
"""The columns of a table that are no scores, by the level of its scores."""


def _viewed(connection: Any, runs: Mapping[int, str]) -> dict[int, tuple[RunView, RunMeans]]:
    """Returns runs as printers show them, each with its means, as `ragguard compare` has them."""
    scored, means = scored_at(connection, runs), means_at(connection, runs)
    return {seq: (RunView(one.run, one.scores, one.failures), means[seq]) for seq, one in scored.items()}


def _question_row(view: RunView, means: RunMeans, numbers: Mapping[Series, str]) -> Iterator[Row]:
    run = view.run
    passages = [passage for hop in view.hops for passage in hop.passages]
    yield {
        **_about(run),
        "answer": run.answer,
        "reference": _SEVERAL.join(run.references or ()) or None,
        "verdict": view.answer_verdict or None,
        "cause": cause_of(view),
        "decided_by": view.explanation.text,
        "name": run.name or None,
        "status": run.status,
        "started": datetime.fromtimestamp(run.started_ns / 1e9, UTC).isoformat() if run.started_ns else None,
        "thumb": view.feedback("thumb") or None,
        "hops": len(run.steps),
        "passages_found": len(passages),
        "passages_read": sum(passage.read for passage in passages),
        "passages_misleading": view.misleading if view.worst is not None else None,
        "passages_dropped": sum(len(step.decision.dropped) for step in run.steps if step.decision),
        "failures": len(view.failures),
        **{numbers[series]: value for series, value in means.means.items()},
    }


def _hop_rows(view: RunView, _: RunMeans, numbers: Mapping[Series, str]) -> Iterator[Row]:
    for hop in view.hops:
        step = hop.step
        yield {
            **_about_hop(view, hop),
            "query": step.query,
            "tool": step.tool or None,
            "status": step.status,
            "found": len(hop.passages),
            "read": sum(passage.read for passage in hop.passages),
            "k": hop.seen.places or None,
            "misleading": hop.misleading,
            **_numbers((score for score in hop.scores if score.level == "step"), numbers),
        }


def _passage_rows(view: RunView, _: RunMeans, numbers: Mapping[Series, str]) -> Iterator[Row]:
    for hop in view.hops:
        scores: dict[int, list[Score]] = defaultdict(list)
        for score in hop.scores:
            if score.level == "passage" and score.position is not None:
                scores[score.position].append(score)
        for one in hop.passages:
            passage = one.passage
            yield {
                **_about_hop(view, hop),
                "rank": one.rank,
                "id": passage.id or None,
                "document": document_of(passage) or None,
                "text": passage.text,
                "was_read": one.read,
                "verdict": one.verdict.words or None,
                "retriever_score": passage.score,
                "given_grade": passage.grade,
                **_numbers(scores[one.rank], numbers),
            }


def _about(run: Run) -> Row:
    return dict(zip(_ABOUT_RUN, (run.id, run.question), strict=True))


def _about_hop(view: RunView, hop: HopView) -> Row:
    return {**_about(view.run), "hop": hop.number}


def _numbers(scores: Iterable[Score], numbers: Mapping[Series, str]) -> Row:
    """Returns the means of scores by their columns; a passage has several of those that are about sub-questions."""
    found: dict[str, list[float]] = defaultdict(list)
    for score in scores:
        series = Series(score.name, score.level, score.reference_source == "answer", score.stage)
        if series in numbers and not score.provisional:
            found[numbers[series]].append(score.value)
    return {name: fmean(values) for name, values in found.items()}


def _as_cell(cell: Any) -> Any:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULAS) else cell

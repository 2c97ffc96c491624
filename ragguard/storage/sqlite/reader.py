"""Reads a store page by page, so that memory does not grow with the store.

Each page is one short read. A run that cannot be read is an error that names it.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TypeAlias, TypeVar

from ragguard.errors import StoreError
from ragguard.records import Failure, Run, Score, ScoredRun
from ragguard.runtime.arguments import file_path
from ragguard.runtime.faults import describe
from ragguard.storage.sqlite import rows
from ragguard.storage.sqlite.cause_rows import NotedRun, noted_runs_at
from ragguard.storage.sqlite.database import Database
from ragguard.storage.sqlite.overview import Overview, overviews_at
from ragguard.storage.sqlite.run_names import find_run
from ragguard.storage.sqlite.score_rows import RunMeans, means_at

T = TypeVar("T")
_ReadRuns: TypeAlias = Callable[[sqlite3.Connection, Mapping[int, str]], Mapping[int, T]]
"""Reads some runs (`seq` → id)."""
PAGE = 200
"""The number of runs that are read at once."""

# The shortest message of the error that most failures have.
_MOST_OFTEN = (
    "SELECT scorer, error, message, min(length(message)) FROM failures GROUP BY error "
    "ORDER BY count(*) DESC LIMIT 1"
)


class StoreReader:
    """Reads the runs of a file, with their scores and failures; StoreError where it is no store."""

    def __init__(self, path: str | Path) -> None:
        self._db = Database(file_path("store", path), read_only=True)
        self.path: Path | None = self._db.path
        """The path of the file; None in memory."""

    def run_count(self) -> int:
        """Returns how many runs the store has."""
        with self._db.snapshot() as db:
            return int(db.execute("SELECT count(*) FROM runs").fetchone()[0])

    def run_ids(self, prefix: str = "") -> list[str]:
        """Returns the ids of all runs, or of those whose ids begin so, in the order in which they were captured."""
        within, values = (
            ("WHERE id >= ? AND id < ?", (prefix, prefix + chr(sys.maxunicode))) if prefix else ("", ())
        )
        with self._db.snapshot() as db:
            return [str(row[0]) for row in db.execute(f"SELECT id FROM runs {within} ORDER BY seq", values)]

    def run(self, run_id: str) -> Run | None:
        """Returns one run; None where the store does not have it."""
        return self._one(run_id, rows.runs_at)

    def scores(self, run_id: str) -> list[Score]:
        """Returns the scores of a run, in the order in which they were stored."""
        return self._one(run_id, rows.scores_at) or []

    def failures(self, run_id: str) -> list[Failure]:
        """Returns the failures of a run."""
        return self._one(run_id, rows.failures_at) or []

    def scored_run(self, run_id: str) -> ScoredRun | None:
        """Returns one run with its scores and failures; None where the store does not have it."""
        return self._one(run_id, rows.scored_at)

    def runs(self) -> Iterator[Run]:
        """Yields all runs in the order in which they were captured."""
        return self.each(rows.runs_at)

    def run_at(self, position: int) -> Run | None:
        """Returns the run at a position, from 0, in the order in which they were captured."""
        found = self._selected(rows.runs_at, "ORDER BY seq LIMIT 1 OFFSET ?", position)
        return next(iter(found.values()), None)

    def latest(self, count: int) -> list[ScoredRun]:
        """Returns the runs that were captured last, the latest last, with their results and without texts."""
        last = "WHERE seq IN (SELECT seq FROM runs ORDER BY seq DESC LIMIT ?) ORDER BY seq"
        return [*self._selected(partial(rows.scored_at, texts=False), last, count).values()]

    def scored_runs(self, *, texts: bool = True, span: range | None = None) -> Iterator[ScoredRun]:
        """Yields all runs, or those with a `seq` of a span, with their scores and failures. Without `texts` passages
        have empty texts, and reading is quicker."""
        return self.each(partial(rows.scored_at, texts=texts), span)

    def overviews(self, *, texts: bool = True) -> Iterator[Overview]:
        """Yields all runs for a report. Without `texts` it is quicker, as for a list of runs."""
        return self.each(partial(overviews_at, texts=texts))

    def means(self, span: range | None = None) -> Iterator[RunMeans]:
        """Yields all runs, or those with a `seq` of a span, for a comparison."""
        return self.each(means_at, span)

    def noted_runs(self) -> Iterator[NotedRun]:
        """Yields all runs with what each counts as."""
        return self.each(noted_runs_at)

    def failure_counts(self) -> tuple[int, int, str]:
        """Returns how many failures there are, in how many runs, and the error of most of them with a message."""
        with self._db.snapshot() as db:
            failures, runs = db.execute("SELECT count(*), count(DISTINCT run) FROM failures").fetchone()
            most = db.execute(_MOST_OFTEN).fetchone()
        return failures, runs, f"{most['scorer']}, {most['error']}: {most['message']}" if most else ""

    def close(self) -> None:
        """Closes the file. Safe to call twice."""
        self._db.close()

    def each(self, read: _ReadRuns[T], span: range | None = None) -> Iterator[T]:
        """Yields the result of `read` for each run, or each with a `seq` of a span, page by page."""
        after, end = (0, 2**62) if span is None else (span.start - 1, span.stop)
        page = "WHERE seq > ? AND seq < ? ORDER BY seq LIMIT ?"
        while found := self._selected(read, page, after, end, PAGE):
            yield from found.values()
            after = max(found)

    def _selected(self, read: _ReadRuns[T], clauses: str, *values: object) -> Mapping[int, T]:
        """Returns the result of `read` for the runs that SQL clauses select, by their `seq`."""
        with self._db.snapshot() as db:
            runs = dict(db.execute(f"SELECT seq, id FROM runs {clauses}", values).fetchall())
            return self._read(db, runs, read) if runs else {}

    def _read(self, db: sqlite3.Connection, runs: Mapping[int, str], read: _ReadRuns[T]) -> Mapping[int, T]:
        """Returns the result of `read` for some runs; a StoreError names the first that cannot be read."""
        try:
            return read(db, runs)
        except (*rows.UNREADABLE, sqlite3.OperationalError) as error:
            if isinstance(error, sqlite3.OperationalError) and "malformed JSON" not in str(error):
                raise
            for seq, run_id in runs.items() if len(runs) > 1 else ():
                self._read(db, {seq: run_id}, read)
            run_id = next(iter(runs.values()))
            raise StoreError(
                f"the run {run_id!r} in {self._db.name} cannot be read: {describe(error)}; delete it with "
                f"rg.delete({run_id!r}), or restore the file"
            ) from error

    def _one(self, run_id: str, read: _ReadRuns[T]) -> T | None:
        """Returns the result of `read` for the run with this id, or the latest that is called so; None where the store
        does not have the run."""
        with self._db.snapshot() as db:
            seq = find_run(db, run_id)
        return None if seq is None else self._selected(read, "WHERE seq = ?", seq).get(seq)

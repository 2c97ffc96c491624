"""Reads runs of a store, all page by page or some. A row that cannot be read is an error that names its run."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias, TypeVar

from ragguard.errors import StoreError
from ragguard.runtime.faults import describe
from ragguard.storage.sqlite import reading
from ragguard.storage.sqlite.database import Database
from ragguard.storage.sqlite.run_names import find_run

T = TypeVar("T")
ReadRuns: TypeAlias = Callable[[sqlite3.Connection, Sequence[int]], dict[int, T]]
"""Reads the runs with these `seq`."""
ReadRun: TypeAlias = Callable[[sqlite3.Connection, dict[int, str]], Mapping[int, T]]
"""Reads the run of one `seq`, which is given with its id."""

MOST = 2**62
"""More than the `seq` of any run."""
PAGE = 200
"""The number of runs that are read at once."""
FAULTS = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""The errors that reading a row raises which another program has changed."""


def iter_runs(db: Database, read: ReadRuns[T], span: range | None = None) -> Iterator[T]:
    """Yields the result of `read` for each run, or each with a `seq` of a span, page by page."""
    after, end = (0, MOST) if span is None else (span.start - 1, span.stop)
    while True:
        with db.snapshot() as connection:
            seqs = reading.find_seqs(
                connection, "WHERE seq > ? AND seq < ? ORDER BY seq LIMIT ?", after, end, PAGE
            )
            found = read_runs(db, connection, seqs, read)
        if not seqs:
            return
        yield from found.values()
        after = seqs[-1]


def read_runs(
    db: Database, connection: sqlite3.Connection, seqs: Sequence[int], read: ReadRuns[T]
) -> dict[int, T]:
    """Returns the result of `read` for some runs; raises StoreError with the id of the first that cannot be read."""
    try:
        return read(connection, seqs)
    except FAULTS as error:
        if len(seqs) > 1:
            for seq in seqs:
                read_runs(db, connection, [seq], read)
        ids = [connection.execute("SELECT id FROM runs WHERE seq = ?", (seq,)).fetchone()[0] for seq in seqs]
        raise _unreadable(db, ids[0], error) from error


def get_run(db: Database, run_id: str, read: ReadRun[T], default: T) -> T:
    """Returns the result of `read` for the run with this id, or the latest that is called so; `default` where the store
    does not have the run."""
    try:
        with db.snapshot() as connection:
            seq = find_run(connection, run_id)
            if seq is None:
                return default
            ids = connection.execute("SELECT seq, id FROM runs WHERE seq = ?", (seq,))
            return read(connection, dict(ids.fetchall()))[seq]
    except FAULTS as error:
        raise _unreadable(db, run_id, error) from error


def _unreadable(db: Database, run_id: str, error: BaseException) -> StoreError:
    return StoreError(
        f"the run {run_id!r} in {db.name} cannot be read: {describe(error)}; delete it with rg.delete({run_id!r}), or "
        "restore the file"
    )

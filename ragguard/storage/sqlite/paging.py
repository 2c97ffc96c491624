"""Reads runs of a store, all page by page or one, without the runs whose rows are damaged."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias, TypeVar

from ragguard.errors import StoreError
from ragguard.runtime.faults import describe
from ragguard.storage.sqlite import reading
from ragguard.storage.sqlite.database import Database
from ragguard.storage.sqlite.unreadable import FAULTS, LeftOut, read_each

T = TypeVar("T")
ReadRuns: TypeAlias = Callable[[sqlite3.Connection, Sequence[int]], dict[int, T]]
"""Reads the runs with these `seq`."""
ReadRun: TypeAlias = Callable[[sqlite3.Connection, dict[int, str]], Mapping[int, T]]
"""Reads the run of one `seq`, which is given with its id."""

PAGE = 200
"""The number of runs that are read at once."""


def iter_runs(db: Database, left_out: LeftOut, read: ReadRuns[T]) -> Iterator[T]:
    """Yields the result of `read` for each run, page by page; logs which runs were left out as unreadable."""
    after = 0
    while True:
        with db.snapshot() as connection:
            seqs = reading.find_seqs(connection, "WHERE seq > ? ORDER BY seq LIMIT ?", after, PAGE)
            found = read_each(connection, seqs, read, left_out)
        if not seqs:
            break
        yield from found.values()
        after = seqs[-1]
    left_out.warn(db.name)


def get_run(db: Database, run_id: str, read: ReadRun[T], default: T) -> T:
    """Returns the result of `read` for one run; `default` where the store does not have the run."""
    try:
        with db.snapshot() as connection:
            seq = reading.seq_of(connection, run_id)
            return default if seq is None else read(connection, {seq: run_id})[seq]
    except FAULTS as error:
        raise StoreError(
            f"the run {run_id!r} in {db.name} cannot be read: {describe(error)}; delete it, or restore the file"
        ) from error

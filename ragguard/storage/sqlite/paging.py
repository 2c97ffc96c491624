"""Reads runs of a store, some at once or all page by page, without the runs whose rows are damaged."""

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

PAGE = 200


def every(db: Database, read: ReadRuns[T], left_out: LeftOut) -> Iterator[T]:
    """Yields the result of `read` for each run, page by page; logs which runs were left out as unreadable."""

    def page(connection: sqlite3.Connection) -> tuple[list[int], dict[int, T]]:
        seqs = reading.find_seqs(connection, "WHERE seq > ? ORDER BY seq LIMIT ?", after, PAGE)
        return seqs, read_each(connection, seqs, read, left_out)

    after = 0
    while (found := db.read(page))[0]:
        yield from found[1].values()
        after = found[0][-1]
    left_out.warn(db.name)


def some(
    db: Database, seqs: Callable[[sqlite3.Connection], Sequence[int]], read: ReadRuns[T], left_out: LeftOut
) -> list[T]:
    """Returns the results of `read` for the runs that `seqs` finds, without those that cannot be read."""
    return db.read(lambda connection: list(read_each(connection, seqs(connection), read, left_out).values()))


def one(
    db: Database,
    run_id: str,
    read: Callable[[sqlite3.Connection, dict[int, str]], Mapping[int, T]],
    otherwise: T,
) -> T:
    """Returns the result of `read` for one run; `otherwise` where the store does not have the run."""

    def find(connection: sqlite3.Connection) -> T:
        seq = reading.seq_of(connection, run_id)
        return otherwise if seq is None else read(connection, {seq: run_id})[seq]

    try:
        return db.read(find)
    except FAULTS as error:
        raise StoreError(
            f"the run {run_id!r} in {db.name} cannot be read: {describe(error)}; delete it, or restore the file"
        ) from error

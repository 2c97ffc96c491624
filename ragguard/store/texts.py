"""The texts of passages: each is stored once, under its digest, and goes with the last row that needs it."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from ragguard.store.time_slice import TimeSlice

_AT_ONCE = 100
"""Texts that are written by one statement, and changes of how often texts are needed between two rests."""
_INSERT_ONE = "INSERT OR IGNORE INTO passages (digest, text) VALUES (?, ?)"
_INSERT = _INSERT_ONE + ", (?, ?)" * (_AT_ONCE - 1)


class NeededTexts:
    """The texts that the rows of one transaction need, and no longer need."""

    def __init__(self, texts: dict[bytes, str]) -> None:
        """`texts` are texts that rows may need, under their digests; others can be added there."""
        self._texts = texts
        self._uses: Counter[bytes] = Counter()
        """Digest → how many rows need it more than before."""

    def add(self, digests: Iterable[bytes]) -> None:
        """Notes that a row needs these texts, once each."""
        self._uses.update(digests)

    def remove(self, digests: Iterable[bytes]) -> None:
        """Notes that a row needs these texts no longer."""
        self._uses.subtract(digests)

    def write(self, connection: sqlite3.Connection) -> None:
        """Writes the texts that are not there, and how often each is needed; deletes those that nobody needs."""
        # In the order of the digests: what comes one after the other stands side by side in the index.
        needed = sorted(digest for digest, count in self._uses.items() if count > 0)
        there = _insert(connection, needed, self._texts)
        # That a text is there stands for its first use.
        release(
            connection,
            {digest: count - (count > 0 and digest not in there) for digest, count in self._uses.items()},
        )


def _insert(
    connection: sqlite3.Connection, digests: Sequence[bytes], texts: Mapping[bytes, str]
) -> set[bytes]:
    """Writes the texts that are not there; returns the digests of those that are.

    Many texts go in by one statement, during which other threads run: no rest is needed in between.
    """
    there: set[bytes] = set()
    last = connection.execute("SELECT coalesce(max(rowid), 0) FROM passages").fetchone()[0]
    for start in range(0, len(digests), _AT_ONCE):
        chunk = digests[start : start + _AT_ONCE]
        if len(chunk) == _AT_ONCE:
            values = [value for digest in chunk for value in (digest, texts[digest])]
            inserted = connection.execute(_INSERT, values).rowcount
        else:
            rows = [(digest, texts[digest]) for digest in chunk]
            inserted = connection.executemany(_INSERT_ONE, rows).rowcount
        if inserted < len(chunk):
            new = connection.execute("SELECT digest FROM passages WHERE rowid > ?", (last,))
            there.update(set(chunk).difference(row[0] for row in new))
        last += inserted
    return there


def release(connection: sqlite3.Connection, uses: Mapping[bytes, int]) -> None:
    """Changes how often texts are needed beyond once; those with no use left are deleted."""
    changes = sorted((digest, count) for digest, count in uses.items() if count)
    time_slice = TimeSlice()
    for start in range(0, len(changes), _AT_ONCE):
        connection.executemany(
            "INSERT INTO passage_uses (digest, uses) VALUES (?, ?) "
            "ON CONFLICT (digest) DO UPDATE SET uses = uses + excluded.uses",
            changes[start : start + _AT_ONCE],
        )
        time_slice.rest_if_used()
    fewer = [(digest,) for digest, count in uses.items() if count < 0]
    connection.executemany(
        "DELETE FROM passages WHERE digest = ? AND "
        "(SELECT uses FROM passage_uses WHERE passage_uses.digest = passages.digest) < 0",
        fewer,
    )
    connection.executemany("DELETE FROM passage_uses WHERE digest = ? AND uses <= 0", fewer)

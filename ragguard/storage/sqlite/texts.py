"""Stores the texts of passages: each once, under its digest, and deletes it with the last row that needs it."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

_AT_ONCE = 100
"""The number of rows that one statement writes: it takes a fraction of the time of many statements."""


class NeededTexts:
    """The texts that the rows of one transaction need, and no longer need."""

    def __init__(self, texts: dict[bytes, str]) -> None:
        self.texts = texts
        """The texts that rows may need, by digest; others can be added."""
        self._uses: Counter[bytes] = Counter()
        """The change in how many rows need the text, by digest."""

    def add(self, digests: Iterable[bytes]) -> None:
        """Notes that a row needs these texts, once each."""
        self._uses.update(digests)

    def remove(self, digests: Iterable[bytes]) -> None:
        """Notes that a row needs these texts no longer."""
        self._uses.subtract(digests)

    def write(self, connection: sqlite3.Connection) -> None:
        """Writes the texts that are not stored yet, and how often each is needed; deletes those that no row needs."""
        # In the order of the digests, so that neighbours are written to the same page of the index.
        needed = sorted(digest for digest, count in self._uses.items() if count > 0)
        there = _insert(connection, needed, self.texts)
        # A stored text counts as its first use.
        more = {
            digest: count - (count > 0 and digest not in there)
            for digest, count in self._uses.items()
            if count != 1 or digest in there
        }
        release(connection, more)


def _insert(
    connection: sqlite3.Connection, digests: Sequence[bytes], texts: Mapping[bytes, str]
) -> set[bytes]:
    """Writes the texts that are not stored yet; returns the digests of those that are.

    During a statement other threads run: no rest is needed in between.
    """
    there: set[bytes] = set()
    last = connection.execute("SELECT coalesce(max(rowid), 0) FROM passages").fetchone()[0]
    for start in range(0, len(digests), _AT_ONCE):
        chunk = digests[start : start + _AT_ONCE]
        inserted = connection.execute(
            f"INSERT OR IGNORE INTO passages (digest, text) VALUES {_pairs(len(chunk))}",
            [value for digest in chunk for value in (digest, texts[digest])],
        ).rowcount
        if inserted < len(chunk):
            new = connection.execute("SELECT digest FROM passages WHERE rowid > ?", (last,))
            there.update(set(chunk).difference(row[0] for row in new))
        last += inserted
    return there


def release(connection: sqlite3.Connection, uses: Mapping[bytes, int]) -> None:
    """Changes how often texts are needed beyond once; those with no use left are deleted."""
    changes = sorted((digest, count) for digest, count in uses.items() if count)
    for start in range(0, len(changes), _AT_ONCE):
        chunk = changes[start : start + _AT_ONCE]
        connection.execute(
            f"INSERT INTO passage_uses (digest, uses) VALUES {_pairs(len(chunk))} "
            "ON CONFLICT (digest) DO UPDATE SET uses = uses + excluded.uses",
            [value for change in chunk for value in change],
        )
    if fewer := [(digest,) for digest, count in changes if count < 0]:
        connection.executemany(
            "DELETE FROM passages WHERE digest = ? AND "
            "(SELECT uses FROM passage_uses WHERE passage_uses.digest = passages.digest) < 0",
            fewer,
        )
        connection.executemany("DELETE FROM passage_uses WHERE digest = ? AND uses <= 0", fewer)


@cache
def _pairs(count: int) -> str:
    """Returns the placeholders of so many rows of two columns."""
    return ", ".join(["(?, ?)"] * count)

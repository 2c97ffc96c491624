"""Keeps the passages of rows: each distinct one once in its row's body, and its text once in the store, under its
digest, until the last row that needs the text is gone.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

from ragguard.records import Passage
from ragguard.runtime.text_memo import TextMemo
from ragguard.schema import record_type
from ragguard.storage.sqlite.layout import DIGEST_BYTES, Data, dump, storable

_values_of: Final = record_type(Passage).values
_digested: TextMemo[tuple[str, bytes, str, str]] = TextMemo(4 * 2**20)
"""The digest of a text in hexadecimal digits and in bytes, the text as a file can hold it, and as it was given."""


class PassageTable:
    """The passages of one row in the order in which they came, each distinct one once."""

    __slots__ = ("_first", "_seen", "_texts", "digests", "items")

    def __init__(
        self, texts: dict[bytes, str], items: Iterable[list[Any]] = (), passages: Iterable[Passage] = ()
    ) -> None:
        """Takes a mapping of digests to texts, to which the texts of new items are added. `items` are the items that
        the row already has, whose texts are in the store, and `passages` the objects that stand for them."""
        self._texts = texts
        self.items: list[list[Any]] = [*items]
        self._first: dict[str, int] = {}
        """The position of the first item with a text, by the text's digest in hexadecimal digits."""
        for position, (digest, *_) in enumerate(self.items):
            self._first.setdefault(digest, position)
        self._seen = {id(passage): (position, passage) for position, passage in enumerate(passages)}
        """The position of each passage by its address, together with the passage, so that no other object gets this
        address."""
        self.digests: list[bytes] = []
        """The digests of the texts of new items, one an item."""

    def positions_of(self, passages: Iterable[Passage]) -> list[int]:
        """Returns the position of each passage among the items."""
        # Hundreds of thousands of passages are put in a minute, hence few steps and few calls.
        items, seen, positions = self.items, self._seen, []
        for passage in passages:
            known = seen.get(id(passage))
            if known is None:
                digits, digest, text, _ = _digested.known.get(id(passage.text)) or _digest(passage.text)
                item = _values_of(passage)
                item[0] = digits  # in place of the text, which is a passage's first field
                position = end = len(items)
                first = self._first.setdefault(digits, end)
                if first != end:
                    position = self._find(item, first)
                if position == end:
                    items.append(item)
                    self.digests.append(digest)
                    self._texts[digest] = text
                known = seen[id(passage)] = position, passage
            positions.append(known[0])
        return positions

    def _find(self, item: list[Any], first: int) -> int:
        """Returns the position of an item, or the number of items where it is new; no item before `first` has its
        text."""
        written = dump(item)  # in JSON 1, 1.0 and True differ
        for position, other in enumerate(self.items[first:], first):
            if other[:2] == item[:2] and dump(other) == written:
                return position
        return len(self.items)

    def within(self, body: Data) -> Data:
        """Returns a body with the passages as its last entry, `items`."""
        return {**body, "items": self.items} if self.items else body


def digests_in(body: Data) -> list[bytes]:
    """Returns the digests of the texts that a body needs, one for each distinct passage."""
    return [bytes.fromhex(item[0]) for item in body.get("items", ())]


def _digest(given: str) -> tuple[str, bytes, str, str]:
    """Returns what is remembered of a text, once it is."""
    text = given
    try:
        written = given.encode()
    except UnicodeEncodeError:
        text = storable(given)
        written = text.encode()
    digest = sha256(written).digest()[:DIGEST_BYTES]
    found = digest.hex(), digest, text, given
    _digested.keep(given, found)
    return found


_AT_ONCE = 100
"""The number of rows that one statement writes: it takes a fraction of the time of many statements."""


def change_uses(
    connection: sqlite3.Connection, uses: Mapping[bytes, int], texts: Mapping[bytes, str]
) -> None:
    """Changes how many rows need each text; writes the texts that are not stored yet, and deletes those that no row
    needs any more.

    Args:
        connection: The connection, within a transaction.
        uses: Digest → how many more rows need the text; a negative number for fewer.
        texts: Digest → text, of all that more rows need.
    """
    # In the order of the digests, so that neighbours are written to the same page of the index.
    there = _insert_texts(connection, sorted(digest for digest, count in uses.items() if count > 0), texts)
    # A stored text counts as its first use.
    changes = sorted(
        (digest, more)
        for digest, count in uses.items()
        if (more := count - (count > 0 and digest not in there))
    )
    connection.executemany(
        "INSERT INTO passage_uses (digest, uses) VALUES (?, ?) "
        "ON CONFLICT (digest) DO UPDATE SET uses = uses + excluded.uses",
        changes,
    )
    if fewer := [(digest,) for digest, count in changes if count < 0]:
        connection.executemany(
            "DELETE FROM passages WHERE digest = ? AND "
            "(SELECT uses FROM passage_uses WHERE passage_uses.digest = passages.digest) < 0",
            fewer,
        )
        connection.executemany("DELETE FROM passage_uses WHERE digest = ? AND uses <= 0", fewer)


def _insert_texts(
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
            f"INSERT OR IGNORE INTO passages (digest, text) VALUES {', '.join(['(?, ?)'] * len(chunk))}",
            [value for digest in chunk for value in (digest, texts[digest])],
        ).rowcount
        if inserted < len(chunk):
            new = connection.execute("SELECT digest FROM passages WHERE rowid > ?", (last,))
            there.update(set(chunk).difference(row[0] for row in new))
        last += inserted
    return there

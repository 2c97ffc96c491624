"""Lists the passages of one row, each distinct one once, with its text apart under the text's digest. Knows no SQL."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Any, Final

from ragguard.records import Passage
from ragguard.runtime.text_memo import TextMemo
from ragguard.schema import data_of_fields, other_fields
from ragguard.storage.sqlite.columns import DIGEST_BYTES, Data, dump, storable
from ragguard.text.plain import plain_metadata

MORE_OF_PASSAGE: Final = other_fields(Passage, "text", "id", "score", "metadata", "grade")
"""The fields that an item has not by position: the schema writes and reads them, as the item's last value."""
_digested: TextMemo[tuple[bytes, str, str]] = TextMemo(4 * 2**20)
"""The digest of a text, the text as a file can hold it, and the text as it was given."""


class PassageTable:
    """The passages of one row in the order in which they came, each distinct one once."""

    __slots__ = ("_first", "_items", "_seen", "_texts", "digests")

    def __init__(self, texts: dict[bytes, str], items: Iterable[list[Any]] = ()) -> None:
        """Takes a mapping of digests to texts, to which the texts of new items are added. `items` are the items that
        the row already has; their texts are in the store."""
        self._texts = texts
        self._items: list[list[Any]] = [*items]
        self._first: dict[str, int] = {}
        """The position of the first item with a text, by the text's digest in hexadecimal digits."""
        for position, (digest, *_) in enumerate(self._items):
            self._first.setdefault(digest, position)
        self._seen: dict[int, tuple[int, Passage]] = {}
        """The position of each passage by its address, together with the passage, so that no other object gets this
        address."""
        self.digests: list[bytes] = []
        """The digests of the texts of new items, one an item."""

    def position_of(self, passage: Passage) -> int:
        """Returns the position of the passage among the items."""
        return self.positions_of((passage,))[0]

    def positions_of(self, passages: Iterable[Passage]) -> list[int]:
        """Returns the position of each passage among the items."""
        # Hundreds of thousands of passages are put in a minute, hence few steps and few calls.
        items, seen, positions = self._items, self._seen, []
        for passage in passages:
            known = seen.get(id(passage))
            if known is None:
                digest, text, _ = _digested.known.get(id(passage.text)) or _digest(passage.text)
                metadata = passage.metadata  # of a dropped passage it may be anything, whose truth may raise
                empty = type(metadata) is dict and not metadata
                item: list[Any] = [
                    digest.hex(), passage.id, passage.score,
                    None if empty else plain_metadata(metadata) or None, passage.grade,
                ]  # fmt: skip
                if MORE_OF_PASSAGE:
                    item.append(data_of_fields(passage, MORE_OF_PASSAGE))
                position = end = len(items)
                first = self._first.setdefault(item[0], end)
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
        for position, other in enumerate(self._items[first:], first):
            if other[:2] == item[:2] and dump(other) == written:
                return position
        return len(self._items)

    def body(self, data: Data) -> str:
        """Returns the body of the row in JSON: its other data, and its passages as `items`."""
        return dump({**data, "items": self._items} if self._items else data)


def digests_in(body: Data) -> list[bytes]:
    """Returns the digests of the texts that a body needs, one for each distinct passage."""
    return [bytes.fromhex(item[0]) for item in body.get("items", ())]


def _digest(given: str) -> tuple[bytes, str, str]:
    """Returns the digest of a text, the text as a file can hold it, and the text as it was given; remembers them."""
    text = given
    try:
        written = given.encode()
    except UnicodeEncodeError:
        text = storable(given)
        written = text.encode()
    found = sha256(written).digest()[:DIGEST_BYTES], text, given
    _digested.keep(given, found)
    return found

"""Encodes the passages of one row as JSON, each distinct one once, with its text apart under the text's digest.

Hundreds of thousands of passages are encoded in a minute, so each is encoded in as few steps as possible. Passages with
new texts are encoded all at once, with the row. The JSON of a passage is remembered when its text comes a second time,
since most texts come either once or many times. Knows no SQL.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from hashlib import sha256
from itertools import groupby
from json.encoder import encode_basestring_ascii
from math import isfinite
from typing import Any, TypeAlias

from ragguard.plain import is_same, plain_metadata
from ragguard.records import Passage
from ragguard.runtime.text_memo import TextMemo
from ragguard.store.columns import DIGEST_BYTES, Data, dump, storable

_Known: TypeAlias = tuple[str, bytes, str, object, Mapping[str, Any] | None, int | None, str, str]
"""A text as it was given, its digest, the text as a file can hold it, and of the last passage with that text: id,
metadata as `plain.comparable` gives them, grade, and its JSON before and after its score. A plain tuple, which the
garbage collector does not visit twice."""
_NO_ID = object()
"""Stands for the id of the last passage where the text came only once; no passage has it."""

Item: TypeAlias = str | tuple[Any, ...]
"""A passage in JSON, or the values that its JSON is made of: digest, id, score, metadata, grade."""


class EncodedPassages:
    """Encodes passages as items of a row. Passages whose text came shortly before are not encoded again."""

    def __init__(self, characters: int) -> None:
        """Remembers passages with at most that many characters of text together."""
        self._texts: TextMemo[_Known] = TextMemo(characters)

    def encode(self, passage: Passage) -> tuple[Item, bytes, str]:
        """Returns the passage with its text's digest in place of its text; the digest; and the text.

        The passage comes back in JSON, or as values where its text is new.
        """
        given, id_, score, grade, metadata = (
            passage.text, passage.id, passage.score, passage.grade, passage.metadata,
        )  # fmt: skip
        known = self._texts.known.get(id(given))
        if known is None:
            # Runs for every new text, hence few checks and few calls.
            text = given
            try:
                written = given.encode()
            except UnicodeEncodeError:
                text = storable(given)
                written = text.encode()
            digest = sha256(written).digest()[:DIGEST_BYTES]
            self._texts.keep(given, (given, digest, text, _NO_ID, None, None, "", ""))
            plain = (plain_metadata(metadata) or None) if metadata else None
            return (digest.hex(), id_, score, plain, grade), digest, text
        if known[3] == id_ and known[5] is grade and is_same(metadata, known[4]):
            _, digest, text, _, _, _, before, after = known
        else:
            _, digest, text, *_ = known
            plain = (plain_metadata(metadata) or None) if metadata else None
            before = f'["{digest.hex()}",{encode_basestring_ascii(id_) if type(id_) is str else dump(id_)},'
            after = f",{dump(plain) if plain else 'null'},{'null' if grade is None else dump(grade)}]"
            comparable = None if plain is None else plain.copy() if plain is metadata else {}
            self._texts.known[id(given)] = (given, digest, text, id_, comparable, grade, before, after)
        if score is None:
            return f"{before}null{after}", digest, text
        return (
            f"{before}{repr(score) if type(score) is float and isfinite(score) else dump(score)}{after}",
            digest,
            text,
        )


_encoded = EncodedPassages(4 * 2**20)


class PassageTable:
    """The passages of one row in the order in which they came, each distinct one once."""

    __slots__ = ("_first", "_items", "_new", "_positions", "_texts", "digests")

    def __init__(self, texts: dict[bytes, str], items: Iterable[list[Any]] = ()) -> None:
        """Takes a mapping of digests to texts, to which the texts of new items are added. `items` are the items that
        the row already has; their texts are in the store."""
        self._texts = texts
        self._items: list[Any] = [dump(item) for item in items]
        self._positions: dict[str, int] = {}
        """The position of each item among the items, by its JSON."""
        for position, item in enumerate(self._items):
            self._positions.setdefault(item, position)
        self._first: dict[str, int] = {}
        """The position of the first item with a text, by the text's digest; empty until an item comes that is not in
        JSON."""
        self._new: dict[int, tuple[int, Passage]] = {}
        """The position of each item that is not in JSON, by the address of its passage, together with the passage,
        so that no other object gets this address."""
        self.digests: list[bytes] = []
        """The digests of the texts of new items, one an item."""

    def put(self, passage: Passage) -> int:
        """Returns the position of the passage among the items."""
        return self.put_all((passage,))[0]

    def put_alike(self, passage: Passage) -> list[int]:
        """Returns the positions of the passage and of others with its text and id."""
        position = self.put(passage)
        items = [json.loads(item) if type(item) is str else [*item] for item in self._items]
        same = items[position][:2]
        return [position for position, item in enumerate(items) if item[:2] == same]

    def put_all(self, passages: Iterable[Passage]) -> list[int]:
        """Returns the position of each passage among the items."""
        items, new, first, positions = self._items, self._new, self._first, []
        for passage in passages:
            if new and (seen := new.get(id(passage))) is not None:
                positions.append(seen[0])
                continue
            item, digest, text = _encoded.encode(passage)
            end = len(items)
            if isinstance(item, str):
                if new:
                    position = self._find(item, first.setdefault(_digest_in(item), end))
                else:
                    position = self._positions.setdefault(item, end)
            else:
                if not first:
                    for position, other in enumerate(items):
                        first.setdefault(_digest_in(other), position)
                position = first.setdefault(item[0], end)
                if position == end:  # a new text
                    new[id(passage)] = end, passage
                else:
                    item = dump(item)
                    position = self._find(item, position)
            if position == end:
                items.append(item)
                self.digests.append(digest)
                self._texts[digest] = text
            positions.append(position)
        return positions

    def _find(self, item: str, first: int) -> int:
        """Returns the position of an item, or the number of items where it is new; the item at `first` may have the
        same text."""
        items = self._items
        if first < len(items) and type(items[first]) is tuple:
            items[first] = dump(items[first])
            self._positions[items[first]] = first
        return self._positions.setdefault(item, len(items))

    def body(self, data: Data) -> str:
        """Returns the body of the row in JSON: its other data, and its passages as `items`."""
        if not self._items:
            return dump(data)
        if str not in map(type, self._items):  # all texts are new
            return dump({**data, "items": self._items})
        items = ",".join(
            ",".join(group) if kind is str else dump([*group])[1:-1]
            for kind, group in groupby(self._items, type)
        )
        return f'{dump(data)[:-1]}{"," if data else ""}"items":[{items}]}}'


def _digest_in(item: str) -> str:
    """Returns the digest, in hexadecimal digits, that stands first in an item in JSON."""
    return item[2 : 2 + 2 * DIGEST_BYTES]


def digests_in(body: Data) -> list[bytes]:
    """Returns the digests of the texts that a body needs, one for each distinct passage."""
    return [bytes.fromhex(item[0]) for item in body.get("items", ())]

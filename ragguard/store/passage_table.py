"""The passages of one row: each distinct one once, as JSON, with its text apart under the text's digest.

Hundreds of thousands of passages come this way in a minute, so a passage is encoded in as few steps as will do.
Passages with new texts are encoded all at once, with the row. What a passage looks like in JSON is remembered when its
text comes a second time, since most texts come once, or again and again. Knows no SQL.
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
    """Passages as items of a row; those that came lately with the same text are not encoded again."""

    def __init__(self, characters: int) -> None:
        """Keeps what is known of so many characters of text at most."""
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
            # Every new text comes this way, so little is asked and few functions are called.
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
        """Takes the texts under their digests, to which the texts of new items are added. `items` are those that the
        row has already; their texts are in the store."""
        self._texts = texts
        self._items: list[Any] = [dump(item) for item in items]
        self._positions: dict[str, int] = {}
        """Item, in JSON → its position among the items."""
        for position, item in enumerate(self._items):
            self._positions.setdefault(item, position)
        self._first: dict[str, int] = {}
        """Digest → the position of the first item with that text; empty until an item comes that is not in JSON."""
        self._new: dict[int, tuple[int, Passage]] = {}
        """Address of a passage → the position of its item, which is not in JSON; and the passage, so that no other one
        comes to its address."""
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
        """Returns the position of an item, that of the next one where the item is new; `first` may have its text."""
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

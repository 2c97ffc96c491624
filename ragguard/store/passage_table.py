"""The passages of one row: each distinct one once, as JSON, with its text apart under the text's digest.

Hundreds of thousands of passages come this way in a minute, so a passage is encoded in as few steps as will do, and
what was encoded lately is remembered. Knows no SQL.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from hashlib import sha256
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


class EncodedPassages:
    """Passages in JSON; those that came lately with the same text are not encoded again."""

    def __init__(self, characters: int) -> None:
        """Keeps what is known of so many characters of text at most."""
        self._texts: TextMemo[_Known] = TextMemo(characters)

    def encode(self, passage: Passage) -> tuple[str, bytes, str]:
        """Returns the passage in JSON, with its text's digest in place of its text; the digest; and the text."""
        given, id_, score, grade, metadata = (
            passage.text, passage.id, passage.score, passage.grade, passage.metadata,
        )  # fmt: skip
        known = self._texts.known.get(id(given))
        if known is not None and known[3] == id_ and known[5] is grade and is_same(metadata, known[4]):
            _, digest, text, _, _, _, before, after = known
        else:
            # Every new text comes this way, so little is asked and few functions are called.
            if known is None:
                text = given
                try:
                    written = given.encode()
                except UnicodeEncodeError:
                    text = storable(given)
                    written = text.encode()
                digest = sha256(written).digest()[:DIGEST_BYTES]
            else:
                _, digest, text, *_ = known
            plain = plain_metadata(metadata) if metadata else None
            before = f'["{digest.hex()}",{encode_basestring_ascii(id_) if type(id_) is str else dump(id_)},'
            after = f",{dump(plain) if plain else 'null'},{'null' if grade is None else dump(grade)}]"
            comparable = None if plain is None else plain.copy() if plain is metadata else {}
            self._texts.keep(given, (given, digest, text, id_, comparable, grade, before, after))
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

    __slots__ = ("_items", "_positions", "_texts", "digests")

    def __init__(self, texts: dict[bytes, str], items: Iterable[list[Any]] = ()) -> None:
        """`texts`, under their digests, is where the texts of new items are added. `items` are those that the row has
        already; their texts are in the store."""
        self._texts = texts
        self._items = [dump(item) for item in items]
        self._positions: dict[str, int] = {}
        """Item, in JSON → its position among the items."""
        for position, item in enumerate(self._items):
            self._positions.setdefault(item, position)
        self.digests: list[bytes] = []
        """The digests of the texts of new items, one an item."""

    def put(self, passage: Passage) -> int:
        """Returns the position of the passage among the items."""
        return self.put_all((passage,))[0]

    def put_alike(self, passage: Passage) -> list[int]:
        """Returns the positions of the passage and of others with its text and id."""
        same = json.loads(self._items[self.put(passage)])[:2]
        return [position for position, item in enumerate(self._items) if json.loads(item)[:2] == same]

    def put_all(self, passages: Iterable[Passage]) -> list[int]:
        """Returns the position of each passage among the items."""
        items, positions = self._items, []
        for passage in passages:
            item, digest, text = _encoded.encode(passage)
            position = self._positions.setdefault(item, len(items))
            if position == len(items):
                items.append(item)
                self.digests.append(digest)
                self._texts[digest] = text
            positions.append(position)
        return positions

    def body(self, data: Data) -> str:
        """Returns the body of the row in JSON: its other data, and its passages as `items`."""
        written = dump(data)
        if not self._items:
            return written
        return f'{written[:-1]}{"," if data else ""}"items":[{",".join(self._items)}]}}'


def digests_in(body: Data) -> list[bytes]:
    """Returns the digests of the texts that a body needs, one for each distinct passage."""
    return [bytes.fromhex(item[0]) for item in body.get("items", ())]

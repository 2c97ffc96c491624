"""Plain copies of what users and frameworks put into metadata: values that JSON can hold, within fixed limits.

A vector store's node may point at itself, hold a whole document tree, change while it is read, or raise
when it is read. A copy here visits a bounded number of values, follows no reference cycle, and says under
`CUT` what it left out. Knows no record and no file.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Set, ValuesView
from dataclasses import dataclass, fields, is_dataclass
from itertools import islice
from operator import is_
from types import NoneType
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")

CUT = "ragguard.cut"
"""Metadata key that says of which fields of a copy something was left out, and why."""

Text: TypeAlias = Callable[[str], str]
"""Changes each text of a copy, keys included; redaction is one."""


@dataclass(frozen=True, slots=True)
class PlainLimits:
    """How much one copy may hold."""

    depth: int = 8
    """How many collections may be inside each other."""
    breadth: int = 256
    """The most items of one collection."""
    values: int = 2048
    """The most values in all, collections included."""
    characters: int = 65_536
    """The most characters of all texts together, keys included."""


METADATA = PlainLimits()
RECORD = PlainLimits(depth=40, breadth=10_000_000, values=10_000_000, characters=2**31)
"""The limits of records of the package's own, whose parts are bounded one by one."""

# What reading a user's value may raise on a thread of the package's own. KeyboardInterrupt is the application's.
_RAISED: tuple[type[BaseException], ...] = (Exception, SystemExit, GeneratorExit)
_SHORT = 4096
_SHORTEST = 64
"""The characters that are kept of every text, however many others took."""
_FLAGS = frozenset({bool, NoneType})
_LARGE = 2**63
_NAMED = 5
_COLLECTIONS = (list, tuple, Set, deque, ValuesView)


def plain_metadata(
    metadata: object,
    limits: PlainLimits = METADATA,
    text: Text | None = None,
    own_keys: Set[str] = frozenset(),
) -> dict[str, Any]:
    """Returns a copy of a mapping, with a note under `CUT` of what was left out; a plain and small mapping itself.

    `text` changes every text and every key but `own_keys`.
    """
    if text is None and type(metadata) is dict and _is_plain(metadata):
        return metadata
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        return {CUT: f"{type(metadata).__name__}, which is no mapping"}
    copy = _Copy(limits, text, own_keys)
    made = copy.fields_of(metadata)
    if copy.left_out:
        more = "; and more" if len(copy.left_out) > _NAMED else ""
        made[CUT] = "; ".join(list(copy.left_out)[:_NAMED]) + more
    return made


def comparable(metadata: object) -> Mapping[str, Any] | None:
    """Returns metadata as `is_same` compares others with them: a copy; None for none; an empty one for metadata that
    are not plain and small, which are the same as no others."""
    if not metadata:
        return None
    return metadata.copy() if type(metadata) is dict and _is_plain(metadata) else {}


def is_same(metadata: Mapping[Any, Any], known: Mapping[str, Any] | None) -> bool:
    """True only where metadata are the `comparable` ones, key by key and type by type: 1, 1.0 and True are equal."""
    if not metadata:
        return known is None
    if not known or type(metadata) is not dict or len(metadata) != len(known):
        return False
    return all(map(is_, metadata.values(), known.values())) and metadata == known


def plain(value: object) -> object:
    """Returns a record's data as JSON can hold it: a NaN is null, an unknown object is its text."""
    return _Copy(RECORD).value(value, 0)


def without_surrogates(text: str) -> str:
    """Returns a text without halves of surrogate pairs, which UTF-8 cannot hold."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _is_plain(metadata: dict[Any, Any]) -> bool:
    """Returns True for short texts, numbers, flags and None alone, which is what most metadata holds."""
    if len(metadata) > 64:
        return False
    for key, value in metadata.items():
        if type(key) is not str:
            return False
        kind = type(value)
        if kind is str:
            if len(value) > _SHORT:
                return False
        elif kind is float or kind is int:
            if not -_LARGE < value < _LARGE:  # a NaN, too
                return False
        elif kind not in _FLAGS:
            return False
    return True


class _Copy:
    """A copy in progress, with its remaining limits and what it left out."""

    def __init__(
        self, limits: PlainLimits, change: Text | None = None, own_keys: Set[str] = frozenset()
    ) -> None:
        self._limits, self._change, self._own_keys = limits, change, own_keys
        self._values, self._characters = limits.values, limits.characters
        self._inside: set[int] = set()
        """Identities of the collections around the value at hand: one of them again is a reference cycle."""
        self._field = ""
        self.left_out: dict[str, None] = {}
        """The fields of which something was left out, each with the reason."""

    def fields_of(self, metadata: Mapping[Any, Any]) -> dict[str, Any]:
        """Returns the fields that can be read. One large field does not cost the fields after it."""
        made: dict[str, Any] = {}
        self._inside.add(id(metadata))
        try:
            # Another thread may change a dict while it is read, so its keys are listed at once.
            for key in self._first(list(metadata) if type(metadata) is dict else metadata):
                self._field = ""
                try:
                    self._field = self._key(key)
                    made[self._field] = self.value(metadata[key], 0)
                except _RAISED as error:
                    self._leave(f"unreadable: {type(error).__name__}")
        except _RAISED as error:
            self._leave(f"unreadable: {type(error).__name__}")
        return made

    def value(self, value: Any, depth: int) -> Any:
        """Returns the value as JSON can hold it."""
        if self._values <= 0 and depth:
            return self._leave(f"over {self._limits.values} values")
        self._values -= 1
        try:
            return self._read(value, depth)
        except _RAISED as error:
            return self._leave(f"unreadable: {type(error).__name__}", type(value))

    def _read(self, value: Any, depth: int) -> Any:
        if value is None or value is True or value is False:
            return value
        if isinstance(value, str):
            return self._text(str.__str__(value))
        if isinstance(value, int):
            # json refuses integers of more than 4,300 digits, when it writes and when it reads.
            return int(value) if value.bit_length() <= 1024 else f"an integer of {value.bit_length()} bits"
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else None
        if isinstance(value, (bytes, bytearray, memoryview)):
            try:
                return self._text(bytes(value).decode("utf-8"))
            except UnicodeDecodeError:
                return f"<{type(value).__name__}: {len(value)}>"
        if isinstance(value, (Mapping, *_COLLECTIONS)):
            return self._collection(value, value, depth)
        # Records of dataclasses, and of pydantic, as documents and nodes have.
        declared = getattr(type(value), "model_fields", None)
        if is_dataclass(value) and not isinstance(value, type):
            declared = [field.name for field in fields(value)]
        if isinstance(declared, (dict, list)):
            return self._collection(value, {name: getattr(value, name) for name in declared}, depth)
        if isinstance(getattr(value, "ndim", None), int):
            size = math.prod(int(extent) for extent in value.shape)
            if size > min(self._limits.breadth, self._values + 1):
                return self._leave(f"an array of {size} numbers", type(value))
            return self.value(value.tolist(), depth)
        return self._text(str(value))

    def _collection(self, owner: object, items: Mapping[Any, Any] | Iterable[Any], depth: int) -> Any:
        if id(owner) in self._inside:
            return self._leave("a reference cycle", type(owner))
        if depth >= self._limits.depth:
            return self._leave(f"over {self._limits.depth} levels", type(owner))
        self._inside.add(id(owner))
        try:
            if isinstance(items, Mapping):
                pairs = self._first(items.items())
                return {self._key(key): self.value(item, depth + 1) for key, item in pairs}
            return [self.value(item, depth + 1) for item in self._first(items)]
        finally:
            self._inside.discard(id(owner))

    def _first(self, items: Iterable[T]) -> Iterator[T]:
        """Yields the items up to the limit; notes where there are more."""
        rest = iter(items)
        yield from islice(rest, self._limits.breadth)
        if next(rest, rest) is not rest:
            self._leave(f"over {self._limits.breadth} items")

    def _key(self, key: object) -> str:
        text = str.__str__(key) if isinstance(key, str) else str(key)
        return text if text.startswith("ragguard.") or text in self._own_keys else self._text(text)

    def _text(self, text: str) -> str:
        """Returns the text changed and then cut: a cut before could hide from `change` what it looks for. A text that
        `change` fails on is not kept."""
        if self._change is not None and text:
            try:
                changed = self._change(text)
            except _RAISED:
                changed = ""
            text = changed if isinstance(changed, str) else ""
        if len(text) > max(self._characters, _SHORTEST):
            self._leave(f"{len(text)} characters")
            text = text[: max(self._characters, _SHORTEST)] + "…"
        self._characters -= min(self._characters, len(text))
        return text

    def _leave(self, why: str, kind: type | None = None) -> str:
        """Notes that something of the field at hand is left out; returns what replaces it."""
        self.left_out[f"{self._field[:200]}: {why}" if self._field else why] = None
        return "…" if kind is None else f"<{kind.__name__}: {why}>"

"""Plain copies of what users and frameworks put into metadata: what JSON can hold, within a limit.

A vector store's node may hold itself or a whole document tree, change while it is read, or raise when it is read: such
a field is left out, and `CUT` says so. Knows no record and no file.
"""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Callable, Mapping, Set, ValuesView
from dataclasses import fields, is_dataclass
from itertools import islice
from operator import is_
from types import NoneType
from typing import Any, TypeAlias

CUT = "ragguard.cut"
"""Metadata key that says which fields of a copy were left out or cut, and why."""
FIELDS = 256
"""The most fields of one copy."""
_CHARACTERS = 65_536
"""The most characters and values of one copy."""
_LEVELS = 40
"""The most collections inside each other."""
_TOO_LARGE = "too large"
_LEAST = 64
"""The characters that a field may have, however many others took."""

Text: TypeAlias = Callable[[str], str]
"""Changes each text of a copy, keys included; redaction is one."""

# What reading a user's value may raise on a thread of the package's own. KeyboardInterrupt is the application's.
_RAISED: tuple[type[BaseException], ...] = (Exception, SystemExit, GeneratorExit)
_SHORT = 4096
_FLAGS = frozenset({bool, NoneType})
_LARGE = 2**63
_NAMED = 5


def plain_metadata(
    metadata: object, text: Text | None = None, own_keys: Set[str] = frozenset()
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
    made: dict[str, Any] = {}
    notes: list[str] = []
    room, name = _CHARACTERS, ""
    try:
        # Another thread may change a dict while it is read, so its keys are listed at once.
        keys = iter(list(metadata) if type(metadata) is dict else metadata)
        for key in islice(keys, FIELDS):
            name = ""
            try:
                name = _key(key, text, own_keys)
                made[name], size, note = _field(metadata[key], max(room, _LEAST), text)
                room -= size
            except _RAISED as error:
                note = _unreadable(error)
            notes += [f"{name[:200]}: {note}" if name else note] if note else []
        notes += [f"over {FIELDS} fields" for _ in islice(keys, 1)]
    except _RAISED as error:
        notes.append(_unreadable(error))
    if notes:
        made[CUT] = "; ".join([*notes[:_NAMED], *(["and more"] if len(notes) > _NAMED else [])])
    return made


def comparable(metadata: object) -> Mapping[str, Any] | None:
    """Returns metadata as `is_same` compares others with them: a copy; None for those that are not plain and small,
    which are the same as no others."""
    return metadata.copy() if type(metadata) is dict and _is_plain(metadata) else None


def is_same(metadata: Mapping[Any, Any], known: Mapping[str, Any] | None) -> bool:
    """True only where metadata are the `comparable` ones, key by key and type by type: 1, 1.0 and True are equal."""
    if known is None or type(metadata) is not dict or len(metadata) != len(known):
        return False
    return all(map(is_, metadata.values(), known.values())) and metadata == known


def plain(value: object, levels: int = 4) -> object:
    """Returns a record's data as JSON can hold it: a NaN is null, an unknown object is its text, and a field that
    cannot be read says so. Fields are what stands in the first levels: of a row, its passages and their metadata."""
    if levels and type(value) is dict:
        return {str(key): plain(item, levels - 1) for key, item in value.items()}
    if levels and type(value) is list:
        return [plain(item, levels - 1) for item in value]
    return _field(value, sys.maxsize, None)[0]


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


def _key(key: object, text: Text | None, own_keys: Set[str] = frozenset()) -> str:
    name = str.__str__(key) if isinstance(key, str) else str(key)
    return name if text is None or name.startswith("ragguard.") or name in own_keys else text(name)


def _field(value: Any, room: int, text: Text | None) -> tuple[Any, int, str]:
    """Returns a value as JSON can hold it, its size, and why it was cut or left out, else ""."""
    left = [room]
    try:
        made = _changed(value, text) if isinstance(value, str) else _copied(value, text, left, 0)
        if left[0] < 0:
            raise _LargeError(_TOO_LARGE)
    except _RAISED as error:
        why = _unreadable(error)
        return f"<{type(value).__name__}: {why}>", 0, why
    if not isinstance(value, str):
        return made, room - left[0], ""
    # A text is changed before it is cut: a cut before could hide from `text` what it looks for.
    cut = f"{len(made)} characters" if len(made) > room else ""
    return made[:room] + ("…" if cut else ""), min(len(made), room), cut


def _copied(value: Any, text: Text | None, left: list[int], depth: int) -> Any:
    """Returns a value as JSON can hold it, with its texts changed, and takes its size from what is `left`.

    Raises _LargeError where that is too little, and for a value of too many levels, as one that holds itself has.
    """
    left[0] -= 1
    if left[0] < 0 or depth > _LEVELS:
        raise _LargeError(_TOO_LARGE if left[0] < 0 else f"over {_LEVELS} levels")
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        made = _changed(value, text)
        left[0] -= len(made)
        return made
    if isinstance(value, int):
        # json refuses integers of more than 4,300 digits, when it writes and when it reads.
        return int(value) if value.bit_length() <= 1024 else f"an integer of {value.bit_length()} bits"
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {_key(key, text): _copied(item, text, left, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple, Set, deque, ValuesView)):
        return [_copied(item, text, left, depth + 1) for item in value]
    return _copied(_known(value, left[0]), text, left, depth + 1)


def _known(value: Any, most: int) -> Any:
    """Returns what JSON can hold in place of an object: its fields, its numbers, or its text."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        try:
            return bytes(value).decode("utf-8")
        except UnicodeDecodeError:
            return f"<{type(value).__name__}: {len(value)}>"
    # Records of dataclasses, and of pydantic, as documents and nodes have.
    declared = getattr(type(value), "model_fields", None)
    if is_dataclass(value) and not isinstance(value, type):
        declared = [field.name for field in fields(value)]
    if isinstance(declared, (dict, list)):
        return {name: getattr(value, name) for name in declared}
    if isinstance(getattr(value, "ndim", None), int):
        if (size := math.prod(int(extent) for extent in value.shape)) > most + 1:
            raise _LargeError(f"an array of {size} numbers")
        return value.tolist()
    return str(value)


def _changed(value: str, text: Text | None) -> str:
    return str.__str__(value) if text is None else text(value)


class _LargeError(Exception):
    """The reason for which a value is too large."""


def _unreadable(error: BaseException) -> str:
    return str(error) if isinstance(error, _LargeError) else f"unreadable: {type(error).__name__}"


def counted(count: int, noun: str, verbs: tuple[str, str] | None = None) -> str:
    """Returns a count with its noun, and with the verb that fits: `1 step`, `2,000 steps`, `1 run is`."""
    verb = "" if verbs is None else f" {verbs[count != 1]}"
    return f"{count:,} {noun}{'' if count == 1 else 's'}{verb}"

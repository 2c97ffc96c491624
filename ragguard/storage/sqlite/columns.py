"""Converts values for the columns of a row: texts that UTF-8 can hold, and JSON of any value."""

from __future__ import annotations

import json
from collections.abc import Callable
from json.encoder import encode_basestring_ascii
from typing import Any, Final, TypeAlias

from ragguard.text.plain import plain, without_surrogates

DIGEST_BYTES: Final = 16

Data: TypeAlias = dict[str, Any]
"""The values of a row that have no column of their own; they stand in its column `body` as JSON."""


def _encoder() -> Callable[[object], str]:
    """Returns Python's JSON encoder in C, made once; `JSONEncoder.encode` makes one for each value."""
    made = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False)
    in_c: Any = getattr(json.encoder, "c_make_encoder", None)
    if in_c is None:
        return made.encode
    encode = in_c(None, made.default, encode_basestring_ascii, None, ":", ",", False, False, False)
    return lambda value: "".join(encode(value, 0))


_encode = _encoder()


def dump(value: object) -> str:
    """Returns JSON of any value: what JSON does not know is written as its text, a NaN as null."""
    try:
        return _encode(value)
    except (TypeError, ValueError, RecursionError):
        return _encode(plain(value))


def storable(value: object) -> str:
    """Returns a text without halves of surrogate pairs, which UTF-8 cannot hold; for a number (an id) its digits."""
    return without_surrogates(value if isinstance(value, str) else str(value))


def maybe(text: str | None) -> str | None:
    """Returns a text as `storable` does, and None for None."""
    return None if text is None else storable(text)

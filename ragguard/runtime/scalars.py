"""The types of single values in records: what is allowed, in which words, and how a value comes from data or from
another type. Knows no record; `schema.py` chooses a type for each field."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from ragguard.text.plain import plain_metadata, without_surrogates

LONGEST_TEXT = 1_000_000
"""The most characters of one text in a file; no model reads more."""
WHOLE = range(2**63)
"""The whole numbers that a database holds."""
_INT64 = range(-(2**63), 2**63)


class WrongField(Exception):
    """A value that a field does not allow. The path grows from the field outwards while the error is raised."""

    def __init__(self, value: object, allowed: str, path: str = "") -> None:
        self.value, self.allowed, self.path = value, allowed, path

    def under(self, outer: str) -> None:
        """Puts the name or the position of what holds the field before the path."""
        self.path = f"{outer}{'.' if self.path and self.path[0] != '[' else ''}{self.path}"


@dataclass(frozen=True, slots=True)
class Scalar:
    """The type of one value, or of a mapping of the user's own."""

    allowed: str
    stored: tuple[type, ...]
    """The types of a value in a database, and in a captured record that needs no conversion."""
    empty: Any
    """Stands in place of a captured value that cannot be kept."""
    fits: Callable[[Any], bool]
    convert: Callable[[Any], Any]
    """Makes a value of this type of a captured one; raises anything where that cannot be."""
    of_data: Callable[[Any], Any] = lambda value: value
    """Makes a value of data from JSON that fit."""
    within: Container[Any] | None = None
    """The allowed values where not every value of a stored type is allowed."""

    def check(self, value: Any) -> None:
        """Raises WrongField for a value that is not allowed."""
        if not self.fits(value):
            raise WrongField(value, self.allowed)

    def read(self, data: Any) -> Any:
        """Returns the value of data from JSON; raises WrongField for data that are not allowed."""
        if not self.fits(data):
            raise WrongField(data, self.allowed)
        return self.of_data(data)

    def write(self, value: Any) -> Any:
        """Returns data for JSON."""
        return plain_metadata(value) if self is MAPPING else value

    def fit(self, value: Any) -> Any:
        """Returns a captured value of any type as one that is stored; raises anything where that cannot be."""
        converted = self.convert(value)
        self.check(converted)
        return converted


@lru_cache(maxsize=64)
def whole(limits: range) -> Scalar:
    """Returns the type of the whole numbers in a range."""
    least, most = limits[0], limits[-1]
    bounds = f", {least} or more" if limits == WHOLE else f" from {least} to {most}"

    def fits(value: object) -> bool:
        return isinstance(value, int) and value is not True and value is not False and least <= value <= most

    return Scalar(f"a whole number{bounds}", (int,), empty=0, fits=fits, convert=_whole_of, within=limits)


@lru_cache(maxsize=64)
def choice(names: tuple[str, ...]) -> Scalar:
    """Returns the type of a text that is one of several; one that cannot be kept is an `error`."""

    def fits(value: object) -> bool:
        return isinstance(value, str) and value in names

    empty = "error" if "error" in names else names[0]
    return Scalar(", ".join(names), (str,), empty=empty, fits=fits, convert=_text_of, within=names)


def _text_of(value: object) -> str:
    if value is None:
        raise TypeError
    return str(value)


def _whole_of(value: Any) -> int:
    return int(value) if isinstance(value, float) and value.is_integer() else operator.index(value)


def _text_of_data(data: str | int) -> str:
    text = str(data)
    if len(text) > LONGEST_TEXT:
        raise WrongField(f"{len(text)} characters", f"at most {LONGEST_TEXT}: cut it into passages")
    return without_surrogates(text)


def _number_of_data(data: float) -> float:
    if not math.isfinite(data):
        raise WrongField(data, "a finite number")
    return float(data) if isinstance(data, int) and data not in _INT64 else data


def _is_id(value: object) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    if isinstance(value, float):
        return True
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _is_hexadecimal(value: object) -> bool:
    try:
        return isinstance(value, str) and int(value, 16) >= 0
    except ValueError:
        return False


def _is_a(kind: type) -> Callable[[object], bool]:
    return lambda value: isinstance(value, kind)


TEXT = Scalar("a text", (str,), "", _is_a(str), convert=_text_of, of_data=_text_of_data)
ID = Scalar("a text, or a whole number", (str,), "", _is_id, convert=_text_of, of_data=_text_of_data)
QUOTING = replace(TEXT)
"""A text that may quote other texts of its record."""
HEXADECIMAL = Scalar("hexadecimal digits", (str,), "0", _is_hexadecimal, convert=_text_of)
NUMBER = Scalar(
    "a number that a float can hold", (float, int), 0.0, _is_number, convert=float, of_data=_number_of_data
)
FLAG = Scalar("true or false", (bool,), empty=False, fits=_is_a(bool), convert=bool)
MAPPING = Scalar(
    "an object of names and values", (dict,), empty={}, fits=_is_a(Mapping), convert=plain_metadata
)

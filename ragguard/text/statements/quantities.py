"""Quantities in answers and references, compared across units: "two weeks" is "14 days", and "2 pm" is "14:00".

The names of units are English.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isclose
from typing import NamedTuple

from ragguard.text import lexicon
from ragguard.text.statements.words import answer_words, is_number, is_small

_TOLERANCE = 0.005
"""The relative difference up to which converted quantities are the same."""
_KINDS = {
    unit: (kind, float(size))
    for table in lexicon.languages("units").values()
    for kind, units in table.items()
    for unit, size in units.items()
}
"""The kind of each unit, as `answer_words` spells it, and its size in the first unit of size 1 of its kind."""
_PARTS = {
    "hour": ("minute", "min"),
    "hr": ("minute", "min"),
    "minute": ("second",),
    "foot": ("inch", "inche"),
}
"""The units that go on a quantity, as in "3 hours and 48 minutes"."""
_SCALES: Mapping[str, float] = lexicon.languages("numbers")["english"]["scales"]
_HALF_DAY = re.compile(r"\b(\d{1,2})(?:[:.](\d\d))?\s?([ap])\.?\s?m\b\.?", re.IGNORECASE)
_CLOCK = re.compile(r"(?<![\d:])(\d{1,2}):(\d\d)(?![\d:])")
_MONEY = re.compile(r"([$€])\s?(\d[\d,.]*\b(?:\s(?:thousand|[mbtr]+illion)\b)?)", re.IGNORECASE)
_MINUS = re.compile(r"\b(?:minus|negative)\s(?=\d)", re.IGNORECASE)
_SCALE_OF_DEGREES = re.compile(r"(?:°|\bdegrees?)\s?(?=(?:c|f|celsius|fahrenheit)\b)", re.IGNORECASE)
_RATE = re.compile(r"(?<=\w)\s?/\s?(?=[a-z])|(?<=[a-z])[²³]", re.IGNORECASE)
_AROUND = lexicon.words("function_words", "quantifying")
"""Words that may stand beside a reference that is a quantity."""


class _Quantity(NamedTuple):
    kind: str
    unit: str
    value: float

    def equals(self, other: _Quantity) -> bool:
        tolerance = 0.0 if self.unit == other.unit else _TOLERANCE
        return isclose(self.value, other.value, rel_tol=max(tolerance, 1e-9))


def is_unit(word: str) -> bool:
    """Returns whether a word, as `answer_words` spells it, is the name of a unit."""
    return word in _KINDS


def same_quantity(answer: str, reference: str) -> bool | None:
    """Returns True if the answer has the quantity that a reference is, in whatever unit; None if it has another value
    in another unit of the same kind; False if there is nothing to convert."""
    quantities, others = _quantities(reference)
    if len(quantities) != 1 or any(not is_small(word) and word not in _AROUND for word in others):
        return False
    [wanted] = quantities
    stated = [one for one in _quantities(answer)[0] if one.kind == wanted.kind]
    if stated and all(one.equals(wanted) for one in stated):
        return True
    return None if any(one.unit != wanted.unit for one in stated) else False


def _quantities(text: str) -> tuple[list[_Quantity], list[str]]:
    """Returns the quantities of a text, and its other words."""
    text = _CLOCK.sub(lambda time: _clock(time[1], time[2], "hm"), _HALF_DAY.sub(_half_day, text))
    text = _MONEY.sub(lambda money: f"{money[2]} {'dollar' if money[1] == '$' else 'euro'}", text)
    text = _SCALE_OF_DEGREES.sub(" ", text).replace("°", " degree ")
    words = answer_words(_RATE.sub(" per ", _MINUS.sub("-", text)))
    quantities: list[_Quantity] = []
    others: list[str] = []
    at, end = 0, -1
    while at < len(words):
        length = _length(words, at)
        if not length:
            others.append(words[at])
            at += 1
            continue
        quantity = _quantity(*words[at : at + length])
        goes_on = quantities and end in (at, at - 1) and words[end:at] in ((), ("and",))
        if (
            goes_on
            and quantities[-1].kind == quantity.kind
            and quantity.unit in _PARTS.get(quantities[-1].unit, ())
        ):
            last = quantities.pop()
            quantity = _Quantity(last.kind, f"{last.unit} {quantity.unit}", last.value + quantity.value)
        quantities.append(quantity)
        at = end = at + length
    return quantities, others


def _quantity(number: str, *unit: str) -> _Quantity:
    kind, size = _KINDS[unit[-1]]
    value = float(number.replace("−", "-")) * size * (_SCALES[unit[0]] if len(unit) > 1 else 1)
    if unit[-1] in ("f", "fahrenheit"):
        value = (value - 32) / 1.8
    return _Quantity(kind, unit[-1], value)


def _length(words: tuple[str, ...], at: int) -> int:
    """Returns how many words the quantity has that begins at a place: a number, perhaps a scale, and a unit that no
    rate makes another one, as in "km per hour"; 0 for none."""
    if not is_number(words[at]):
        return 0
    end = at + (2 if at + 1 < len(words) and words[at + 1] in _SCALES else 1)
    is_rate = words[end + 1 : end + 2] == ("per",)
    return end + 1 - at if end < len(words) and is_unit(words[end]) and not is_rate else 0


def _half_day(time: re.Match[str]) -> str:
    hour = int(time[1]) % 12 + (12 if time[3] in "pP" else 0)
    return _clock(str(hour), time[2] or "0", "oclock")


def _clock(hour: str, minute: str, unit: str) -> str:
    return f"{int(hour) * 60 + int(minute)} {unit}"

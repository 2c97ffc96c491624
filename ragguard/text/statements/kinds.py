"""Tells which kind of answer a question asks for, and whether a text has one: a number, a date or a name."""

from __future__ import annotations

import re
from typing import NamedTuple

from ragguard.text import lexicon


def _any_of(kind: str, field: str) -> str:
    return "|".join(sorted(lexicon.words(kind, field)))


_NUMBERS = lexicon.languages("numbers")["english"]
_IN_WORDS = "|".join([*_NUMBERS["ones"].split(), *_NUMBERS["tens"].split(), *_NUMBERS["scales"]])
FIGURE = re.compile(rf"\d[\d.,]*|\b(?:{_IN_WORDS})\b", re.IGNORECASE)
"""A number in digits or in words."""
_COUNTED = re.compile(r"\bhow\s+many\s+(\w+(?:\s+\w+)?)", re.IGNORECASE)
"""The things that a question counts: "paying members" of "How many paying members …"."""
_HOW_MANY = re.compile(rf"\bhow\s+(?:{_any_of('questions', 'measures')})\b|\bwhat\s+time\b", re.IGNORECASE)
_PRICE = re.compile(rf"\bwhat\b[^?]*\b(?:{_any_of('questions', 'prices')})\b", re.IGNORECASE)
_WHEN = re.compile(rf"\b(?:when|(?:what|which)\s+(?:{_any_of('questions', 'periods')}))\b", re.IGNORECASE)
_WHO = re.compile(rf"\b(?:{_any_of('questions', 'persons')})\b", re.IGNORECASE)
_WHICH_ONE = re.compile(r"\bwhich\s+ones?\b", re.IGNORECASE)
"""A question word whose "one" names nothing."""


class AnswerKind(NamedTuple):
    """A kind of answer, with the form of one in a text."""

    name: str
    form: re.Pattern[str]
    besides: re.Pattern[str] | None = None
    """Texts that look like an answer of this kind, and are none."""

    def is_in(self, text: str) -> bool:
        """Returns whether a text holds an answer of this kind."""
        return self.form.search(self.besides.sub(" ", text) if self.besides else text) is not None


_MONTHS = _any_of("dates", "months")
DATED = re.compile(
    rf"\b(?:\d{{1,2}}(?:st|nd|rd|th)?\s+(?:of\s+)?)?(?:{_MONTHS})\b(?:\s+\d{{1,2}}(?:st|nd|rd|th)?\b)?(?:,?\s+\d{{4}}\b)?"
    r"|\b(?:in|since|by|until|from)\s+(?:1\d|20)\d\d\b"
)
"""A date, whose numbers count nothing: "31 March 2026", "in 2019"."""
_NUMBER = AnswerKind(
    "number", re.compile(rf"{FIGURE.pattern}|\b(?:{_any_of('questions', 'numbers')})\b", re.IGNORECASE), DATED
)
_DATE = AnswerKind(
    "date",
    re.compile(
        r"\b\d{4}\b|\d[:/.]\d\d|\d(?:st|nd|rd|th)\b|"
        rf"\b(?:{_MONTHS}|(?:{_any_of('dates', 'weekdays')})s?|{_any_of('dates', 'times')})\b"
    ),
)
_NAME = AnswerKind("name", re.compile(r"(?<=\w )[A-Z]\w+"))


def kind_asked(question: str) -> AnswerKind | None:
    """Returns the kind of answer that a question asks for; None if any text may answer."""
    kinds = ((_HOW_MANY, _NUMBER), (_PRICE, _NUMBER), (_WHEN, _DATE), (_WHO, _NAME))
    return next((kind for asks, kind in kinds if asks.search(question)), None)


def counted_things(question: str) -> str:
    """Returns what a question counts: "berths" of "How many berths …"; "" if it counts nothing."""
    counted = _COUNTED.search(question)
    return counted[1] if counted else ""


def subject_of(question: str) -> str:
    """Returns a question without the words that only ask: "How many", "what time", "which one"."""
    return _WHICH_ONE.sub(" ", _HOW_MANY.sub(" ", question))

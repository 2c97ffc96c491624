"""Decides by words only whether an answer is right, as people judge it, or that words do not decide.

An answer that holds a reference is right, also if it says more. Names in another order or without the middle one,
other spellings of numbers and dates, quantities in other units, and a short answer that stands in a long reference are
right as well. An answer that shares no word with a reference that is a name, or has another number, is wrong. Between
them words do not decide: a part of the reference's words, a reference that the question holds already, a negation, a
concession or a second candidate beside it, a second quantity with its unit, an abstention before it.
docs/reference/scorers.md has how often people agree.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ragguard.errors import InvalidInput
from ragguard.metrics import arrays
from ragguard.metrics.answers import begins_abstaining, is_abstention
from ragguard.text.answer_words import Words, answer_words, content, is_number, is_small, place_of, stands_in
from ragguard.text.language import ENGLISH, Language
from ragguard.text.quantities import is_unit, same_quantity

_NEGATIONS = frozenset("not never no neither nor without isnt wasnt doesnt didnt rather".split())
_CONCESSIONS = frozenset("although though while whereas despite unlike".split())
"""Words before a reference that is said in passing."""
_POLARITY = (("yes",), ("no",))
_VAGUE = frozenset(
    "century decade approximately about around circa bc prior before after early late mid between nearly over roughly "
    "almost".split()
)
"""Words beside which two numbers may differ and mean the same."""
_DECADE = re.compile(r"\d0s\b")
_LIST = re.compile(r"&|\b(?:and|or)\b")
_CHOICE = re.compile(r"\bor\b")
_NAME_OR_FIGURE = re.compile(r"\b(?:[A-Z]\w+|\d[\d.,]*)")
_SHORT_ANSWER = 4
"""The most words of an answer that may stand inside a longer reference."""
_NAME = 4
"""The most words of a reference that is looked upon as a name: if the answer has none of them it is wrong."""
ONE_CLAUSE = 8
"""The most words of an answer that is no sentence. In one so short a second candidate beside the reference leaves it
undecided."""
_CHOSEN = 4
"""The most words between "either" and a reference that it leaves open, as in "either Bo Lund or Ada Berg"."""
_SQUASHED = 6
"""The letters from which a reference is found without word bounds, as in "wasperformed byLady Gaga"."""


def right_by_words(
    answer: str, references: str | Sequence[str], question: str = "", language: Language = ENGLISH
) -> bool | None:
    """Returns whether an answer is right by its words; None if they do not decide.

    Args:
        answer: The answer, short or in sentences.
        references: The right answers, each of which is enough.
        question: The question; what it says already is no answer.
        language: The language of abstentions.
    """
    if is_abstention(answer, language):
        return False
    targets = [references] if isinstance(references, str) else arrays.items("references", references)
    if not all(isinstance(text, str) for text in (*targets, question)):
        raise InvalidInput("references", references, "texts")
    said = _AnswerTokens.of(answer, question)
    is_name = any(target[:1].isupper() for target in targets)
    vague = any(_DECADE.search(text) or _VAGUE & {*answer_words(text)} for text in (answer, *targets))
    verdicts = {
        _verdict(said, target, answer_words(target), is_name=is_name, vague=vague, alternatives=targets)
        for target in targets
        if answer_words(target)
    }
    if begins_abstaining(answer, language):
        verdicts = {None if verdict else verdict for verdict in verdicts}
    # One reference is enough; without it, one that is undecided leaves the answer undecided.
    return next((verdict for verdict in (True, None, False) if verdict in verdicts), None)


def contradicts_itself(
    answer: str, references: str | Sequence[str], question: str = "", language: Language = ENGLISH
) -> str:
    """Returns why an answer that has the words of a reference is not right all the same; "" for any other answer: it
    denies the reference ("not in Oslo"), or leaves the choice between it and another one ("Oslo, or maybe Bergen").

    The arguments are those of `right_by_words`, which does not decide such answers.
    """
    if right_by_words(answer, references, question, language) is not None:
        return ""
    said = _AnswerTokens.of(answer, question)
    targets = [references] if isinstance(references, str) else [*references]
    for words in map(answer_words, targets):
        place = _found(said, words)
        if place is None or all(word in said.question for word in content(words)):
            continue
        if _NEGATIONS & {*place.words[max(0, place.start - 2) : place.start]}:
            return "it denies a reference"  # behind it, a negation may be about another answer
        others = {word for name in _NAME_OR_FIGURE.findall(answer) for word in answer_words(name)}
        if _CHOICE.search(answer) and others & _beside(place, said, targets):
            return "it leaves the choice between a reference and another answer"
    return ""


class _AnswerTokens(NamedTuple):
    """The words of an answer, and what the question says already."""

    text: str
    words: Words
    content: Words
    known: frozenset[str]
    question: frozenset[str]
    is_list: bool
    """True if it may name several things."""

    @classmethod
    def of(cls, answer: str, question: str) -> _AnswerTokens:
        words = answer_words(answer)
        asked = frozenset(content(answer_words(question)))
        return cls(answer, words, content(words), frozenset(words), asked, is_list=bool(_LIST.search(answer)))

    def has(self, word: str) -> bool:
        """Returns whether the answer has a word, or a year with a footnote's digit behind it."""
        if not is_number(word):
            return stands_in(word, self.known)
        footnoted = len(word) >= 4 and any(other[:-1] == word for other in self.known if is_number(other))
        return word in self.known or footnoted

    @property
    def new_numbers(self) -> list[str]:
        """The numbers that the question does not have."""
        return [word for word in self.words if is_number(word) and word not in self.question]


def _verdict(
    said: _AnswerTokens, target: str, words: Words, *, is_name: bool, vague: bool, alternatives: Sequence[str]
) -> bool | None:
    """Returns whether an answer is right by one reference."""
    if words in _POLARITY and (words[0] in said.words or said.words[:1] not in _POLARITY):
        return True if said.words[:1] == words else None
    wanted = content(words)
    in_question = all(word in said.question for word in wanted)
    if place := _found(said, words):
        if in_question and wanted != said.content:
            return None
        doubtful = (
            _is_negated(place)
            or (said.is_list and _beside(place, said, alternatives))
            or _has_other_quantity(place, said.words)
        )
        return None if doubtful else True
    if not in_question and (same := same_quantity(said.text, target)) is not False:
        return same
    squashed = "" if any(map(is_number, words)) or in_question else "".join(words)
    if len(squashed) >= _SQUASHED and squashed in "".join(said.words):
        return True
    asked = [word for word in wanted if word not in said.question] or list(wanted)
    numbers = [word for word in asked if is_number(word)]
    if not all(map(said.has, numbers)):
        return False if not vague and _clash(said, asked, numbers) else None
    share = sum(map(said.has, asked)) / len(asked)
    if share == 1 and len(asked) == len(wanted):
        return True if _stand_together(said.words, asked) else None
    own = [word for word in said.content if word not in said.question] or list(said.content)
    if len(own) <= _SHORT_ANSWER and all(stands_in(word, wanted) for word in own):
        whole = not _LIST.search(target) and not all(map(is_number, own))
        return True if share >= 0.5 and is_name and whole else None
    if len(wanted) >= 3 and not numbers and len(asked) == len(wanted) and target[:1].isupper():
        first, *_, last = wanted
        if any(
            said.words[at] == first and last in said.words[at + 1 : at + 4] for at in range(len(said.words))
        ):
            return True
    return False if not share and is_name and len(wanted) <= _NAME else None


class _PlaceInAnswer(NamedTuple):
    """The place of a reference in the words of an answer, or in those of them that are not small."""

    words: Words
    start: int
    end: int


def _found(said: _AnswerTokens, reference: Words) -> _PlaceInAnswer | None:
    """Returns the place of a reference in an answer, or without small words in either; None if it does not stand
    there."""
    for words, wanted in ((said.words, reference), (said.content, content(reference))):
        if (at := place_of(words, wanted)) >= 0:
            return _PlaceInAnswer(words, at, at + len(wanted))
    return None


def _is_negated(place: _PlaceInAnswer) -> bool:
    """Returns whether a negation stands beside a reference, or words before it that say it in passing only."""
    words, start, end = place
    before, behind = {*words[max(0, start - 2) : start]}, {*words[end : end + 2]}
    return bool((_NEGATIONS | _CONCESSIONS) & before or _NEGATIONS & behind)


def _has_other_quantity(place: _PlaceInAnswer, words: Words) -> bool:
    """Returns whether an answer has another number with the unit of a reference: "30 km/h until 2019, 50 km/h now"."""
    number, *unit = place.words[place.start : place.end]
    size = len(unit)
    return (
        is_number(number)
        and bool(unit)
        and is_unit(unit[0])
        and any(
            is_number(word) and word != number and [*words[at + 1 : at + 1 + size]] == unit
            for at, word in enumerate(words)
        )
    )


def _beside(place: _PlaceInAnswer, said: _AnswerTokens, alternatives: Sequence[str]) -> set[str]:
    """Returns the words of a short answer, or of a choice, that stand beside a reference, and are not another one's."""
    if (
        len(said.words) > ONE_CLAUSE
        and "either" not in place.words[max(0, place.start - _CHOSEN) : place.start]
    ):
        return set()
    rest = place.words[: place.start] + place.words[place.end :]
    accepted = {word for target in alternatives for word in answer_words(target)} | said.question
    return {word for word in rest if word not in accepted and not is_small(word)}


def _clash(said: _AnswerTokens, asked: Sequence[str], numbers: Sequence[str]) -> bool:
    """Returns whether an answer has a few other numbers of the kind of the reference's, and none of these."""
    others = said.new_numbers
    alike = any(map(_is_year, numbers)) == any(map(_is_year, others))
    return (
        0 < len(others) <= 3 and alike and len(asked) - len(numbers) <= 2 and not any(map(said.has, numbers))
    )


def _is_year(word: str) -> bool:
    return len(word) == 4 and word.isdigit() and word[0] in "12"


def _stand_together(words: Words, wanted: Sequence[str]) -> bool:
    """Returns whether all wanted words stand within a few more words than they are."""
    for at, word in enumerate(words):
        if stands_in(word, wanted) and all(
            stands_in(one, words[at : at + len(wanted) + 3]) for one in wanted
        ):
            return True
    return False

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
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain, filterfalse
from typing import NamedTuple

from ragguard.errors import InvalidInput
from ragguard.text import lexicon
from ragguard.text.language import ENGLISH, Language
from ragguard.text.statements.abstention import begins_abstaining, is_abstention
from ragguard.text.statements.denial import CLAUSE_END, is_conceded, is_denied
from ragguard.text.statements.quantities import is_unit, same_quantity
from ragguard.text.statements.words import (
    Words,
    answer_words,
    content,
    is_number,
    is_small,
    place_of,
    stands_in,
)

_POLARITY = (("yes",), ("no",))
_VAGUE = lexicon.words("function_words", "vague")
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
_SQUASHED = 6
"""The letters from which a reference is found without word bounds, as in "wasperformed byLady Gaga"."""


class WordVerdict(NamedTuple):
    """The verdict on an answer, as far as words decide it."""

    right: bool | None
    """None if words do not decide."""
    abstained: bool = False
    """True if the answer says that it gives none."""
    why: str = ""
    """The reason for which an answer that has the words of a reference, and that words do not decide, is not right all
    the same: it denies the reference ("not in Oslo"), or leaves the choice ("Oslo, or maybe Bergen")."""


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
    return verdict_by_words(answer, references, question, language).right


def verdict_by_words(
    answer: str, references: str | Sequence[str], question: str = "", language: Language = ENGLISH
) -> WordVerdict:
    """Returns whether an answer is right by its words, with what `right_by_words` leaves out; the arguments are the
    same."""
    if is_abstention(answer, language):
        return WordVerdict(False, abstained=True)
    try:
        texts = [references] if isinstance(references, str) else list(references)
    except Exception as error:
        raise InvalidInput("references", references, "a list") from error
    if not all(isinstance(text, str) for text in (*texts, question)):
        raise InvalidInput("references", references, "texts")
    targets = {text: words for text in texts if (words := answer_words(text))}
    tokens = _AnswerTokens.of(answer, question, targets.values())
    is_name = any(text[:1].isupper() for text in texts)
    vague = any(_DECADE.search(text) or _VAGUE & {*answer_words(text)} for text in (answer, *texts))
    verdicts = {
        _verdict(tokens, text, words, is_name=is_name, vague=vague) for text, words in targets.items()
    }
    if begins_abstaining(answer, language):
        verdicts = {None if verdict else verdict for verdict in verdicts}
    # One reference is enough; without it, one that is undecided leaves the answer undecided.
    right = next((verdict for verdict in (True, None, False) if verdict in verdicts), None)
    why = "" if right is not None else next(filter(None, map(tokens.contradiction, targets.values())), "")
    return WordVerdict(right, why=why)


class _AnswerTokens(NamedTuple):
    """The words of an answer, and what question and references say already."""

    text: str
    clauses: Sequence[Words]
    words: Words
    content: Words
    known: frozenset[str]
    question: frozenset[str]
    accepted: frozenset[str]
    """The words of the question and of all references."""

    @classmethod
    def of(cls, answer: str, question: str, references: Iterable[Words]) -> _AnswerTokens:
        words, asked = answer_words(answer), frozenset(content(answer_words(question)))
        clauses = [answer_words(clause) for clause in CLAUSE_END.split(answer)]
        clauses = clauses if (*chain(*clauses),) == words else [words]
        return cls(answer, clauses, words, content(words), frozenset(words), asked, asked.union(*references))

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

    def place(self, reference: Words) -> _PlaceInAnswer | None:
        """Returns the place of a reference, or without small words in either; None if it does not stand there."""
        content_clauses = [(*filterfalse(is_small, clause),) for clause in self.clauses]
        for clauses, wanted in ((self.clauses, reference), (content_clauses, content(reference))):
            words = (*chain(*clauses),)
            if (at := place_of(words, wanted)) >= 0:
                end = at + len(wanted)
                bounds = [*accumulate(map(len, clauses), initial=0)]
                first, last = bounds[bisect_right(bounds, at) - 1], bounds[bisect_left(bounds, end)]
                return _PlaceInAnswer(wanted, words[first:at], words[end:last], words[:at] + words[end:])
        return None

    def contradiction(self, reference: Words) -> str:
        """Returns why the answer is not right although it has the words of a reference; "" if nothing is against it."""
        place = self.place(reference)
        if place is None or all(word in self.question for word in content(reference)):
            return ""
        if is_denied(place.before, (), self.question):
            return "it denies a reference"  # behind it, a denial may be about another answer
        others = {word for name in _NAME_OR_FIGURE.findall(self.text) for word in answer_words(name)}
        is_choice = _CHOICE.search(self.text) and others & self.candidates_beside(place)
        return "it leaves the choice between a reference and another answer" if is_choice else ""

    def candidates_beside(self, place: _PlaceInAnswer) -> set[str]:
        """Returns the words of a short answer, or of a choice, that stand beside a reference, and are not another
        one's."""
        if len(self.words) > ONE_CLAUSE and "either" not in place.before:
            return set()
        return {word for word in place.rest if word not in self.accepted and not is_small(word)}


def _verdict(tokens: _AnswerTokens, target: str, words: Words, *, is_name: bool, vague: bool) -> bool | None:
    """Returns whether an answer is right by one reference."""
    if words in _POLARITY and (words[0] in tokens.words or tokens.words[:1] not in _POLARITY):
        return True if tokens.words[:1] == words else None
    wanted = content(words)
    in_question = all(word in tokens.question for word in wanted)
    if place := tokens.place(words):
        if in_question and wanted != tokens.content:
            return None
        doubtful = (
            is_denied(place.before, place.behind, tokens.question)
            or is_conceded(place.before)
            or (_LIST.search(tokens.text) and tokens.candidates_beside(place))
            or _has_other_quantity(place, tokens.words)
        )
        return None if doubtful else True
    if not in_question and (same := same_quantity(tokens.text, target)) is not False:
        return same
    squashed = "" if any(map(is_number, words)) or in_question else "".join(words)
    if len(squashed) >= _SQUASHED and squashed in "".join(tokens.words):
        return True
    asked = [word for word in wanted if word not in tokens.question] or list(wanted)
    numbers = [word for word in asked if is_number(word)]
    if not all(map(tokens.has, numbers)):
        return False if not vague and _clash(tokens, asked, numbers) else None
    share = sum(map(tokens.has, asked)) / len(asked)
    if share == 1 and len(asked) == len(wanted):
        return True if _stand_together(tokens.words, asked) else None
    own = [word for word in tokens.content if word not in tokens.question] or list(tokens.content)
    if len(own) <= _SHORT_ANSWER and all(stands_in(word, wanted) for word in own):
        whole = not _LIST.search(target) and not all(map(is_number, own))
        return True if share >= 0.5 and is_name and whole else None
    if len(wanted) >= 3 and not numbers and len(asked) == len(wanted) and target[:1].isupper():
        first, *_, last = wanted
        if any(
            word == first and last in tokens.words[at + 1 : at + 4] for at, word in enumerate(tokens.words)
        ):
            return True
    return False if not share and is_name and len(wanted) <= _NAME else None


class _PlaceInAnswer(NamedTuple):
    """The place of a reference in an answer, or without small words in either."""

    reference: Words
    before: Words
    """The words of its clause before it."""
    behind: Words
    """The words of its clause behind it."""
    rest: Words
    """All words of the answer but its own."""


def _has_other_quantity(place: _PlaceInAnswer, words: Words) -> bool:
    """Returns whether an answer has another number with the unit of a reference: "30 km/h until 2019, 50 km/h now"."""
    number, *unit = place.reference
    if not is_number(number) or not unit or not is_unit(unit[0]):
        return False
    return any(
        is_number(word) and word != number and [*words[at : at + len(unit)]] == unit
        for at, word in enumerate(words, 1)
    )


def _clash(tokens: _AnswerTokens, asked: Sequence[str], numbers: Sequence[str]) -> bool:
    """Returns whether an answer has a few other numbers of the kind of the reference's, and none of these."""
    others = tokens.new_numbers
    alike = any(map(_is_year, numbers)) == any(map(_is_year, others))
    few_words = len(asked) - len(numbers) <= 2
    return 0 < len(others) <= 3 and alike and few_words and not any(map(tokens.has, numbers))


def _is_year(word: str) -> bool:
    return len(word) == 4 and word.isdigit() and word[0] in "12"


def _stand_together(words: Words, wanted: Sequence[str]) -> bool:
    """Returns whether all wanted words stand within a few more words than they are."""
    return any(
        stands_in(word, wanted)
        and all(stands_in(other, words[at : at + len(wanted) + 3]) for other in wanted)
        for at, word in enumerate(words)
    )

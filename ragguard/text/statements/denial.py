"""Tells what a text states from what it denies: "It was built in 1910, not in 1901" does not state 1901."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Set
from itertools import takewhile, zip_longest

from ragguard.text import lexicon
from ragguard.text.statements.names import MARKS
from ragguard.text.statements.phrases import LONGEST, findable, mentions
from ragguard.text.statements.words import Words, answer_words
from ragguard.text.words import POSSESSIVE, SPACELESS, figure_words

_NEAR = 3
"""The most words between a text and a denial of it, as in "not in 1901" and "Ada Berg has never been there"."""
_NEAR_CHARACTERS = 2
"""The same in a script without spaces."""
CLAUSE_END = re.compile(r"[.,;:!?](?=\s|$)|[。，、；：！？“”\"()]|\s[-–—]\s")


def _spelled(*fields: str) -> frozenset[str]:
    """Returns words of the lexicon as `answer_words` spells them."""
    words = (word for field in fields for word in lexicon.words("denials", field))
    return frozenset(spelled for word in words for spelled in answer_words(word))


_BEFORE = _spelled("before", "around", "adverbs")
_AROUND, _ADVERBS, _JOINS, _ONLY = (_spelled(field) for field in ("around", "adverbs", "joins", "only"))
_CONCESSIONS = _spelled("concessions")
_CHARACTERS = "|".join(lexicon.words("denials", "characters"))
_CHARACTERS_BEFORE = re.compile(rf"(?:{_CHARACTERS})\w{{,{_NEAR_CHARACTERS}}}$")
_CHARACTERS_BEHIND = re.compile(rf"\w{{,{_NEAR_CHARACTERS}}}(?:{_CHARACTERS})")


def is_denied(before: Words, behind: Words, asked: Collection[str] = ()) -> bool:
    """Returns whether the words of a clause that stand before and behind a text deny it; a denial that the question
    has (`asked`) is no denial of its answer."""

    def denies(words: Words, denials: Set[str]) -> bool:
        return any(
            word in denials and word not in asked and after not in _ONLY
            for word, after in zip_longest(words, words[1:])
        )

    goes_on = tuple(takewhile(lambda word: word not in _JOINS, behind[:_NEAR]))
    return denies(before[-_NEAR:], _BEFORE) or denies(goes_on, _AROUND) or denies(goes_on[1:], _ADVERBS)


def is_conceded(before: Words) -> bool:
    """Returns whether the last words of a clause before a text say it in passing, as "although" does."""
    return bool(_CONCESSIONS & {*before[-_NEAR:]})


def stated_in(answer: str, text: str) -> str:
    """Returns a text as an answer spells it; "" if the answer does not have it, or only with a denial beside it."""
    if not mentions(answer, findable([text])):
        return ""
    spaceless = SPACELESS.search(text) is not None
    places = [*(_places_of_characters if spaceless else _places_of_words)(answer, text)]
    for before, spelled, behind in places:
        clause = CLAUSE_END.split(before)[-1], CLAUSE_END.split(behind)[0]
        if spaceless and (_CHARACTERS_BEFORE.search(clause[0]) or _CHARACTERS_BEHIND.match(clause[1])):
            continue
        if not is_denied(*map(answer_words, clause)):
            return spelled
    return "" if places else text


def _places_of_characters(answer: str, text: str) -> Iterator[tuple[str, str, str]]:
    """Yields the places of a text in an answer: what stands before it, its spelling, and what stands behind it."""
    for place in re.finditer(re.escape(text), answer):
        yield answer[: place.start()], text, answer[place.end() :]


def _places_of_words(answer: str, text: str) -> Iterator[tuple[str, str, str]]:
    """Yields the same of a text by its words."""
    tokens, words = [*re.finditer(r"\S+", answer)], figure_words(text)
    for at, first in enumerate(tokens):
        for last in tokens[at : at + LONGEST]:
            raw = answer[first.start() : last.end()].rstrip(MARKS)
            spelled = POSSESSIVE.sub("", raw.lstrip(MARKS))
            if figure_words(spelled) == words:
                yield answer[: first.start()], spelled, answer[first.start() + len(raw) :]

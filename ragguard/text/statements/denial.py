"""Tells what a text states from what it denies: "It was built in 1910, not in 1901" does not state 1901."""

from __future__ import annotations

import re

from ragguard.text import lexicon
from ragguard.text.statements.names import MARKS
from ragguard.text.statements.phrases import LONGEST, findable, mentions
from ragguard.text.words import POSSESSIVE, figure_words

DENIALS = lexicon.words("denials", "before")
CONCESSIONS = lexicon.words("denials", "concessions")
"""Words before a text that is said in passing."""
_BEFORE = 3
"""The most words between the beginning of a denial and what it denies, as in "not in 1901"."""
_DENIAL = re.compile(r"\b(?:not|never|nor|neither)\b|n['’]t\b", re.IGNORECASE)
_DENIED_BEHIND = re.compile(
    r"\W*(?:(?:do|does|did|is|was|are|were|has|have|had|can|could|will|would)\s+(?:not|never)\b|never\b|\w+n['’]t\b)",
    re.IGNORECASE,
)
_CLAUSE_END = re.compile(r"[.,;:!?](?=\s|$)")


def stated_in(answer: str, text: str) -> str:
    """Returns a text as an answer spells it; "" if the answer does not have it, or only with a denial beside it."""
    phrases = findable([text])
    if not mentions(answer, phrases):
        return ""
    words = [(word[0], *word.span()) for word in re.finditer(r"\S+", answer)]
    has_place = False
    for first in range(len(words)):
        for last in range(first, min(first + LONGEST, len(words))):
            start, end = words[first][1], words[last][2]
            spelled = POSSESSIVE.sub("", answer[start:end].strip(MARKS))
            if f" {figure_words(spelled)} " != phrases[0].words:
                continue
            has_place = True
            clause = _CLAUSE_END.split(answer[:start])[-1]
            if not _DENIAL.search(" ".join(clause.split()[-_BEFORE:])) and not _DENIED_BEHIND.match(
                answer[end:]
            ):
                return spelled
    return "" if has_place else text

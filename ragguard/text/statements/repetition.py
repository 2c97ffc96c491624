"""Tells whether an answer only repeats its question."""

from __future__ import annotations

import re

from ragguard.text import lexicon
from ragguard.text.search import stem, terms

_CHOICE = re.compile(r"\bor\b", re.IGNORECASE)
_LINKING = {stem(word) for word in lexicon.words("function_words", "linking")}


def repeats_question(answer: str, question: str) -> bool:
    """Returns whether an answer says only what its question says, but for a verb that links its words: "The discount
    applies to members." of "Which members get the discount?". A question with "or" may name its answer."""
    return _CHOICE.search(question) is None and {*terms(answer)} - {*terms(question)} <= _LINKING

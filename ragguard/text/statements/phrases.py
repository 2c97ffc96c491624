"""Finds short texts, such as an answer or a name, in passages: word for word."""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ragguard.text.language import normalise
from ragguard.text.words import POSSESSIVE, figure_words

LONGEST = 8
"""The most words of a text that is looked for: a longer one is put otherwise in a passage."""
_NO_CONTENT = frozenset(("yes", "no", "true", "false", "none"))
"""Answers that stand in a text by chance."""
_PUNCTUATION = string.punctuation.encode()


class Phrase(NamedTuple):
    """A short text that is looked for in passages."""

    words: str
    """The text in the form of `figure_words`, with spaces around it unless its script may not set words apart."""
    rarest: str
    """Characters that a passage with the phrase has, punctuation left out: digits, or else the longest word."""


def findable(texts: Iterable[str]) -> list[Phrase]:
    """Returns those of the texts whose words would not stand in a passage by chance, nor be put otherwise there."""
    phrases: list[Phrase] = []
    for text in texts:
        plain = normalise(text)
        if not 1 <= len(plain.split()) <= LONGEST or plain in _NO_CONTENT or not any(map(str.isalnum, plain)):
            continue
        words = figure_words(text)
        bare = normalise(POSSESSIVE.sub("", text))
        # Letters of a script without capitals, such as Han or Thai.
        spaceless = any(unicodedata.category(char) == "Lo" for char in words)
        rarest = max(re.findall(r"\d+", bare) or bare.split(), key=len)
        phrases.append(Phrase(words if spaceless else f" {words} ", rarest))
    return phrases


def mentions(text: str, phrases: Sequence[Phrase]) -> bool:
    """Returns whether one of the phrases stands in a text word for word."""
    return bool(mentioned(text, phrases))


def mentioned(text: str, phrases: Sequence[Phrase]) -> list[Phrase]:
    """Returns those of the phrases that stand in a text word for word."""
    if text.isascii():  # few texts have the rarest part of a phrase, and finding the words of a text is slow
        plain = text.encode("ascii").translate(None, _PUNCTUATION).lower().decode("ascii")
        phrases = [phrase for phrase in phrases if phrase.rarest in plain]
    if not phrases:
        return []
    words = f" {figure_words(text)} "
    return [phrase for phrase in phrases if phrase.words in words]

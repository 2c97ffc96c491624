"""Finds short texts, such as answers and names, in passages, word for word and without a model."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

from ragguard.text.language import normalise

LONGEST = 8
"""The most words of a text that is looked for: a longer one is put otherwise in a passage."""
_NO_CONTENT = frozenset(("yes", "no", "true", "false", "none"))
"""Answers that stand in a text by chance."""
_MARKS = ".,;:!?\"'“”‘’()[]"
_ENDS = ",.;:!?"
"""The marks behind which no name goes on."""


@dataclass(frozen=True, slots=True)
class Phrase:
    """A short text that is looked for in passages."""

    words: str
    """The text as answers are compared."""
    longest: str
    """The longest of the words, which is looked for first, as that is quick."""
    spaceless: bool
    """True for letters of a script without capitals, such as Han or Thai, where words may not be set apart."""


def findable(texts: Iterable[str]) -> list[Phrase]:
    """Returns those of the texts whose words would not stand in a passage by chance, nor be put otherwise there."""
    found: list[Phrase] = []
    for text in texts:
        words = normalise(text)
        listed = words.split()
        if not 1 <= len(listed) <= LONGEST or words in _NO_CONTENT or not any(map(str.isalnum, words)):
            continue
        spaceless = any(unicodedata.category(char) == "Lo" for char in words)
        found.append(Phrase(words, longest=max(listed, key=len), spaceless=spaceless))
    return found


def states(words: str, phrases: Iterable[Phrase]) -> bool:
    """Returns whether one of the phrases stands among the words of a normalised text."""
    return any(
        phrase.words in words if phrase.spaceless else f" {phrase.words} " in f" {words} "
        for phrase in phrases
    )


def names_in(text: str) -> list[str]:
    """Returns the names in a text: runs of words that begin with capitals or digits, without a sentence's first word
    where that stands alone."""
    names: list[str] = []
    name: list[str] = []
    first = begins = True
    for word in [*text.split(), ""]:
        bare = word.strip(_MARKS).removesuffix("'s").removesuffix("’s")
        is_name = bare[:1].isupper() or bare[:1].isdigit()
        if is_name:
            begins = begins if name else first
            name.append(bare)
        if name and (not is_name or word[-1] in _ENDS):
            if len(name) > 1 or not begins or name[0][0].isdigit():
                names.append(" ".join(name))
            name = []
        first = word[-1:] in tuple(".!?")
    return names

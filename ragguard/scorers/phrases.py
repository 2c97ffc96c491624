"""Finds short texts, such as answers and names, in passages, word for word and without a model."""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ragguard.text.language import normalise

LONGEST = 8
"""The most words of a text that is looked for: a longer one is put otherwise in a passage."""
_NO_CONTENT = frozenset(("yes", "no", "true", "false", "none"))
"""Answers that stand in a text by chance."""
_MARKS = ".,;:!?\"'“”‘’()[]"
_ENDS = ",.;:!?"
"""The marks behind which no name goes on."""
_UNITS = (
    "%|°|°c|°f|nm|mm|cm|m|km|mg|g|kg|ml|l|pa|kpa|mpa|bar|psi|v|w|kw|mw|kwh|hz|khz|mhz|ghz|kb|mb|gb|tb|ms|s|min|h|"
    "km/h|mph"
)
"""Units that may be written with or without a space behind a figure; the pattern of a regular expression."""
_UNIT = re.compile(_UNITS, re.IGNORECASE)
_FIGURE = re.compile(r"[-+−±~≈]?[$€£¥]?\d")
"""The beginning of a figure."""
_DASH = "[-\u2010-\u2015\u2212]"
_DIGIT = re.compile(r"\d")
_SPACED = [
    ("—", " "), (" %", "%"), ("$", " dollar "), *((sign, f" {sign} ") for sign in "€£¥"),
]  # fmt: skip
"""Signs that are no part of a word, or of no other one than the figure before them."""
_SMALL_SPACE = re.compile(r"[\u00a0\u2009\u202f](?<=\d.)(?=\d{3}(?!\d))")
"""A space that parts thousands; an ordinary one may part two figures."""
_POSSESSIVE = re.compile(r"['’](?<=\w.)s(?!\w)")
_FORMS = [
    (re.compile(pattern, re.IGNORECASE), form)
    for pattern, form in (
        (r"(?<=\d)[,'’](?=\d{3}(?!\d))", ""),
        (rf"(?<=[\d%]){_DASH}(?=\d)", " dash "),
        (r"(?<=\d)%", " percent"),
        (rf"(?<=\d)({_UNITS})(?!\w)", r" \1"),
        (r"(?<=\d)[.,](?=\d)", "point"),
        (r"(?<=\d):(?=\d)", "colon"),
        (r"(?<=\d)/(?=\d)", "slash"),
        (rf"(?<!\w){_DASH}(?=\d)", "minus"),
    )
]
"""The marks of a figure, in the order in which they are replaced by letters, which `normalise` keeps."""
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True, slots=True)
class Phrase:
    """A short text that is looked for in passages."""

    words: str
    """The text in the form of `words_of`."""
    rarest: str
    """Characters that a passage with the phrase has, punctuation left out: digits, or else the longest word."""
    spaceless: bool
    """True for letters of a script without capitals, such as Han or Thai, where words may not be set apart."""


def words_of(text: str) -> str:
    """Returns a text in the form in which phrases are looked for: `normalise`, but figures keep marks and units.

    "2.4" is not "24", nor "-5" the same as "5"; "1,200" is "1200", and "15%" is "15 percent".
    """
    plain = _SMALL_SPACE.sub("", _POSSESSIVE.sub("", text))
    for sign, spaced in _SPACED:
        plain = plain.replace(sign, spaced)
    return normalise(" ".join([word if word.isalpha() else _figure(word) for word in plain.split()]))


def _figure(word: str) -> str:
    """Returns a word with letters in place of the marks that belong to a figure in it."""
    if not _DIGIT.search(word):
        return word
    for mark, form in _FORMS:
        word = mark.sub(form, word)
    return word


def findable(texts: Iterable[str]) -> list[Phrase]:
    """Returns those of the texts whose words would not stand in a passage by chance, nor be put otherwise there."""
    found: list[Phrase] = []
    for text in texts:
        plain = normalise(text)
        if not 1 <= len(plain.split()) <= LONGEST or plain in _NO_CONTENT or not any(map(str.isalnum, plain)):
            continue
        words = words_of(text)
        bare = normalise(_POSSESSIVE.sub("", text))
        spaceless = any(unicodedata.category(char) == "Lo" for char in words)
        rarest = max(re.findall(r"\d+", bare) or bare.split(), key=len)
        found.append(Phrase(words, rarest, spaceless))
    return found


def mentions(text: str, phrases: Sequence[Phrase]) -> bool:
    """Returns whether one of the phrases stands in a text word for word."""
    if text.isascii():  # few texts have the rarest part of a phrase, and finding the words of a text is slow
        plain = text.casefold().translate(_NO_PUNCTUATION)
        phrases = [phrase for phrase in phrases if phrase.rarest in plain]
    if not phrases:
        return False
    words = words_of(text)
    return any(
        phrase.words in words if phrase.spaceless else f" {phrase.words} " in f" {words} "
        for phrase in phrases
    )


def names_in(text: str) -> list[str]:
    """Returns the names in a text: runs of words that begin with capitals, and figures with their units; without a
    sentence's first word where that stands alone."""
    names: list[str] = []
    name: list[str] = []
    first = begins = True
    for word in [*text.split(), ""]:
        bare = word.strip(_MARKS).removesuffix("'s").removesuffix("’s")
        is_name = (
            bare[:1].isupper()
            or _FIGURE.match(bare) is not None
            or (bool(name) and _FIGURE.match(name[-1]) is not None and _UNIT.fullmatch(bare) is not None)
        )
        if is_name:
            begins = begins if name else first
            name.append(bare)
        if name and (not is_name or word[-1] in _ENDS):
            if len(name) > 1 or not begins or _FIGURE.match(name[0]):
                names.append(" ".join(name))
            name = []
        first = word[-1:] in tuple(".!?")
    return names

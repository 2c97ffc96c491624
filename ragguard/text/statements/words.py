"""Words of answers and references, as people compare them: numbers, dates, units, plurals, possessives, diacritics and
short forms have one spelling; a misspelt letter in a long word is overlooked.

The words are English (`ragguard.text.lexicon`). They change nothing in texts of other languages but a few short words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from ragguard.text import lexicon
from ragguard.text.letters import without_accents

Words = tuple[str, ...]


def _counted(text: str, first: int, step: int = 1) -> dict[str, str]:
    """Returns the words of a text with the numbers for which they stand, in digits."""
    return {word: str(first + step * at) for at, word in enumerate(text.split())}


_IN_WORDS = lexicon.languages("numbers")["english"]
_NUMBERS = (
    _counted(_IN_WORDS["ones"], 0) | _counted(_IN_WORDS["ordinals"], 0) | _counted(_IN_WORDS["tens"], 20, 10)
)
_NUMBERS |= _IN_WORDS["other"]
_ROMAN = lexicon.languages("numbers")["roman"]["numerals"]
_NUMERALS = {numeral: number for numeral, number in _counted(_ROMAN, 2).items() if numeral.isalpha()}
_SHORT = {
    short: word
    for table in lexicon.languages("short_forms").values()
    for word, forms in table.items()
    for short in forms.split()
}
_SMALL = lexicon.words("function_words", "small")
_RAISED = re.compile("[\u00b2\u00b3\u00b9\u2070-\u2079\u2080-\u2089]+")
"""Raised and lowered digits, which are footnotes in answers of search engines."""
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_INITIALS = re.compile(r"\b([A-Z])\.(?=[A-Z]\.)")
_GLUED_FOOTNOTE = re.compile(r"(?<=[a-z]{3})\d{1,2}(?=\W|$)")
_POSSESSIVE = re.compile(r"['’]s\b")
_ORDINAL_END = re.compile(r"(?<=\d)(?:st|nd|rd|th)\b")
_NUMERAL = re.compile(rf"\b(?:{'|'.join(sorted(_NUMERALS, key=len, reverse=True))})\b")
_WORD = re.compile(r"(?:(?<![\w%)])[-−])?\d+(?:\.\d+)?|[^\W\d_]+(?:\+\+|#)?|%")
_LONG = 5
"""The letters from which a word may differ in one of them, or at its end."""


@lru_cache(maxsize=4096)
def answer_words(text: str) -> Words:
    """Returns the words of a text in one spelling, in their order."""
    text = without_accents(_RAISED.sub(" ", text))
    text = _INITIALS.sub(r"\1", _THOUSANDS.sub("", text))
    text = _POSSESSIVE.sub("", _GLUED_FOOTNOTE.sub(" ", text)).replace("’", "").replace("'", "")
    text = _NUMERAL.sub(lambda match: _NUMERALS[match[0]], _ORDINAL_END.sub("", text)).replace("&", " and ")
    return tuple(map(_one_spelling, _WORD.findall(text.lower())))


def content(words: Words) -> Words:
    """Returns the words without articles and other small ones; all, if there are no others."""
    return tuple(word for word in words if word not in _SMALL) or words


def is_small(word: str) -> bool:
    """Returns whether a word is an article or another one that says nothing by itself."""
    return word in _SMALL


def is_number(word: str) -> bool:
    """Returns whether a word is a number."""
    return word[-1].isdigit()


def place_of(words: Words, part: Words) -> int:
    """Returns where some words stand one behind the other; -1 if they do not."""
    size = len(part)
    return next((at for at in range(len(words) - size + 1) if words[at : at + size] == part), -1)


def stands_in(word: str, words: Sequence[str] | frozenset[str]) -> bool:
    """Returns whether a word, or a long one that differs in a letter or its end, is among some."""
    return word in words or any(_close(word, other) for other in words)


def _one_spelling(word: str) -> str:
    word = _NUMBERS.get(word, word)
    word = _SHORT.get(word, word)
    if is_number(word):
        minus, digits = ("-", word[1:]) if word[0] in "-−" else ("", word)
        return minus + (digits.rstrip("0").rstrip(".") if "." in digits else digits.lstrip("0") or "0")
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    return (
        word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")) else word
    )


@lru_cache(maxsize=65536)
def _close(word: str, other: str) -> bool:
    if is_number(word) or is_number(other):
        return False
    short, long = sorted((word, other), key=len)
    if len(short) < _LONG:
        return False
    same = next(
        (at for at, pair in enumerate(zip(short, long, strict=False)) if pair[0] != pair[1]), len(short)
    )
    if same >= _LONG and same >= len(long) - 3:
        return True
    if len(short) == len(long):
        return short[same + 1 :] == long[same + 1 :]
    return len(long) - len(short) == 1 and short[same:] == long[same + 1 :]

"""Normalises texts so that one can be looked for in another by whole words. There are two rules:

    running_words("It is 2.4 m — 15% more.")   # "it is 2 4 m 15 more": a long text, as a passage in a prompt
    figure_words("It is 2.4 m — 15% more.")    # "it is 2point4 m 15 percent more": a short one, as a name or a number

Answers are compared by `normalise` and `meaning_key` of `ragguard.text.language`, and with references, as people do,
by `answer_words` of `ragguard.text.statements.words`.
"""

from __future__ import annotations

import re

from ragguard.text.language import normalise
from ragguard.text.letters import folded

_WORD = re.compile(r"[^\W_]+")
SPACELESS = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""A character of a script without spaces between words (Thai, Lao, Burmese, Khmer, kana, Han): a word of its own."""
_NOTATION = re.compile(r"\\[nrt]|&(?:#\d+|#x[0-9a-f]+|[a-z]+);", re.IGNORECASE)
"""Line ends in string literals, and entities of HTML: notation, not words."""
_LETTERS = bytes(ord(chr(code).lower()) if code < 128 and chr(code).isalnum() else 32 for code in range(256))
"""The letter or digit for each byte of ASCII, without case; a space for any other byte."""
DASHES = "-\u2010\u2011\u2012\u2013\u2014\u2015\u2212"
_THOUSANDS = re.compile(r"(?<=\d)[,'’\u00a0\u2009\u202f](?=\d{3}(?!\d))")
"""A mark that parts thousands; an ordinary space may part two figures."""
POSSESSIVE = re.compile(r"(?<=\w)['’]s(?!\w)")
_FIGURE = re.compile(rf"(?:(?<![\w%])[{DASHES}])?\d+(?:[.,:/]\d+)*|[%$—]")
"""A figure with the marks inside it and the minus before it, or a sign that is no part of a word."""
_SPELLED = str.maketrans(
    {".": "point", ",": "point", ":": "colon", "/": "slash", "%": "percent", "$": "dollar"}
    | dict.fromkeys(DASHES, "minus")
    | {"—": ""}
)
"""The letters, which `normalise` keeps, in place of the marks of a figure."""


def running_words(text: str) -> str:
    """Returns the words of a text, without case, set apart by single spaces: the rule for long texts."""
    if text.isascii() and "\\" not in text and "&" not in text:
        return b" ".join(text.encode("ascii").translate(_LETTERS).split()).decode("ascii")
    text = folded(_NOTATION.sub(" ", text))
    return " ".join(_WORD.findall(SPACELESS.sub(r" \g<0> ", text)))


def figure_words(text: str) -> str:
    """Returns the words of a text as `normalise` does, but figures keep their marks: the rule for names and numbers.

    "2.4" is not "24", nor "-5" the same as "5"; "1,200" is "1200", and "15%" is "15 percent".
    """
    plain = _THOUSANDS.sub("", POSSESSIVE.sub("", text))
    return normalise(_FIGURE.sub(lambda figure: f" {figure[0].translate(_SPELLED)} ", plain))

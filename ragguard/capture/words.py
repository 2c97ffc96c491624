"""Finds which of several texts stand in another one, by their words: without case, punctuation and white space.

A text counts as a whole or not at all.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ragguard.records import Passage

_HEAD_WORDS, _HEAD_LETTERS = 5, 15
"""The least words, and characters of words, at the beginning of a passage that show, without the rest, that it was
cut."""
_WORD = re.compile(r"[^\W_]+")
_SPACELESS = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""A character of a script without spaces between words (Thai, Lao, Burmese, Khmer, kana, Han): a word of its own."""
_NOTATION = re.compile(r"\\[nrt]|&(?:#\d+|#x[0-9a-f]+|[a-z]+);", re.IGNORECASE)
"""Line ends in string literals, and entities of HTML: notation, not words."""
_ESCAPED = re.compile(r"\\u([0-9a-f]{4})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Words:
    """A text as it is compared: letter by letter, and by its words alone."""

    readable: str
    text: str
    """The words, set apart by single spaces."""

    @classmethod
    def of(cls, text: str) -> Words:
        """Returns a text as it is compared, without the notation of JSON."""
        readable = _readable(text)
        return cls(readable, normalized(readable))

    @classmethod
    def joined(cls, parts: Sequence[Words]) -> Words:
        """Returns texts that stand one after the other as one text."""
        if len(parts) == 1:
            return parts[0]
        return cls("\n".join(one.readable for one in parts), " ".join(one.text for one in parts if one.text))


@dataclass(frozen=True, slots=True)
class Standing:
    """The passages that stand in a text."""

    found: list[tuple[int, Passage]]
    """Each with its index among those that were looked for, in the order of the text; those without a text last,
    since their absence cannot be seen."""
    missing: list[str]
    """The words of the passages that do not stand there."""
    left: str
    """The words of the text without those passages that stand there."""

    @property
    def cut(self) -> bool:
        """True where the beginning of a passage stands there without its end."""
        return any(head and f" {head} " in self.left for head in map(_head, self.missing))


class Sought:
    """Passages that are looked for in texts; what they are compared by is made once."""

    def __init__(self, passages: Sequence[Passage], bodies: Sequence[str] = ()) -> None:
        """Takes the passages, and their texts without what stands before them in there, which count as well."""
        self.passages = passages
        forms = [(number, text, normalized(text)) for number, text in _forms(passages, bodies)]
        self._forms = sorted(forms, key=lambda form: -len(form[2]))
        self._alike = len({words for _, _, words in forms}) < len(forms)
        """True where two texts have the same words, such as "C++" and "C#"."""
        self._textless = [(number, one) for number, one in enumerate(passages) if not one.text.strip()]

    def standing(self, words: Words) -> Standing:
        """Returns the passages whose texts stand in a text.

        Longer ones are looked for first, and words of the text count once, so that a passage which is a part of another
        one is not found in it.
        """
        left = f" {words.text} "
        at: dict[int, tuple[int, str]] = {}
        forms = self._forms
        if self._alike:  # the one that stands there letter by letter comes first
            forms = sorted(forms, key=lambda form: (-len(form[2]), form[1].strip() not in words.readable))
        for number, text, its_words in forms:
            if number in at:
                continue
            begin = left.find(f" {its_words} ") if its_words else words.readable.find(text.strip())
            if begin >= 0:
                at[number] = begin, text
                left = left[: begin + 1] + "\0" * len(its_words) + left[begin + 1 + len(its_words) :]
        found = [
            (number, self._as(number, text))
            for number, (_, text) in sorted(at.items(), key=lambda item: (item[1][0], item[0]))
        ]
        missing = [its_words for number, _, its_words in forms if number not in at]
        return Standing(found + self._textless, missing, left)

    def _as(self, number: int, text: str) -> Passage:
        passage = self.passages[number]
        return passage if passage.text == text else replace(passage, text=text)


def normalized(text: str) -> str:
    """Returns the words of a text, without case, set apart by single spaces."""
    text = unicodedata.normalize("NFKC", _NOTATION.sub(" ", text)).casefold()
    return " ".join(_WORD.findall(_SPACELESS.sub(r" \g<0> ", text)))


def _head(words: str) -> str:
    """Returns the first words of a passage; '' for one that has no more than these."""
    end, counted = 0, 0
    while counted < _HEAD_WORDS or end < _HEAD_LETTERS:
        end, counted = words.find(" ", end + 1), counted + 1
        if end < 0:
            return ""
    return words[:end]


def _forms(passages: Sequence[Passage], bodies: Sequence[str]) -> list[tuple[int, str]]:
    """Returns each text with the index of its passage, and once more without what stands before it."""
    forms = [(number, one.text) for number, one in enumerate(passages) if one.text.strip()]
    return forms + [
        (number, body.strip())
        for number, body in enumerate(bodies)
        if body.strip() not in ("", passages[number].text.strip())
    ]


def _readable(output: str) -> str:
    """Returns the output without the notation of JSON, where it is JSON."""
    if output.lstrip()[:1] in ("[", "{"):
        try:
            return "\n".join(_strings(json.loads(output)))
        except (ValueError, RecursionError):
            pass
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), output)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _strings(key)
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)
    else:
        yield str(value)

"""Finds passages in the texts that a model is given, by their words: without case, punctuation and white space.

A text counts as a whole or not at all. The words of a text are made once for all runs, and remembered by the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

from ragguard.records import Passage
from ragguard.text.words import running_words

_HEAD_WORDS, _HEAD_LETTERS = 3, 15
"""The least words, and characters of words, at the beginning of a passage that show, without the rest, that it was
cut."""
_PIECE_WORDS = 5
"""The least words of a piece of a passage, except the last piece."""
_WORD = re.compile(r"[^\W_]")
_ESCAPED = re.compile(r"\\u([0-9a-f]{4})", re.IGNORECASE)
_MOST_CHARACTERS = 16 * 2**20
"""The most characters of texts whose words are remembered."""


class _Words:
    """The words of the latest texts."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._characters = 0

    def of(self, text: str) -> str:
        """Returns the words of a text, without the notation of JSON."""
        words = self._known.get(text)
        if words is None:
            words = input_words(text)
            self._characters += len(text)
            if self._characters > _MOST_CHARACTERS:
                self._known, self._characters = {}, len(text)
            self._known[text] = words
        return words


words = _Words()


def input_words(text: str) -> str:
    """Returns the words of a model's input or reply, without the notation of JSON."""
    if text.lstrip()[:1] in ("[", "{"):
        try:
            return running_words("\n".join(_strings(json.loads(text))))
        except (ValueError, RecursionError):
            pass
    if "\\u" in text:
        text = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)
    return running_words(text)


class Places(NamedTuple):
    """The passages of a search that stand in one text."""

    whole: dict[int, str]
    """The texts in which passages stand there, by the passages' indices and in the order of the text."""
    begun: frozenset[int]
    """The passages whose beginnings stand there without their ends."""


class PassageSearch:
    """Passages that are looked for in texts; each text is searched once."""

    def __init__(self, passages: Sequence[Passage], forms: Sequence[Sequence[str]] = ()) -> None:
        """Takes the passages, and of each the other forms of its text that count as well."""
        self.passages = passages
        texts = [(number, one.text) for number, one in enumerate(passages)]
        others = [(number, text) for number, texts_of in enumerate(forms) for text in texts_of if text]
        self._texts = [(number, text.strip()) for number, text in [*texts, *others]]
        self.with_words = {number for number, text in self._texts if _WORD.search(text)}
        self._written = sorted(
            (one for one in self._texts[: len(texts)] if one[0] in self.with_words),
            key=lambda one: -len(one[1]),
        )
        self._places: dict[str, Places] = {}

    @cached_property
    def written(self) -> dict[str, list[int]]:
        """The passages by their texts."""
        written: dict[str, list[int]] = {}
        for number, text in self._written:
            written.setdefault(text, []).append(number)
        return written

    @cached_property
    def _forms(self) -> list[tuple[int, str, str]]:
        """The passages in every form of their texts: the index, the text and its words, the longest first."""
        forms = ((number, text, words.of(text)) for number, text in self._texts)
        return sorted((form for form in forms if form[2]), key=lambda form: -len(form[2]))

    @cached_property
    def _equal(self) -> dict[str, list[int]]:
        """The passages by their words."""
        equal: dict[str, list[int]] = {}
        for number, _, its_words in self._forms:
            equal.setdefault(its_words, []).append(number)
        return equal

    def places(self, text: str) -> Places:
        """Returns the passages that stand in a text.

        Longer ones are looked for first, and words of the text count once, so that a passage which is a part of another
        one is not found in it.
        """
        if (known := self._places.get(text)) is not None:
            return known
        left = f" {words.of(text)} "
        at: dict[int, tuple[int, str]] = {}
        for number, text_of_form, its_words in self._forms:
            begin = -1 if number in at else left.find(f" {its_words} ")
            if begin >= 0:
                at[number] = begin, text_of_form
                left = left[: begin + 1] + "\0" * len(its_words) + left[begin + 1 + len(its_words) :]
        heads = {number: _head(its_words) for number, _, its_words in self._forms if number not in at}
        begun = frozenset(number for number, head in heads.items() if head and f" {head} " in left)
        order = sorted(at, key=lambda number: (at[number][0], number))
        places = self._places[text] = Places({number: at[number][1] for number in order}, begun)
        return places

    def places_in(self, texts: Sequence[str]) -> Places:
        """Returns the passages that stand in one input: of equal ones as many as are written there."""
        for text in texts:
            if (all_written := self._as_written(text)) is not None:
                return all_written
        whole: dict[int, str] = {}
        begun: set[int] = set()
        for text in texts:
            places = self.places(text)
            begun |= places.begun
            for number, form in places.whole.items():
                equal = self._equal[words.of(form)]
                free = next((one for one in (number, *equal) if one not in whole), None)
                if free is not None:
                    whole[free] = form
            if len(whole) == len(self.with_words):
                break
        return Places(whole, frozenset(begun - whole.keys()))

    def _as_written(self, text: str) -> Places | None:
        """Returns the places of all passages if a text holds all of them letter by letter: the usual case, in which no
        words need be found; else None."""
        at: dict[int, tuple[int, str]] = {}
        left = text
        for number, written in self._written:
            begin = left.find(written)
            end = begin + len(written)
            if begin < 0 or left[begin - 1 : begin].isalnum() or left[end : end + 1].isalnum():
                return None
            at[number] = begin, written
            left = f"{left[:begin]}{chr(0) * len(written)}{left[end:]}"
        order = sorted(at, key=lambda number: (at[number][0], number))
        return Places({number: at[number][1] for number in order}, frozenset())

    def in_pieces(self, number: int, texts: Sequence[str]) -> bool:
        """True for a passage whose pieces stand in these texts one after the other, and make up all of it."""
        rest = next(its_words for one, _, its_words in self._forms if one == number).split(" ")
        left = [f" {words.of(text)} " for text in texts]
        for text in left:
            length = _longest_beginning(rest, text)
            while length and (length >= _PIECE_WORDS or length == len(rest)):
                rest = rest[length:]
                if not rest:
                    return True
                length = _longest_beginning(rest, text)
        return False

    def left_of(self, its_words: str) -> str:
        """Returns the words of a text without those of the passages that stand there."""
        left = f" {its_words} "
        for _, _, form in self._forms:
            left = left.replace(f" {form} ", " ")
        return left.strip()

    def passage(self, number: int, text: str) -> Passage:
        """Returns a passage with the text in which it stands in an input."""
        one = self.passages[number]
        return one if one.text.strip() == text else replace(one, text=text)


def _longest_beginning(rest: Sequence[str], text: str) -> int:
    """Returns how many of the first words stand in a text one after the other."""
    low, high = 0, len(rest)
    while low < high:
        middle = (low + high + 1) // 2
        if f" {' '.join(rest[:middle])} " in text:
            low = middle
        else:
            high = middle - 1
    return low


def _head(words: str) -> str:
    """Returns the first words of a passage; '' for one that has no more than these."""
    end, counted = 0, 0
    while counted < _HEAD_WORDS or end < _HEAD_LETTERS:
        end, counted = words.find(" ", end + 1), counted + 1
        if end < 0:
            return ""
    return words[:end]


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        value = [part for item in value.items() for part in item]
    if isinstance(value, list):
        for inner in value:
            yield from _strings(inner)
    else:
        yield str(value)

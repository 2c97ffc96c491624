"""Finds passages that contradict a reference by their words: the same words around other ones in its place.

    references: ["1922"]
    "The mill was built in 1922 by Ada Berg."  against  "The mill was built in 1951 by Ada Berg."

No model is asked. What is put in other words, or has no words in common around the answer, is not found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ragguard.facts.run_facts import findable, mentions
from ragguard.text.language import COMMON
from ragguard.text.words import running_words

_AROUND = 4
"""The fewest equal words around the place of the reference."""
_CONTENT = 2
"""The fewest of these that are not common words."""
_LONGEST = 7
"""The most words in the place of the reference."""
_LOOKED_AT = 12
"""The words on each side that are compared."""
_READ = 2_000
"""The words of a passage that are read."""


class Contradiction(NamedTuple):
    """Two texts, of which one has a reference where the other has other words."""

    reference_text: str
    reference: str
    other_text: str
    other: str
    """The words in the place of the reference."""


def contradictions(question: str, references: Sequence[str], texts: Sequence[str]) -> list[Contradiction]:
    """Returns which texts without a reference have other words in its place, each text once."""
    phrases = findable(references)
    words = {text: running_words(text).split()[:_READ] for text in texts}
    holders = [text for text in words if mentions(text, phrases)]
    asked = set(running_words(question).split())
    found: list[Contradiction] = []
    for other in (text for text in words if text not in holders):
        for holder in holders:
            replaced = _replaced(words[holder], words[other], references, asked)
            if replaced is not None:
                found.append(Contradiction(holder, replaced[0], other, other=replaced[1]))
                break
    return found


def _replaced(
    holder: Sequence[str], other: Sequence[str], references: Sequence[str], asked: set[str]
) -> tuple[str, str] | None:
    """Returns a reference in one text and the words in its place in the other; None if there are none."""
    for reference in references:
        wanted = running_words(reference).split()
        for start in range(1, len(holder) - len(wanted) + 1):
            if wanted and [*holder[start : start + len(wanted)]] == wanted:
                for words in _in_place(holder, start, start + len(wanted), other):
                    if _is_answer(words, wanted, asked):
                        return reference, " ".join(words)
    return None


def _in_place(holder: Sequence[str], start: int, end: int, other: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yields the words of another text that stand between the words around a place of the holder."""
    before, after = holder[max(0, start - _LOOKED_AT) : start], holder[end : end + _LOOKED_AT]
    for at in range(1, len(other)):
        if other[at - 1] != before[-1]:
            continue
        left = _shared(before[::-1], other[max(0, at - _LOOKED_AT) : at][::-1])
        for stop in range(at + 1, min(len(other), at + _LONGEST) + 1):
            right = _shared(after, other[stop : stop + _LOOKED_AT])
            equal = [*before[len(before) - left :], *after[:right]]
            ends = (not after or stop == len(other)) and left >= _AROUND
            content = sum(word not in COMMON for word in equal)
            if (right or ends) and len(equal) >= _AROUND and content >= _CONTENT:
                yield other[at:stop]


def _shared(one: Sequence[str], other: Sequence[str]) -> int:
    """Returns how many words two lists begin with in common."""
    return next(
        (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


def _is_answer(words: Sequence[str], reference: Sequence[str], asked: set[str]) -> bool:
    """Returns whether words may answer in place of a reference: they have figures if it has, and say something new."""
    figures = [any(char.isdigit() for word in some for char in word) for some in (words, reference)]
    return figures[0] == figures[1] and not all(word in COMMON for word in words) and not set(words) <= asked

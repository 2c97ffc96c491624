"""Finds passages that contradict a reference by their words: the same words, around another text in its place.

    references: ["1922"]
    "The mill was built in 1922 by Ada Berg."  against  "The mill was built in 1951 by Ada Berg."

No model is asked. What is put in other words, or has no words in common around the answer, is not found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ragguard.text.language import COMMON
from ragguard.text.statements.phrases import findable, mentions
from ragguard.text.words import running_words

_AROUND = 4
"""The fewest equal words around the place of the reference."""
_CONTENT = 2
"""The fewest of these that are not common words."""
_ON_ONE_SIDE, _CONTENT_ON_ONE_SIDE = 5, 3
"""The same if only the words before the place, or only those behind it, are equal. As many words as the reference has
then stand in its place."""
_LONGEST = 7
"""The most words in the place of the reference."""
_LOOKED_AT = 12
"""The words on each side that are compared."""
_READ = 2_000
"""The words of a passage that are read."""


class Conflict(NamedTuple):
    """Two texts that contradict each other about a sub-question, and what each of them says."""

    sub_question: int
    first: str
    first_answer: str
    second: str
    second_answer: str


def contradictions(question: str, references: Sequence[str], texts: Sequence[str]) -> list[Conflict]:
    """Returns which texts (`second`) have other words in the place of a reference, each text once, and which has the
    reference there. The question counts as its only sub-question."""
    phrases = findable(references)
    words = {text: running_words(text).split()[:_READ] for text in texts}
    holders = [text for text in words if mentions(text, phrases)]
    known = {*running_words(" ".join((question, *references))).split(), *COMMON}
    conflicts: list[Conflict] = []
    for other in (text for text in words if text not in holders):
        for holder in holders:
            replaced = _replaced(words[holder], words[other], references, known)
            if replaced is not None:
                conflicts.append(Conflict(0, holder, replaced[0], other, second_answer=replaced[1]))
                break
    return conflicts


def _replaced(
    holder: Sequence[str], other: Sequence[str], references: Sequence[str], known: set[str]
) -> tuple[str, str] | None:
    """Returns a reference in one text and the words in its place in the other; None if there are none."""
    for reference in references:
        wanted = running_words(reference).split()
        for start in range(len(holder) - len(wanted) + 1):
            if wanted and [*holder[start : start + len(wanted)]] == wanted:
                for words in _in_place(holder, start, start + len(wanted), other):
                    if _is_answer(words, wanted, known):
                        return reference, " ".join(words)
    return None


def _in_place(holder: Sequence[str], start: int, end: int, other: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yields the words of another text that stand between the words around a place of the holder."""
    before, after = holder[max(0, start - _LOOKED_AT) : start][::-1], holder[end : end + _LOOKED_AT]
    size = end - start

    def right_of(stop: int) -> int:
        return _shared(after, other[stop : stop + _LOOKED_AT])

    for at in range(len(other)):
        left = _shared(before, other[max(0, at - _LOOKED_AT) : at][::-1])
        if left >= _ON_ONE_SIDE and _says(before[:left], _CONTENT_ON_ONE_SIDE):
            yield other[at : at + size]
        elif right_of(at + size) >= _ON_ONE_SIDE:
            right = right_of(at + size)
            if _says(after[:right], _CONTENT_ON_ONE_SIDE):
                yield other[at : at + size]
        begins = at == start == 0
        for stop in range(at + 1, min(len(other), at + _LONGEST) + 1) if left or begins else ():
            right = right_of(stop)
            ends = stop == len(other) or not after
            # A text that is the same but for these words may be short.
            alone = begins and right == len(after) == len(other) - stop
            enough = left + right >= _AROUND or alone
            if (
                enough
                and (left or begins)
                and (right or ends)
                and _says([*before[:left], *after[:right]], _CONTENT)
            ):
                yield other[at:stop]


def _says(words: Sequence[str], least: int) -> bool:
    """Returns whether so many of the words are not common ones."""
    return sum(word not in COMMON for word in words) >= least


def _shared(one: Sequence[str], other: Sequence[str]) -> int:
    """Returns how many words two lists begin with in common."""
    return next(
        (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


def _is_answer(words: Sequence[str], reference: Sequence[str], known: set[str]) -> bool:
    """Returns whether words may answer in place of a reference: they have figures if it has, and say something new.
    "10 August" beside "10 August 1966" does not, nor what the question says."""
    figures, own = ([word for word in some if any(map(str.isdigit, word))] for some in (words, reference))
    return bool(figures) == bool(own) and not set(figures or words) <= known

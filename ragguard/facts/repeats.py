"""Finds hops that asked again what an earlier hop had asked: the same query, or one with the same content words.

No model is asked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ragguard.records import RetrievalStep
from ragguard.text.language import COMMON, normalise

_STEM = 6
"""The first letters by which two words of a query are the same; numbers are the same as a whole."""
_WORD = re.compile(r"\w+(?:['’]s\b)?")


class Repeat(NamedTuple):
    """A hop whose query an earlier one had."""

    hop: int
    """The number of the hop, from 1."""
    earlier: int
    """The number of the first hop that asked the same."""
    exact: bool
    """True for the same words; False for the same content words, as in another order or another form."""

    def __str__(self) -> str:
        return (
            f"hop {self.hop} asked {'the same as' if self.exact else 'nearly the same as'} hop {self.earlier}"
        )


def repeats(steps: Sequence[RetrievalStep]) -> list[Repeat]:
    """Returns the hops that asked what an earlier one had asked, in order. A hop without a query repeats none."""
    found: list[Repeat] = []
    asked: list[tuple[str, frozenset[str]]] = []
    for number, step in enumerate(steps, 1):
        words, content = normalise(step.query), _content(step.query)
        for earlier, (other, of_other) in enumerate(asked, 1):
            if words and (words == other or (content and content == of_other)):
                found.append(Repeat(number, earlier, exact=words == other))
                break
        asked.append((words, content))
    return found


def _content(query: str) -> frozenset[str]:
    found = (re.sub("['’]s$", "", word) for word in _WORD.findall(query.casefold()))
    words = (word for word in found if word not in COMMON)
    return frozenset(word if any(map(str.isdigit, word)) else word[:_STEM] for word in words)

"""Remembers facts about recent texts: a corpus in memory returns the same text objects again and again."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")
_OVERHEAD = 250
"""The characters that a fact counts for beside its text: many short texts need no less memory than few long ones."""


class TextMemo(Generic[T]):
    """Finds facts about texts by the texts' addresses: comparing texts would read each one to its end."""

    def __init__(self, characters: int) -> None:
        """Remembers facts about texts of at most that many characters together, each counted as `_OVERHEAD` more."""
        self._limit, self._left = characters, characters
        self.known: dict[int, T] = {}
        """The fact about a text, by the address of the text. The fact refers to the text, so that no other object
        gets this address."""

    def keep(self, text: str, known: T) -> None:
        """Remembers a fact about a text; the fact `known` must refer to the text. Forgets all other facts where
        there are too many."""
        size = len(text) + _OVERHEAD
        self._left -= size
        if self._left < 0:
            self.known, self._left = {}, self._limit - size
        if self._left >= 0:
            self.known[id(text)] = known

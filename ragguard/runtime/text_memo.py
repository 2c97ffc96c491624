"""A memory of facts about recent texts: a corpus in memory gives the same texts again and again."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class TextMemo(Generic[T]):
    """Finds facts about texts by the texts' addresses: comparing texts would read each one to its end."""

    def __init__(self, characters: int) -> None:
        """Keeps facts about at most so many characters of text."""
        self._limit, self._left = characters, characters
        self.known: dict[int, T] = {}
        """Address of a text → what is known of the text. That holds the text itself, so that no other one comes to its
        address meanwhile."""

    def keep(self, text: str, known: T) -> None:
        """Keeps what is known of a text, which `known` must hold; forgets all others when there are too many."""
        self._left -= len(text)
        if self._left < 0:
            self.known, self._left = {}, self._limit - len(text)
        if self._left >= 0:
            self.known[id(text)] = known

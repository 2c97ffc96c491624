"""How far a long validation is, told to whoever wants to know."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Told again and again: what is being done, how much of it is done, and of how much."""

    def __call__(self, what: str, done: int, of: int, /) -> None: ...


def silent(what: str, done: int, of: int, /) -> None:
    """Tells nobody."""

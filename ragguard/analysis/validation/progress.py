"""The callback that reports the progress of a long validation."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """A function that is called with the name of the work, how much of it is done, and how much there is."""

    def __call__(self, what: str, done: int, of: int, /) -> None: ...


def silent(what: str, done: int, of: int, /) -> None:
    """Reports no progress."""

"""The callback that reports the progress of a long validation."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""A function that is called with the name of the work, how much of it is done, and how much there is."""


def silent(what: str, done: int, of: int, /) -> None:
    """Reports no progress."""

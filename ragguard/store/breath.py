"""Short rests in long work, so that other threads get their turn."""

from __future__ import annotations

import time

WORK, REST = 0.001, 0.00005
"""Seconds. Without a rest Python lets another thread wait for five milliseconds, which an event loop feels."""


class Breath:
    """To be taken between the pieces of some work, however small they are."""

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since = time.perf_counter()

    def take(self) -> None:
        """Rests, if it is time."""
        if time.perf_counter() - self._since > WORK:
            time.sleep(REST)
            self._since = time.perf_counter()

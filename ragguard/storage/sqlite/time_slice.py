"""Lets other threads run between the pieces of long work."""

from __future__ import annotations

import time

WORK, REST = 0.001, 0.00005
"""Seconds of work between two rests, and of a rest. Without one, Python makes another thread wait for five
milliseconds, which an event loop notices."""


class TimeSlice:
    """Measures the time since the last rest; long work calls `rest_if_used` after each piece, however small."""

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since = time.perf_counter()

    def rest_if_used(self) -> None:
        """Sleeps for a moment where the time slice is used up, and begins the next slice."""
        if time.perf_counter() - self._since > WORK:
            time.sleep(REST)
            self._since = time.perf_counter()

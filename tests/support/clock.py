"""A clock for tests of what happens after some time."""

from __future__ import annotations

import time


class Clock:
    """Stands in for `time.monotonic`: time passes only when a test adds to `now`."""

    def __init__(self) -> None:
        self.now = time.monotonic()  # what reads the real clock beside it is not ahead of it

    def __call__(self) -> float:
        self.now += 1e-6  # no two readings are equal, as on a real clock
        return self.now

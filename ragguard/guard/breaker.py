"""The guard's circuit breaker: an engine that keeps missing the budget is left alone for a while.

An engine that has not answered yet (a server to be looked at, a model to be loaded) may need longer than any budget.
Were every call cancelled with its budget, such an engine would begin anew each time; so one call at a time may go on
behind its budget until the engine has answered for the first time.
"""

from __future__ import annotations

import threading
import time

START_S = 30.0
"""Seconds that an engine may take until its first answer."""


class Breaker:
    """After `after` misses in a row the engine is not asked for `seconds`; then one call tries it again."""

    def __init__(self, after: int, seconds: float) -> None:
        self._after, self._seconds = after, seconds
        self.renew()
        self._misses = 0
        self._last_miss = 0.0
        self._why = ""
        self._until = 0.0
        self._begun = False
        self._starting_until = 0.0

    def renew(self) -> None:
        """Makes a new lock, for a forked process: the old one may be held by a thread that is not there."""
        self._lock = threading.Lock()

    def open(self) -> str:
        """Why the engine is not to be asked now; empty where it may be. When a pause is over, one caller may ask and
        the pause begins anew."""
        with self._lock:
            if self._misses < self._after:
                return ""
            now = time.monotonic()
            if now >= self._until:
                self._until = now + self._seconds
                return ""
            return (
                f"not asked for another {self._until - now:.1f} s, since the engine missed {self._misses} times in a "
                f"row; the last time: {self._why}"
            )

    def met(self) -> None:
        """The engine answered in time."""
        with self._lock:
            self._misses = 0
            self._begun = True

    def missed(self, asked: float, why: str) -> None:
        """A call that began at `asked` failed or was too late. Calls that were under way together when the engine
        failed are one miss, not many."""
        with self._lock:
            if asked < self._last_miss:
                return
            self._last_miss = time.monotonic()
            self._misses += 1
            self._why = why
            if self._misses == self._after:
                self._until = self._last_miss + self._seconds
                self._begun = False  # it may come back as another one

    def starts(self) -> bool:
        """Whether this call is the one that may go on behind its budget, since the engine has not answered yet."""
        with self._lock:
            now = time.monotonic()
            if self._begun or now < self._starting_until:
                return False
            self._starting_until = now + START_S
            return True

    def started(self, well: bool) -> None:
        """The call that went on behind its budget has ended. It was too late, so a pause stays as it is."""
        with self._lock:
            self._begun = self._begun or well
            self._starting_until = 0.0

"""A pause for an engine that keeps missing the guard's budget: it costs nothing while it is not asked.

And time for one that has to begin: what it finds out about its server, or loads, may take longer than any budget.
Were every call broken off with its budget, such an engine would begin anew each time and never be there.
"""

from __future__ import annotations

import threading
import time

START_S = 30.0
"""How long an engine may take to begin."""


class Pause:
    """After so many misses in a row nothing is asked for a while; then one call tries again."""

    def __init__(self, after: int, seconds: float) -> None:
        self._after, self._seconds = after, seconds
        self._lock = threading.Lock()
        self._misses = 0
        self._until = 0.0
        self._begun = False
        self._starting_until = 0.0

    def allows(self) -> bool:
        """Whether to ask now. When a pause is over, one caller is let through and the pause begins anew."""
        with self._lock:
            if self._misses < self._after:
                return True
            now = time.monotonic()
            if now < self._until:
                return False
            self._until = now + self._seconds
            return True

    def met(self) -> None:
        """The engine answered in time."""
        with self._lock:
            self._misses = 0
            self._begun = True

    def missed(self) -> None:
        """It failed, or was too late."""
        with self._lock:
            self._misses += 1
            if self._misses == self._after:
                self._until = time.monotonic() + self._seconds
                self._begun = False  # it may come back as another one

    def starts(self) -> bool:
        """Whether this call is the one that goes on behind its budget, since the engine has not answered yet."""
        with self._lock:
            now = time.monotonic()
            if self._begun or now < self._starting_until:
                return False
            self._starting_until = now + START_S
            return True

    def started(self, well: bool) -> None:
        """That call has ended. Too late for its budget, so a pause stays as it is."""
        with self._lock:
            self._begun = self._begun or well
            self._starting_until = 0.0

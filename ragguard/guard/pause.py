"""A pause for an engine that keeps missing the guard's budget: it costs nothing while it is not asked."""

from __future__ import annotations

import threading
import time


class Pause:
    """After so many misses in a row nothing is asked for a while; then one call tries again."""

    def __init__(self, after: int, seconds: float) -> None:
        self._after, self._seconds = after, seconds
        self._lock = threading.Lock()
        self._misses = 0
        self._until = 0.0

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

    def missed(self) -> None:
        """It failed, or was too late."""
        with self._lock:
            self._misses += 1
            if self._misses == self._after:
                self._until = time.monotonic() + self._seconds

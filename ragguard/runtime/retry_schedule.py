"""The retry schedule says how often a call is tried, and how many seconds lie between two attempts."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RetrySchedule:
    """Waits that double with each failure in a row."""

    attempts: int = 20
    """The most attempts, the first one included."""
    first: float = 1.0
    """Seconds to wait after the first failure."""
    longest: float = 900.0
    """The most seconds to wait."""
    jitter: tuple[float, float] = (0.75, 1.25)
    """Each wait is multiplied by a random number between these two, so that callers do not come back together."""

    def wait(self, failures: int) -> float:
        """Returns the seconds to wait after a number of failures in a row."""
        return min(self.longest, self.first * 2.0 ** min(failures - 1, 60)) * random.uniform(*self.jitter)

    def after(self, attempts: int) -> float | None:
        """Returns the seconds to wait after a number of attempts; None after the last one."""
        return None if attempts >= self.attempts else self.wait(attempts)

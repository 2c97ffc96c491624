"""The retry schedule, which says how many seconds lie between two attempts; and the circuit breaker, which stops calls
to an engine that keeps failing for a while, by such a schedule, then lets one call at a time try it."""

from __future__ import annotations

import math
import random
import threading
from dataclasses import dataclass
from time import monotonic
from weakref import WeakKeyDictionary

from ragguard.errors import CircuitOpen


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


@dataclass(slots=True, eq=False)
class Attempt:
    """A call through a circuit breaker."""

    began: float
    """The time at which the engine was asked, on the monotonic clock."""


class CircuitBreaker:
    """Opens after a number of failures in a row, and closes with the first success. Threads may share one.

    While the circuit is open no call may be made. When the pause is over one call is let through; each such call that
    fails begins the next, longer pause.

    Args:
        after: After how many failures in a row the circuit opens.
        pauses: How long the circuit stays open: its waits, one after the other.
        silence: For how many seconds no call must have succeeded before the circuit opens: of many calls at once, so
            many fail in a row now and then at an engine that answers half of them.
    """

    def __init__(self, after: int, pauses: RetrySchedule, *, silence: float = 0.0) -> None:
        self._after, self._pauses, self._silence = after, pauses, silence
        self._succeeded = -math.inf
        """The time of the latest success, on the monotonic clock."""
        self._failures = self._openings = 0
        self._why = ""
        self._until = 0.0
        self._probe: Attempt | None = None
        self._counted: WeakKeyDictionary[object, float] = WeakKeyDictionary()
        """The time at which a failure with this cause was last counted."""
        self._lock = threading.Lock()

    @property
    def is_open(self) -> bool:
        """True from the opening until a call succeeds, also while one call tries the engine."""
        return self._openings > 0

    @property
    def pause(self) -> float:
        """The seconds until a call may be made, 0 where the circuit is closed or its pause is over."""
        return max(0.0, self._until - monotonic()) if self._openings else 0.0

    @property
    def answers_others(self) -> bool:
        """True if the circuit is closed and a call succeeded within the seconds of `silence`."""
        return not self._openings and monotonic() - self._succeeded < self._silence

    def enter(self, within: Attempt | None = None) -> Attempt:
        """Begins a call, which `succeeded`, `failed` or `left` ends; raises CircuitOpen where none may be made now.
        A part of the call `within` may be made if that one tries the engine, and counts as it."""
        with self._lock:
            if within is not None and self._probe is within:
                return within
            attempt = Attempt(monotonic())
            if self._openings:
                left = self._until - attempt.began
                if left > 0 or self._probe is not None:
                    again = (
                        f"it is tried again in {left:.1f} s" if left > 0 else "one call is trying it just now"
                    )
                    raise CircuitOpen(
                        f"not asked, as the engine failed {self._failures} times in a row; {again}. "
                        f"The last failure: {self._why}"
                    )
                self._probe = attempt
            return attempt

    def succeeded(self) -> None:
        """Closes the circuit. A late answer to a call from before the opening also shows that the engine works."""
        with self._lock:
            self._failures = self._openings = 0
            self._probe = None
            self._succeeded = monotonic()

    def left(self, attempt: Attempt) -> None:
        """Ends a call that does not show whether the engine works: it was cancelled, or its own prompt was at fault."""
        with self._lock:
            if self._probe is attempt:
                self._probe = None

    def failed(self, attempt: Attempt, why: str, cause: object) -> bool:
        """Ends a call that failed; True where this opened the circuit.

        Calls that fail with the same `cause` count once, where all had begun before the first of them failed: they
        waited for one request, or for an engine that went away.
        """
        with self._lock:
            probing = self._probe is attempt
            if probing:
                self._probe = None
            if attempt.began > self._counted.get(cause, -1.0):
                self._counted[cause] = monotonic()
                self._failures += 1
            self._why = why
            is_silent = monotonic() - self._succeeded >= self._silence
            opens = probing or (not self._openings and self._failures >= self._after and is_silent)
            if opens:
                self._openings += 1
                self._until = monotonic() + self._pauses.wait(self._openings)
            return opens

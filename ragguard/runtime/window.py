"""The window: how much work an engine is given at once, by what it has shown that it can do.

It follows TCP's rule: it grows as long as answers come soon, and halves when one comes late. Work is counted in tokens.
"""

from __future__ import annotations

import time

from ragguard.runtime.limiter import Limiter, Place

LEAST = 250
"""The least work that a request counts as, and the least window."""
_SOON, _LATE = 0.25, 0.5
"""The shares of the longest time within which an answer comes soon, and after which it comes late."""
_PACE_S = 2.0
"""An engine that did some work in a time is given at least as much as it would do in so many seconds at that pace."""


class WorkWindow:
    """Bounds the work in an engine's hands; the most urgent caller goes first, and one with more work alone.

    Args:
        seconds: The longest time that an answer may take.
        start: The work that is given at once before anything is known.
    """

    def __init__(self, seconds: float, start: int) -> None:
        self._seconds, self._limiter = seconds, Limiter(start)
        self._growing_fast, self._halved = True, 0.0

    @property
    def size(self) -> int:
        """The most work that is given at once."""
        return self._limiter.size

    @property
    def share(self) -> int:
        """The most work of one request, so that the next one waits at the engine when its answer leaves."""
        return max(LEAST, self.size // 2)

    async def enter(self, work: int, priority: int, deadline: float | None) -> Place:
        """Waits until there is room for some work, and returns the place that it takes."""
        place = self._limiter.admitted(work, priority=priority, deadline=deadline)
        await place.__aenter__()
        return place

    def answered(self, work: int, began: float) -> None:
        """Notes that some work, given at `began` (on the monotonic clock), is done."""
        took = max(1e-6, time.monotonic() - began)
        if took > self._seconds * _LATE:
            self.late(began)
        elif took < self._seconds * _SOON:
            more = work if self._growing_fast else LEAST * work // self.size
            used = self._limiter.taken * 2 >= self.size
            self._limiter.resize(max(self.size + more * used, int(work / took * _PACE_S)))

    def late(self, began: float) -> None:
        """Notes that work given at `began` was not done in time. The window halves once for all work given by then."""
        self._growing_fast = False
        if began > self._halved:
            self._halved = time.monotonic()
            self._limiter.resize(max(LEAST, self.size // 2))

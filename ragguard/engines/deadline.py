"""Deadlines: instants of `time.monotonic()`, so that layers and engines hand on one and the same number."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType

from ragguard.errors import EngineTimeout


def remaining(deadline: float | None, what: str) -> float | None:
    """The seconds left, None without a deadline; `EngineTimeout` when there are none. `what` is the subject."""
    if deadline is None:
        return None
    left = deadline - time.monotonic()
    if left <= 0:
        raise EngineTimeout(f"{what} was not begun: its deadline had passed {-left:.3f} s before")
    return left


class until:  # noqa: N801 - read as a word: `async with until(…)`
    """Breaks its block off at the deadline with an `EngineTimeout`."""

    # A class and no generator: every waiting call has some of these, and each generator brings three objects more.
    __slots__ = ("_deadline", "_left", "_limit", "_what")

    def __init__(self, deadline: float | None, what: str) -> None:
        self._deadline, self._what = deadline, what
        self._left = 0.0
        self._limit: asyncio.Timeout | None = None

    async def __aenter__(self) -> None:
        left = remaining(self._deadline, self._what)
        if left is not None:
            self._left, self._limit = left, asyncio.timeout(left)
            await self._limit.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._limit is None:
            return
        late = error if isinstance(error, TimeoutError) else None
        try:
            await self._limit.__aexit__(kind, error, trace)
        except TimeoutError as expired:
            late = expired
        if late is None or not self._limit.expired():
            return
        # These hold the task, which will hold this error: a circle, and the collector's work is a pause for all.
        self._limit = None
        late.__traceback__ = None
        raise EngineTimeout(
            f"{self._what} had no answer when its deadline came, after {self._left:.3f} s: "
            "give it more time or fewer prompts"
        ) from late

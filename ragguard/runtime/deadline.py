"""Time that no change of the machine's clock touches: deadlines, which are instants of `time.monotonic()`, so that all
parts of the package can pass on the same number, and the time of day, which is read once and counted on from there."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType

from ragguard.errors import EngineTimeout

_START = time.time_ns() - time.monotonic_ns()


def now_ns() -> int:
    """Returns nanoseconds since 1970: the machine's clock at the start of the process, counted on monotonically."""
    return _START + time.monotonic_ns()


def in_words(seconds: float) -> str:
    """Returns a time as a reader says it: `0.5 s`, `90 s`, `10 minutes`, `2 hours`."""
    for size, name in ((3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {name}"
    return f"{seconds:.3g} s"


def seconds_left(deadline: float) -> float:
    """Returns the seconds until the deadline, 0 once it has passed."""
    return max(0.0, deadline - time.monotonic())


def remaining(deadline: float | None, what: str) -> float | None:
    """Returns the seconds until the deadline, None without one; raises EngineTimeout about `what` if it has passed."""
    if deadline is None:
        return None
    left = deadline - time.monotonic()
    if left <= 0:
        raise EngineTimeout(f"{what} was not begun: its deadline had passed {-left:.3f} s before")
    return left


class until:  # noqa: N801 - read as a word: `async with until(…)`
    """Cancels its block at the deadline and raises EngineTimeout about `what`."""

    # A class, no generator: every waiting call has several deadlines, and a generator needs three objects more.
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
        found = error if isinstance(error, TimeoutError) else None
        try:
            await self._limit.__aexit__(kind, error, trace)
        except TimeoutError as expired:
            found = expired
        if found is None or not self._limit.expired():
            return
        # Breaks the reference cycle of the task and this error: a garbage collection stops all threads.
        self._limit = None
        found.__traceback__ = None
        raise EngineTimeout(
            f"{self._what} had no answer when its deadline came, after {self._left:.3f} s: give it more time or fewer "
            "prompts"
        ) from found

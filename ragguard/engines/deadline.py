"""Deadlines: instants of `time.monotonic()`, so that layers and engines hand on one and the same number."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ragguard.errors import EngineTimeout


def remaining(deadline: float | None, what: str) -> float | None:
    """The seconds left, None without a deadline; `EngineTimeout` when there are none. `what` is the subject."""
    if deadline is None:
        return None
    left = deadline - time.monotonic()
    if left <= 0:
        raise EngineTimeout(f"{what} was not begun: its deadline had passed {-left:.3f} s before")
    return left


@asynccontextmanager
async def until(deadline: float | None, what: str) -> AsyncIterator[None]:
    """Breaks its block off at the deadline with an `EngineTimeout`."""
    left = remaining(deadline, what)
    try:
        async with asyncio.timeout(left) as limit:
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise
        # These hold the task, which will hold this error: a circle, and the collector's work is a pause for all.
        del limit
        error.__traceback__ = None
        raise EngineTimeout(
            f"{what} had no answer when its deadline came, after {left:.3f} s: give it more time or fewer prompts"
        ) from error

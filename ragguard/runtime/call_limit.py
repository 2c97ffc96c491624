"""Waits for work that may never end, for as long as something still moves.

A call has so many seconds from the moment at which it began. One that has not begun, since others are before it, waits
as long as calls end; where none has ended for so many seconds, nothing moves any more.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


class TimedCall:
    """A call that waits to begin, is under way, or has ended and waits to be noticed."""

    __slots__ = ("began", "submitted")

    def __init__(self) -> None:
        self.submitted = time.monotonic()
        self.began: float | None = None
        """The time at which it began; None before that, and once it has ended."""


class CallLimit:
    """Bounds how long calls may take. One CallLimit belongs to all calls of one thread or model.

    Args:
        seconds: How many seconds a call may take.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._last_end = 0.0

    @contextmanager
    def under_way(self, call: TimedCall) -> Iterator[None]:
        """Notes when a call begins and ends; entered where it is made, on whatever thread."""
        call.began = time.monotonic()
        try:
            yield
        finally:
            call.began, self._last_end = None, time.monotonic()

    async def wait(self, call: TimedCall, done: asyncio.Future[T]) -> bool:
        """Waits until a call is done; returns False where it takes too long."""
        while not done.done():
            since = call.began or max(call.submitted, self._last_end)
            left = since + self.seconds - time.monotonic()
            if left <= 0:
                return False
            await asyncio.wait({done}, timeout=left)
        return True

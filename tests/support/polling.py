"""Waiting for what another thread, task or process does."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

GIVEN_UP = "it did not come about in time"


def eventually(
    condition: Callable[[], T],
    seconds: float = 20.0,
    *,
    every: float = 0.002,
    found: Callable[[], object] | None = None,
) -> T:
    """Calls `condition` until it returns something true, and returns that.

    Args:
        condition: The function.
        seconds: The test fails where the condition is false for longer.
        every: Seconds between two calls.
        found: Returns what the failure shows.
    """
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, found() if found else GIVEN_UP
        time.sleep(every)
    return value


async def aeventually(condition: Callable[[], T | Awaitable[T]], seconds: float = 20.0) -> T:
    """Calls `condition`, which may be asynchronous, until it returns something true, and returns that; the event loop
    goes on meanwhile. The test fails where the condition is false for longer than `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        assert time.monotonic() < deadline, GIVEN_UP
        await asyncio.sleep(0.001)

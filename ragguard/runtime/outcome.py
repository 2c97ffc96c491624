"""Awaits code of the user's: whatever it raises is a result, and ends neither the event loop nor the caller's task."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def result_or_error(work: Callable[[], Awaitable[T]]) -> T | BaseException:
    """Returns the result of `work`, or whatever it raises. Raises CancelledError only where the caller's own task is
    cancelled: `work` runs in a task of its own, so that the two cannot be taken for each other."""

    async def called() -> T:
        return await work()

    [result] = await asyncio.gather(catch_exit(called()), return_exceptions=True)
    return result


async def catch_exit(work: Awaitable[T]) -> T | BaseException:
    """Returns a SystemExit or KeyboardInterrupt of `work` in place of raising it: out of a task it would end the event
    loop, and with it all other work there."""
    try:
        return await work
    except (SystemExit, KeyboardInterrupt) as error:
        return error

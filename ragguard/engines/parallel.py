"""Several requests at once, a bounded number at a time; the first failure breaks the others off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def in_parallel(calls: Iterable[Callable[[], Coroutine[Any, Any, T]]], at_once: int) -> list[T]:
    """The answers of all calls, in order. What the first failure was is raised; nothing is left running."""
    slots = asyncio.Semaphore(at_once)

    async def one(call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        async with slots:
            return await call()

    tasks = [asyncio.ensure_future(one(call)) for call in calls]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise

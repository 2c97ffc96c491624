"""Makes several calls at once, up to a bound; the first failure cancels the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from ragguard.runtime.limiter import Limiter

T = TypeVar("T")


async def in_parallel(calls: Iterable[Callable[[], Coroutine[Any, Any, T]]], at_once: int) -> list[T]:
    """Returns the answers of all calls, in order; raises the first failure and leaves nothing running."""
    todo = list(calls)
    if len(todo) == 1:  # one call needs no task of its own
        return [await todo[0]()]
    limiter = Limiter(at_once)

    async def one(call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        async with limiter.admitted():
            return await call()

    tasks = [asyncio.ensure_future(one(call)) for call in todo]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise

"""Works on a stream of items, a few at a time, so that memory does not grow with their number."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable
from contextlib import aclosing
from typing import TypeVar

from ragguard.errors import InvalidInput

S = TypeVar("S")
T = TypeVar("T")


async def bounded(
    items: Iterable[S] | AsyncIterable[S], work: Callable[[S], Awaitable[T]], at_once: int
) -> AsyncGenerator[T, None]:
    """Yields results as they come; takes the next item when fewer than `at_once` are in progress."""
    under_way: set[asyncio.Future[T]] = set()
    async with aclosing(_each(items)) as source:
        try:
            async for item in source:
                under_way.add(asyncio.ensure_future(work(item)))
                if len(under_way) >= at_once:
                    done, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                    for task in done:
                        yield task.result()
            while under_way:
                done, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    yield task.result()
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)


async def _each(items: Iterable[S] | AsyncIterable[S]) -> AsyncGenerator[S, None]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        try:
            source = iter(items)
        except Exception as error:
            raise InvalidInput("runs", items, "runs that can be iterated") from error
        for item in source:
            yield item

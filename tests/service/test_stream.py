"""Streams of work: a few items at a time, and nothing left under way."""

import asyncio

from ragguard.runtime.limiter import bounded


async def test_a_stream_stops_what_is_under_way_when_nobody_listens_any_more():
    begun, ended = [], []

    async def work(number):
        begun.append(number)
        try:
            await asyncio.sleep(0 if number == 0 else 3600)
        finally:
            ended.append(number)
        return number

    stream = bounded(range(100), work, 5)
    async for number in stream:
        assert number == 0
        break
    await stream.aclose()
    assert sorted(begun) == sorted(ended)
    assert len(begun) == 5


async def test_a_stream_takes_an_async_source():
    async def source():
        for number in range(10):
            yield number

    async def work(number):
        return number * 2

    assert sorted([done async for done in bounded(source(), work, 3)]) == list(range(0, 20, 2))

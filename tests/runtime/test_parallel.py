"""Several calls at once: answers in order, a bounded number at a time, and nothing left running after a failure."""

import asyncio
from functools import partial

import pytest

from ragguard.runtime.parallel import in_parallel


async def test_answers_come_in_order_and_so_many_run_at_once():
    running = most = 0

    async def call(number):
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(10 - number):
            await asyncio.sleep(0)
        running -= 1
        return number

    assert await in_parallel([partial(call, number) for number in range(10)], 3) == list(range(10))
    assert most == 3
    assert await in_parallel([], 3) == []


async def test_a_failure_cancels_the_others():
    ended = []

    async def waits(name):
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)

    async def fails():
        raise ValueError("one of them")

    with pytest.raises(ValueError, match="one of them"):
        await in_parallel([partial(waits, "a"), fails, partial(waits, "b")], 3)
    assert sorted(ended) == ["a", "b"]


async def test_one_call_alone_needs_no_task():
    async def call():
        return asyncio.current_task()

    assert await in_parallel([call], 3) == [asyncio.current_task()]
    first, second = await in_parallel([call, call], 3)
    assert asyncio.current_task() not in (first, second)

"""The limiter: never more than its size, the most urgent first, and no slot lost, whatever becomes of the callers."""

import asyncio
import gc
import random
import weakref
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scripted_engine import ScriptedEngine

from ragguard.guard import DistractorGuard
from ragguard.runtime import limiter
from ragguard.runtime.limiter import LEAST, Limiter, WorkWindow, in_parallel


@pytest.mark.parametrize(
    ("callers", "order"),
    [
        ({"a": (6, 0), "b": (6, 0), "small": (2, 0)}, ["a", "b", "small"]),
        ({"a": (1, 0), "huge": (1000, 0), "small": (1, 0)}, ["a", "huge", "small"]),
        (
            {"a": (6, 10), "b": (6, 10), "small": (1, 10), "urgent": (4, 0)},
            ["a", "urgent", "b", "small"],
        ),
    ],
    ids=["first come", "oversized alone", "urgent at once"],
)
async def test_limiter_admits_callers_in_order_of_priority_and_arrival(callers, order):
    limiter, entered, leave = Limiter(10), [], {name: asyncio.Event() for name in callers}

    async def call(name: str, need: int, priority: int) -> None:
        async with limiter.admitted(need, priority=priority):
            entered.append(name)
            await leave[name].wait()

    tasks = []
    for name, needs in callers.items():
        tasks.append(asyncio.create_task(call(name, *needs)))
        await asyncio.sleep(0)
    assert entered == [order[0], *(["urgent"] if "urgent" in callers else [])]
    for name in order:
        leave[name].set()
        for _ in range(5):
            await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert entered == order


def test_loops_do_not_wait_for_each_other():
    room = Limiter(1, per_loop=True)

    async def inside() -> str:
        async with room.admitted(1):
            return await asyncio.to_thread(asyncio.run, another())

    async def another() -> str:
        async with asyncio.timeout(5), room.admitted(1):
            return "in"

    assert asyncio.run(inside()) == "in"


@given(
    st.integers(1, 6), st.lists(st.tuples(st.integers(1, 8), st.integers(0, 2)), max_size=25), st.integers()
)
@settings(max_examples=60, deadline=None)
def test_whatever_is_cancelled_no_slot_is_lost_and_none_given_twice(size, callers, seed):
    dice = random.Random(seed)

    async def run() -> None:
        limiter, inside, most = Limiter(size), 0, 0

        async def call(need: int, priority: int) -> None:
            nonlocal inside, most
            async with limiter.admitted(need, priority=priority):
                inside += min(need, size)
                most = max(most, inside)
                try:
                    for _ in range(dice.randint(0, 3)):
                        await asyncio.sleep(0)
                finally:
                    inside -= min(need, size)

        tasks = [asyncio.create_task(call(*caller)) for caller in callers]
        for task in tasks:
            if dice.random() < 0.4:
                await asyncio.sleep(0)
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert most <= size
        async with asyncio.timeout(10), limiter.admitted(size):
            pass

    asyncio.run(run())


def test_a_loop_that_has_ended_is_not_kept():
    """Also where its guards stood in line when it ended."""
    guard = DistractorGuard(ScriptedEngine(), budget_ms=20_000)
    ended = []

    async def leave() -> None:
        ended.append(weakref.ref(asyncio.get_running_loop()))
        for n in range(20):
            asyncio.create_task(guard.aprune(f"query {n}", [f"Passage {n}." for n in range(64)]))  # noqa: RUF006
        for _ in range(20):
            await asyncio.sleep(0)

    asyncio.run(leave())
    gc.collect()
    assert ended[0]() is None


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


class Clock:
    """A clock that a test sets."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(limiter, "time", clock)
    return clock


async def work(given: WorkWindow, clock: Clock, tokens: int, seconds: float) -> None:
    """Fills the window and answers after some seconds."""
    began = clock.now
    place = await given.enter(tokens, 0, None)
    clock.now += seconds
    given.answered(tokens, began, 120)
    place.leave()


async def test_it_doubles_until_an_answer_is_late_and_then_grows_by_one_request_a_round(clock):
    given = WorkWindow(1000)
    for size in (2000, 4000, 8000):
        await work(given, clock, given.size, 20)
        assert given.size == size
    await work(given, clock, 8000, 61)
    assert given.size == 4000
    await work(given, clock, 4000, 20)
    assert given.size == 4000 + LEAST
    await work(given, clock, given.size, 40)  # neither soon nor late
    assert given.size == 4000 + LEAST


async def test_a_fast_engine_is_given_two_seconds_of_its_pace(clock):
    given = WorkWindow(1000)
    await work(given, clock, 1000, 0.03125)
    assert given.size == 64_000


async def test_what_was_given_before_it_halved_does_not_halve_it_again(clock):
    given, began = WorkWindow(8000), clock.now
    clock.now += 120
    for _ in range(20):
        given.late(began)
    assert given.size == 4000
    clock.now += 1
    for _ in range(20):
        given.late(clock.now)
        clock.now += 1
    assert given.size == LEAST

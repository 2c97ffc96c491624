"""Room for so many passages at once: in line, whatever becomes of those who wait."""

import asyncio
import gc
import time
import weakref

import pytest
from support.scripted_engine import ScriptedEngine

from ragguard.guard import DistractorGuard
from ragguard.guard.judge import AT_ONCE
from ragguard.guard.limiter import Limiter


class Visitors:
    """Tasks that come in, say so, and stay until they are let go."""

    def __init__(self, size: int) -> None:
        self.room, self.inside = Limiter(size), []
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.going: dict[str, asyncio.Event] = {}

    async def come(self, **needs: int) -> None:
        for name, need in needs.items():
            self.going[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._visit(name, need))
        await self.settle()

    async def _visit(self, name: str, need: int) -> None:
        async with self.room.admitted(need):
            self.inside.append(name)
            try:
                await self.going[name].wait()
            finally:
                self.inside.remove(name)

    async def go(self, name: str) -> None:
        self.going[name].set()
        await self.settle()

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


@pytest.fixture
async def visitors():
    all_of_them = Visitors(10)
    yield all_of_them
    for task in all_of_them.tasks.values():
        task.cancel()
    await asyncio.gather(*all_of_them.tasks.values(), return_exceptions=True)


async def test_first_come_first_served_also_where_a_later_one_would_fit(visitors):
    await visitors.come(a=6, b=6, c=2)
    assert visitors.inside == ["a"]
    await visitors.go("a")
    assert visitors.inside == ["b", "c"]


async def test_who_needs_more_than_all_gets_all(visitors):
    await visitors.come(a=1, huge=1000, c=1)
    assert visitors.inside == ["a"]
    await visitors.go("a")
    assert visitors.inside == ["huge"]
    await visitors.go("huge")
    assert visitors.inside == ["c"]


async def test_who_stops_waiting_holds_nobody_up_and_leaves_nothing_taken(visitors):
    await visitors.come(a=6, b=10, c=4)
    visitors.tasks["b"].cancel()
    await visitors.settle()
    assert visitors.inside == ["a", "c"]
    await visitors.go("a")
    await visitors.go("c")
    await visitors.come(all=10)
    assert visitors.inside == ["all"]


async def test_who_is_cancelled_just_when_let_in_gives_its_room_back(visitors):
    await visitors.come(a=10, b=10, c=10)
    visitors.going["a"].set()
    while visitors.inside:
        await asyncio.sleep(0)
    visitors.tasks["b"].cancel()
    await visitors.settle()
    assert visitors.inside == ["c"]


def test_loops_do_not_wait_for_each_other():
    room = Limiter(1)

    async def inside() -> str:
        async with room.admitted(1):
            return await asyncio.to_thread(asyncio.run, another())

    async def another() -> str:
        async with asyncio.timeout(5), room.admitted(1):
            return "in"

    assert asyncio.run(inside()) == "in"


async def test_a_guard_puts_no_more_before_an_engine_than_it_can_take():
    """The rest would be prompts that stand about until their budgets end."""
    hanging = ScriptedEngine(gate=asyncio.Event())
    guard = DistractorGuard(hanging, budget_ms=20_000)
    passages = [f"Passage {n}." for n in range(64)]
    callers = [asyncio.create_task(guard.aprune(f"query {n}", passages)) for n in range(20)]
    deadline = time.monotonic() + 10
    while (asked := sum(len(call.prompts) for call in hanging.calls)) < 2 * AT_ONCE:
        assert time.monotonic() < deadline, asked
        await asyncio.sleep(0.01)
    for _ in range(100):
        await asyncio.sleep(0)
    assert asked == sum(len(call.prompts) for call in hanging.calls) == 2 * AT_ONCE
    for caller in callers:
        caller.cancel()
    await asyncio.gather(*callers, return_exceptions=True)


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

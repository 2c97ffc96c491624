"""Priority: so many at once, the most urgent first, and no slot is ever lost."""

import asyncio
import time

import pytest
from support.scripted_engine import ScriptedEngine

from ragguard.engines.layers import Priority
from ragguard.errors import EngineTimeout, EngineUnreachable, InvalidInput


async def ask(layer: Priority, text: str, priority: int = 0, deadline: float | None = None) -> str:
    await layer.label_probs([text], ["X"], deadline=deadline, priority=priority)
    return text


async def test_a_waiting_guard_overtakes_waiting_background_work():
    engine = ScriptedEngine(gate=asyncio.Event())
    layer = Priority(engine, concurrency=1)
    first = asyncio.ensure_future(ask(layer, "first", 10))
    await engine.until_running(1)
    waiting = [asyncio.ensure_future(ask(layer, f"back {i}", 10)) for i in range(3)]
    waiting += [
        asyncio.ensure_future(ask(layer, "guard", 0)),
        asyncio.ensure_future(layer.sample(["late"], priority=20)),
    ]
    await asyncio.sleep(0)
    engine.gate.set()
    await asyncio.gather(first, *waiting)
    assert [call.texts[0] for call in engine.calls] == [
        "first",
        "guard",
        "back 0",
        "back 1",
        "back 2",
        "late",
    ]
    assert [call.priority for call in engine.calls] == [10, 0, 10, 10, 10, 20]


async def test_failures_give_their_slot_back():
    engine = ScriptedEngine(fault=lambda call: EngineUnreachable("gone"))
    layer = Priority(engine, concurrency=2)
    for _ in range(5):
        with pytest.raises(EngineUnreachable):
            await ask(layer, "a")
    engine.fault = lambda call: None
    await ask(layer, "a")


async def test_a_deadline_counts_while_waiting():
    engine = ScriptedEngine(gate=asyncio.Event())
    layer = Priority(engine, concurrency=1)
    running = asyncio.ensure_future(ask(layer, "running"))
    await engine.until_running(1)
    with pytest.raises(EngineTimeout, match="waited for its turn"):
        await ask(layer, "hasty", deadline=time.monotonic() + 0.02)
    engine.gate.set()
    await running
    await ask(layer, "next")
    assert "hasty" not in [call.texts[0] for call in engine.calls]


async def test_info_close_and_bad_settings():
    engine = ScriptedEngine()
    layer = Priority(engine)
    assert await layer.info() == await engine.info()
    await layer.aclose()
    assert engine.closed == 1
    with pytest.raises(InvalidInput, match="concurrency"):
        Priority(engine, concurrency=0)

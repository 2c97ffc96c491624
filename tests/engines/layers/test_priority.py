"""Priority: as much at once as the engine has shown, the most urgent first, smaller after a timeout, nothing twice."""

import asyncio
import time
from collections import Counter

import pytest
from support.scripted_engine import Call, ScriptedEngine, unit

from ragguard.engines.layers import Patience, Priority, Retry
from ragguard.errors import EngineOverloaded, EngineTimeout, EngineUnreachable, InvalidInput

ONE = 250
"""A window for one small request at a time."""
LONG = "x" * 4000
"""The beginning of a prompt that is worth a hundred tokens."""


async def ask(layer: Priority, text: str, priority: int = 0, deadline: float | None = None) -> str:
    await layer.label_probs([text], ["X"], deadline=deadline, priority=priority)
    return text


def answered(engine: ScriptedEngine) -> Counter[str]:
    """How often each prompt was answered."""
    return Counter(text for call in engine.calls if engine.fault(call) is None for text in call.texts)


async def test_a_waiting_user_overtakes_waiting_background_work_and_a_guard_does_not_wait():
    engine = ScriptedEngine(gate=asyncio.Event())
    layer = Priority(engine, start=ONE)
    first = asyncio.ensure_future(ask(layer, "first", 10))
    await engine.until_running(1)
    waiting = [asyncio.ensure_future(ask(layer, f"back {i}", 10)) for i in range(3)]
    waiting += [asyncio.ensure_future(ask(layer, "user", 0)), asyncio.ensure_future(ask(layer, "late", 20))]
    guard = asyncio.ensure_future(ask(layer, "guard", -10))
    await engine.until_running(2)
    engine.gate.set()
    await asyncio.gather(first, guard, *waiting)
    order = [call.texts[0] for call in engine.calls]
    assert order == ["first", "guard", "user", "back 0", "back 1", "back 2", "late"]
    assert [call.priority for call in engine.calls] == [10, -10, 0, 10, 10, 10, 20]


async def test_failures_and_cancellations_give_their_place_back():
    engine = ScriptedEngine(fault=lambda call: EngineUnreachable("gone"))
    layer = Priority(engine, start=ONE)
    for _ in range(5):
        with pytest.raises(EngineUnreachable):
            await ask(layer, "a")
    engine.fault = lambda call: None
    many = asyncio.ensure_future(layer.label_probs([f"{LONG} {i}" for i in range(40)], ["X"]))
    for turns in range(12):
        await asyncio.sleep(0)
        many.cancel()
        await asyncio.gather(many, return_exceptions=True)
        many = asyncio.ensure_future(layer.label_probs([f"{LONG} {turns} {i}" for i in range(40)], ["X"]))
        for _ in range(turns):
            await asyncio.sleep(0)
    await many
    await asyncio.wait_for(ask(layer, "b"), 10)


async def test_a_deadline_counts_while_waiting():
    engine = ScriptedEngine(gate=asyncio.Event())
    layer = Priority(engine, start=ONE)
    running = asyncio.ensure_future(ask(layer, "running"))
    await engine.until_running(1)
    with pytest.raises(EngineTimeout, match="waited for its turn"):
        await ask(layer, "hasty", deadline=time.monotonic() + 0.02)
    engine.gate.set()
    await running
    await ask(layer, "next")
    assert "hasty" not in [call.texts[0] for call in engine.calls]


async def test_a_call_is_cut_and_the_parts_grow_as_answers_come():
    engine, texts = ScriptedEngine(), [f"{LONG} {i}" for i in range(200)]
    reply = await Priority(engine, start=500).label_probs(texts, ["X", "Y"])
    assert [tuple(row) for row in reply.p] == [(unit(text, "X") / 6, unit(text, "Y") / 6) for text in texts]
    sizes = [len(call.texts) for call in engine.calls]
    assert sizes[0] <= 2 < max(sizes)
    assert reply.usage.prompts == 200
    assert answered(engine) == Counter(texts)


async def test_an_engine_that_takes_one_prompt_gets_one():
    engine = ScriptedEngine(capabilities=frozenset({"exact_labels"}), gate=asyncio.Event())
    asked = Priority(engine, start=10 * ONE).label_probs([f"{i}" for i in range(30)], ["X"])
    waiting = asyncio.ensure_future(asked)
    await engine.until_running(10)
    engine.gate.set()
    await waiting
    assert [len(call.texts) for call in engine.calls] == [1] * 30


async def test_what_times_out_is_asked_again_smaller_and_what_is_answered_is_not():
    def slow(call: Call) -> EngineTimeout | None:
        return EngineTimeout("slow") if len(call.texts) > 3 else None

    engine, texts = ScriptedEngine(fault=slow), [f"{i}" for i in range(20)]
    layer = Priority(engine)
    reply = await layer.label_probs(texts, ["X"])
    assert [p for (p,) in reply.p] == [unit(text, "X") / 6 for text in texts]
    assert answered(engine) == Counter(texts)


async def test_one_prompt_that_times_out_alone_has_no_answer():
    engine = ScriptedEngine(fault=lambda call: EngineTimeout("slow"))
    with pytest.raises(EngineTimeout, match="slow"):
        await ask(Priority(engine, start=10_000), "a")
    assert 1 < len(engine.calls) < 10
    with pytest.raises(EngineTimeout):
        await ask(Priority(engine), "a", deadline=time.monotonic())


async def test_what_a_failed_call_had_answered_is_not_asked_again():
    def gone(call: Call) -> EngineUnreachable | None:
        return EngineUnreachable("gone") if any("bad" in text for text in call.texts) else None

    engine = ScriptedEngine(fault=gone)
    layer = Priority(engine, start=ONE)
    texts = [*(f"{LONG} {i}" for i in range(9)), f"{LONG} bad", f"{LONG} 10"]
    for _ in range(2):
        with pytest.raises(EngineUnreachable):
            await layer.label_probs(texts, ["Y"])
    assert max(answered(engine).values()) == 1
    known, engine.fault = answered(engine).total(), lambda call: None
    reply = await layer.label_probs(texts, ["Y"])
    assert [p for (p,) in reply.p] == [unit(text, "Y") / 6 for text in texts]
    assert reply.usage.cached == known > 1


@pytest.mark.parametrize("wrong", [{"seconds": 0}, {"start": -1}])
def test_time_or_window_that_is_none_is_refused_by_its_name(wrong):
    with pytest.raises(InvalidInput, match=next(iter(wrong))):
        Priority(ScriptedEngine(), **wrong)


@pytest.mark.parametrize(("status", "narrows"), [(500, False), (503, True)])
async def test_only_a_server_that_is_too_busy_narrows_the_window(status, narrows):
    left = [EngineOverloaded("try again", status=status)]
    engine = ScriptedEngine(fault=lambda call: left.pop() if left else None)
    layer = Priority(Retry(engine, Patience(base=0.001, cap=0.002)), start=1000)
    await ask(layer, "first")
    assert (layer._window.size < 1000) is narrows


async def test_a_request_that_waits_to_be_repeated_holds_no_place():
    failed = asyncio.Event()

    def fault(call: Call) -> Exception | None:
        if call.texts != ["first"] or engine_answered.is_set():
            return None
        failed.set()
        return EngineUnreachable("gone for a moment")

    engine_answered = asyncio.Event()
    engine = ScriptedEngine(fault=fault)
    layer = Priority(
        Retry(engine, Patience(attempts=10**6, base=0.001, cap=0.002, trip_after=10**6)), start=ONE
    )
    first = asyncio.ensure_future(ask(layer, "first"))
    await failed.wait()
    assert await ask(layer, "second") == "second"  # or this waits for ever: there is one place
    engine_answered.set()
    assert await first == "first"

"""Retry: again when it may help, not at all when the server is down, and never for ever."""

import asyncio
import threading
import time
from collections import deque

import pytest
from support.scripted_engine import ScriptedEngine

from ragguard.engines.layers import Patience, Retry
from ragguard.errors import (
    BudgetExceeded,
    CircuitOpen,
    EngineOverloaded,
    EngineProtocolError,
    EngineRejected,
    EngineTimeout,
    EngineUnreachable,
    InvalidInput,
    PromptTooLong,
)


def failing(*errors: Exception | None, then: Exception | None = None) -> ScriptedEngine:
    """Fails so, call by call, and goes on with `then`."""
    left = deque(errors)
    return ScriptedEngine(fault=lambda call: left.popleft() if left else then)


def quick(engine: ScriptedEngine, **settings: object) -> Retry:
    return Retry(engine, Patience(**{"base": 0.001, "cap": 0.002, "pause": 0.05, **settings}))


async def ask(layer: Retry, **more: object) -> None:
    await layer.label_probs(["a"], ["X"], **more)


@pytest.fixture
def waits(monkeypatch):
    """How long was waited between attempts; nobody really waits."""
    seconds: list[float] = []
    sleeps, here = asyncio.sleep, threading.get_ident()

    async def sleep(delay: float) -> None:
        if threading.get_ident() == here:  # loops on other threads go on as before
            seconds.append(delay)
        else:
            await sleeps(delay)

    monkeypatch.setattr("ragguard.engines.layers.retry.asyncio.sleep", sleep)
    return seconds


async def test_passing_troubles_pass_unseen():
    engine = failing(EngineUnreachable("gone"), EngineOverloaded("busy"))
    await ask(quick(engine))
    assert len(engine.calls) == 3
    engine = failing(EngineUnreachable("gone"))
    assert len(await quick(engine).sample(["a"], n=2)) == 1


@pytest.mark.parametrize(
    "error",
    [
        EngineRejected("bad key"),
        PromptTooLong("too long"),
        EngineProtocolError("no JSON"),
        EngineTimeout("late"),
        BudgetExceeded("no"),
        ValueError("odd"),
    ],
)
async def test_final_error_is_raised_after_one_attempt(error):
    engine = failing(error)
    with pytest.raises(type(error)) as caught:
        await ask(quick(engine))
    assert caught.value is error
    assert len(engine.calls) == 1


async def test_last_error_says_after_how_many_attempts_retry_gave_up():
    engine = failing(then=EngineUnreachable("nobody at home"))
    with pytest.raises(EngineUnreachable, match=r"nobody at home \(given up after 3 attempts in"):
        await ask(quick(engine, attempts=3))
    assert len(engine.calls) == 3


async def test_retry_after_is_obeyed(waits):
    await ask(Retry(failing(EngineOverloaded("busy", retry_after=7.0)), Patience(base=0.5)))
    assert 7.0 <= waits[0] <= 7.5


async def test_a_server_that_wants_more_time_than_there_is_is_not_waited_for(waits):
    engine = failing(then=EngineOverloaded("busy", retry_after=3600))
    with pytest.raises(EngineOverloaded) as caught:
        await ask(Retry(engine, Patience(total=60)))
    assert caught.value.retry_after == 3600
    with pytest.raises(EngineOverloaded):
        await ask(Retry(failing(then=EngineOverloaded("busy", retry_after=5))), deadline=time.monotonic() + 1)
    assert (waits, len(engine.calls)) == ([], 1)


async def test_all_attempts_together_end_in_time():
    engine = failing(then=EngineUnreachable("gone"))
    with pytest.raises(EngineUnreachable):  # or this goes on for hours
        await ask(Retry(engine, Patience(10**6, 0.02, 0.02, total=0.3, trip_after=10**6)))
    assert len(engine.calls) > 3
    with pytest.raises(EngineTimeout):
        await ask(Retry(engine), deadline=time.monotonic() - 1)


async def test_a_callers_haste_and_a_servers_advice_do_not_open_it():
    engine = failing(then=EngineTimeout("late"))
    layer = quick(engine, attempts=1, trip_after=1)
    for _ in range(3):
        with pytest.raises(EngineTimeout):
            await ask(layer, deadline=time.monotonic() + 5)
    advice = failing(then=EngineOverloaded("busy", retry_after=0.001))
    for _ in range(3):
        with pytest.raises(EngineOverloaded):
            await ask(quick(advice, total=0.02, trip_after=2))
    with pytest.raises(EngineTimeout):
        await ask(layer)
    with pytest.raises(CircuitOpen):
        await ask(layer)


async def test_a_refusal_proves_the_server_well():
    gone = EngineUnreachable("gone")
    engine = failing(gone, EngineRejected("no such model"), gone, None)
    layer = quick(engine, attempts=2, trip_after=2)
    with pytest.raises(EngineRejected):
        await ask(layer)
    await ask(layer)


@pytest.mark.parametrize("wrong", [{"attempts": 0}, {"base": 0}, {"total": -1}, {"trip_after": 0}])
def test_bad_settings(wrong):
    with pytest.raises(InvalidInput, match=next(iter(wrong))):
        Patience(**wrong)

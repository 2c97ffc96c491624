"""Retry: again when it may help, not at all when the server is down, and never for ever."""

import asyncio
import threading
import time
from collections import deque

import pytest
from support.scripted_engine import ScriptedEngine

from ragguard.engines.layers import Patience, Retry
from ragguard.engines.layers.retry import repeated
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

    monkeypatch.setattr("ragguard.runtime.limiter.asyncio.sleep", sleep)
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


async def test_each_request_of_a_call_is_repeated_by_itself():
    """A call of many requests at a server that fails half of them was begun anew whenever one failed: never done."""

    class ManyRequests(ScriptedEngine):
        failed = asked = 0

        async def _request(self):
            self.asked += 1
            if self.asked % 2:
                self.failed += 1
                raise EngineOverloaded("try again", status=500)

        async def label_probs(self, prompts, labels, *more, **options):
            for _ in range(20):
                await repeated(self._request, None)
            return await super().label_probs(prompts, labels, *more, **options)

    engine = ManyRequests()
    layer = quick(engine, trip_after=3, attempts=2)
    await ask(layer)
    assert (engine.asked, engine.failed, len(engine.calls)) == (40, 20, 1)
    assert not layer.patience.circuit.is_open


async def test_requests_of_the_call_that_tries_a_server_are_let_through_and_one_failure_ends_it():
    class Requests(ScriptedEngine):
        well, asked = False, 0

        async def _request(self):
            self.asked += 1
            if not self.well:
                raise EngineUnreachable("gone")

        async def label_probs(self, prompts, labels, *more, **options):
            await asyncio.gather(*(repeated(self._request, None) for _ in range(3)))
            return await super().label_probs(prompts, labels, *more, **options)

    engine = Requests()
    layer = quick(engine, attempts=1, trip_after=1, pause=0.02)
    with pytest.raises(EngineUnreachable):
        await ask(layer)
    assert layer.patience.circuit.is_open
    await asyncio.sleep(0.05)
    engine.asked = 0
    with pytest.raises((EngineUnreachable, CircuitOpen)):
        await ask(layer)
    assert engine.asked <= 3
    assert layer.patience.circuit.pause > 0
    await asyncio.sleep(0.1)
    engine.well = True
    await ask(layer)
    assert not layer.patience.circuit.is_open

"""The usual stack as a whole: whatever happens around them, callers get right numbers or a clear error."""

import asyncio
import random

import pytest
from support.scripted_engine import ScriptedEngine, unit

from ragguard.engines.base import Engine, LabelProbs
from ragguard.engines.layers import Account, Budget, Cache, Coalesce, Patience, Priority, Retry
from ragguard.errors import CircuitOpen, EngineError, EngineOverloaded, EngineUnreachable, PromptTooLong

PATIENCE = Patience(base=0.001, cap=0.002, trip_after=10_000)


def stack(engine: Engine) -> Engine:
    return Cache(Coalesce(Priority(Retry(Budget(engine, Account()), PATIENCE))))


async def test_a_storm_of_faults_and_cancellations():
    dice = random.Random(5)

    def fault(call):
        if any("bad" in text for text in call.texts):
            return PromptTooLong("too long")
        return dice.choice([None, None, EngineUnreachable("gone"), EngineOverloaded("busy", 0.001)])

    engine = ScriptedEngine(fault=fault)
    layers = stack(engine)
    texts = ["bad" if i % 17 == 0 else f"{i % 40}" for i in range(400)]
    calls = [
        asyncio.ensure_future(layers.label_probs([text], ["A"], priority=dice.randint(0, 2)))
        for text in texts
    ]
    for call in dice.sample(calls, 100):
        call.cancel()
        await asyncio.sleep(0)
    answers = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 30)
    for text, answer in zip(texts, answers, strict=True):
        if isinstance(answer, LabelProbs):
            assert answer.p[0, 0] == unit(text, "A") / 6
        else:
            assert isinstance(answer, EngineError | asyncio.CancelledError)
            assert text == "bad" or not isinstance(answer, PromptTooLong)
    assert sum(isinstance(answer, LabelProbs) for answer in answers) > 200
    engine.fault = lambda call: None
    assert (await layers.label_probs(["after"], ["A"])).p[0, 0] == unit("after", "A") / 6


async def test_a_server_that_only_fails_is_no_longer_asked_though_it_is_known_what_it_is(breaker_clock):
    engine = ScriptedEngine()
    patience = Patience(attempts=2, base=0.001, cap=0.001, trip_after=6, pause=30)
    layers = Cache(Coalesce(Priority(Retry(Budget(engine, Account()), patience))))
    await layers.label_probs(["before"], ["A"])
    engine.calls.clear()
    breaker_clock.now += 1  # no answer for a second
    engine.fault = lambda call: EngineOverloaded("503")
    for i in range(8):
        with pytest.raises(EngineError):
            await layers.label_probs([f"{i}"], ["A"])
    assert len(engine.calls) == 6
    assert (await layers.label_probs(["before"], ["A"])).usage.cached == 1
    engine.fault = lambda call: None
    with pytest.raises(CircuitOpen):
        await layers.label_probs(["too early"], ["A"])
    assert len(engine.calls) == 6
    breaker_clock.now += 60
    answer = await layers.label_probs(["after"], ["A"])
    assert answer.p[0, 0] == unit("after", "A") / 6

"""Cache: nothing is asked twice, whoever asks and however; and the file is never what fails."""

import asyncio
import logging
import time

import numpy as np
import pytest
from support.scripted_engine import ScriptedEngine, unit

from ragguard.engines.base import LabelProbs
from ragguard.engines.layers import Cache
from ragguard.errors import (
    Closed,
    EngineRejected,
    EngineTimeout,
    EngineUnreachable,
    PromptTooLong,
)


def p(text: str, label: str) -> float:
    return unit(text, label) / 6


async def test_equal_questions_are_asked_once():
    engine = ScriptedEngine()
    cache = Cache(engine)
    first = await cache.label_probs(["a", "b", "a"], ["X", "Y"])
    second = await cache.label_probs(["b", "c"], ["X", "Y"])
    assert [call.texts for call in engine.calls] == [["a", "b"], ["c"]]
    np.testing.assert_array_equal(first.p, [[p(text, "X"), p(text, "Y")] for text in "aba"])
    np.testing.assert_array_equal(second.p, [[p(text, "X"), p(text, "Y")] for text in "bc"])
    assert (first.usage.prompts, first.usage.cached, first.usage.requests) == (3, 1, 1)
    assert (second.usage.prompts, second.usage.cached) == (2, 1)


async def test_samples_are_kept_only_with_a_seed():
    engine = ScriptedEngine()
    cache = Cache(engine)
    drawn = [await cache.sample(["a", "b"], n=2, seed=seed) for seed in (1, 1, 2)]
    assert drawn[0].rows == drawn[1].rows != drawn[2].rows
    assert [d.usage.cached for d in drawn] == [0, 2, 0]
    free = [await cache.sample(["a"], n=2) for _ in range(2)]
    assert free[0].rows != free[1].rows
    await cache.sample(["a"], n=3, seed=1)
    await cache.sample(["a"], n=2, max_tokens=9, seed=1)
    await cache.sample(["a"], n=2, temperature=0.5, seed=1)
    assert len(engine.calls) == 7
    drawn[0].rows[0].clear()
    assert len((await cache.sample(["a"], n=2, seed=1))[0]) == 2, "what was given away is not what is kept"


async def test_a_deadline_holds_while_the_engine_is_looked_at():
    class Unreachable(ScriptedEngine):
        async def info(self):
            await asyncio.Event().wait()

    for ask in (
        lambda cache, deadline: cache.label_probs(["a"], ["X"], deadline=deadline),
        lambda cache, deadline: cache.sample(["a"], seed=1, deadline=deadline),
    ):
        with pytest.raises(EngineTimeout, match="looking at the engine"):
            await ask(Cache(Unreachable()), time.monotonic() + 0.02)


async def test_memory_is_bounded_and_forgets_the_least_used():
    engine = ScriptedEngine()
    cache = Cache(engine, max_items=10)
    for i in range(10):
        await cache.label_probs([f"{i}"], ["X"])
    await cache.label_probs(["0"], ["X"])
    await cache.label_probs(["new"], ["X"])
    assert (await cache.label_probs(["0"], ["X"])).usage.cached == 1
    assert (await cache.label_probs(["1"], ["X"])).usage.cached == 0
    big = Cache(engine, max_items=10)
    for i in range(20):
        await big.sample([f"{i}"], n=40, seed=1)
    assert (await big.sample(["19"], n=40, seed=1)).usage.cached == 1
    assert (await big.sample(["18"], n=40, seed=1)).usage.cached == 0


async def test_bounds_errors_and_cuts_come_back_as_they_were(tmp_path):
    class Rich(ScriptedEngine):
        async def label_probs(self, prompts, labels, mode=None, deadline=None, priority=0):
            plain = await super().label_probs(prompts, labels, mode, deadline, priority)
            bound = np.array([[label == "X" for label in labels] for _ in prompts])
            return LabelProbs(plain.p, False, bound=bound, usage=plain.usage, truncated={0: 5})

    fresh, again = None, None
    for _ in range(2):
        cache = Cache(Rich(), tmp_path / "cache.db")
        fresh, again = again, await cache.label_probs(["a", "b"], ["X", "Y"])
        await cache.aclose()
    assert again.usage.cached == 2
    np.testing.assert_array_equal(fresh.p, again.p)
    np.testing.assert_array_equal(fresh.bound, again.bound)
    assert (again.exact, again.truncated, again.stderr) == (False, {0: 5}, None)


async def test_file_is_shared_and_keeps_any_text(tmp_path):
    path, odd = tmp_path / "cache.db", "naïve 東京 \ud800"
    for name in ("one", "two"):
        cache = Cache(ScriptedEngine(), path)
        await cache.label_probs([*map(str, range(100)), name], ["X", "Y"])
        await cache.sample([odd], n=2, seed=3)
        await cache.aclose()
    engine = ScriptedEngine()
    cache = Cache(engine, path)
    answer = await cache.label_probs([*map(str, range(100)), "one", "two"], ["X", "Y"])
    drawn = await cache.sample([odd], n=2, seed=3)
    assert (answer.usage.cached, drawn.usage.cached, engine.calls) == (102, 1, [])
    assert answer.p[7, 1] == p("7", "Y")
    assert drawn.rows == (await ScriptedEngine().sample([odd], n=2, seed=3)).rows
    await cache.aclose()


async def test_a_corrupted_file_means_memory_only_and_one_warning(tmp_path, caplog):
    path = tmp_path / "cache.db"
    path.write_bytes(b"this is no database" * 500)
    engine = ScriptedEngine()
    cache = Cache(engine, path)
    with caplog.at_level(logging.WARNING, "ragguard"):
        for text in "aab":
            assert (await cache.label_probs([text], ["X"])).p[0, 0] == p(text, "X")
    assert len(engine.calls) == 2
    (record,) = caplog.records
    assert "cache.db" in record.getMessage()
    assert "memory only" in record.getMessage()
    await cache.aclose()


async def test_file_is_bounded_when_it_is_opened(tmp_path):
    for start in (0, 600):
        cache = Cache(ScriptedEngine(), tmp_path / "cache.db", max_stored=500)
        for first in range(start, start + 600, 100):
            await cache.label_probs([f"{i}" for i in range(first, first + 100)], ["X"])
        await cache.aclose()
    cache = Cache(ScriptedEngine(), tmp_path / "cache.db")
    cached = [(await cache.label_probs([text], ["X"])).usage.cached for text in ("0", "599", "1199")]
    assert cached == [0, 1, 1]
    await cache.aclose()


async def test_closing_closes_what_it_wraps_and_only_once_itself(tmp_path):
    engine = ScriptedEngine()
    cache = Cache(engine, tmp_path / "cache.db")
    await cache.label_probs(["a"], ["X"])
    await cache.aclose()
    await cache.aclose()
    assert engine.closed == 2
    with pytest.raises(Closed):
        await cache.label_probs(["a"], ["X"])


async def test_concurrent_equal_questions_are_one():
    engine = ScriptedEngine(gate=asyncio.Event())
    cache = Cache(engine)
    calls = [asyncio.ensure_future(cache.label_probs(["a", f"{i % 3}"], ["X"])) for i in range(60)]
    await engine.until_running(3)
    engine.gate.set()
    answers = await asyncio.gather(*calls)
    assert sorted(text for call in engine.calls for text in call.texts) == ["0", "1", "2", "a"]
    assert sum(answer.usage.prompts for answer in answers) == 120
    assert sum(answer.usage.cached for answer in answers) == 116


async def test_a_cancelled_leader_hands_over():
    engine = ScriptedEngine(gate=asyncio.Event())
    cache = Cache(engine)
    leader = asyncio.ensure_future(cache.label_probs(["a"], ["X"]))
    await engine.until_running(1)
    followers = [asyncio.ensure_future(cache.label_probs(["a"], ["X"])) for _ in range(5)]
    await asyncio.sleep(0)
    leader.cancel()
    await engine.until_running(1)
    engine.gate.set()
    answers = await asyncio.gather(*followers)
    assert all(answer.p[0, 0] == p("a", "X") for answer in answers)
    assert len(engine.calls) == 2
    with pytest.raises(asyncio.CancelledError):
        await leader


@pytest.mark.parametrize(
    "error", [PromptTooLong("too long"), EngineRejected("no"), EngineTimeout("late"), ValueError("odd")]
)
async def test_a_leaders_own_failure_is_its_own(error):
    engine = ScriptedEngine(gate=asyncio.Event(), fault=lambda call: error if "bad" in call.texts else None)
    cache = Cache(engine)
    leader = asyncio.ensure_future(cache.label_probs(["bad", "a"], ["X"]))
    await engine.until_running(1)
    follower = asyncio.ensure_future(cache.label_probs(["a"], ["X"]))
    await asyncio.sleep(0)
    engine.gate.set()
    with pytest.raises(type(error)):
        await leader
    assert (await follower).p[0, 0] == p("a", "X")


async def test_a_dead_server_is_dead_for_followers_too_and_not_remembered():
    engine = ScriptedEngine(gate=asyncio.Event(), fault=lambda call: EngineUnreachable("gone"))
    cache = Cache(engine)
    calls = [asyncio.ensure_future(cache.label_probs(["a"], ["X"])) for _ in range(9)]
    await engine.until_running(1)
    engine.gate.set()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(answer, EngineUnreachable) for answer in answers)
    assert len(engine.calls) == 1
    engine.fault = lambda call: None
    assert (await cache.label_probs(["a"], ["X"])).p[0, 0] == p("a", "X")


async def test_an_urgent_call_does_not_wait_for_a_patient_one():
    engine = ScriptedEngine(gate=asyncio.Event())
    cache = Cache(engine)
    calls = [
        asyncio.ensure_future(cache.label_probs(["a"], ["X"], priority=10)),
        asyncio.ensure_future(cache.label_probs(["a"], ["X"], priority=0)),
        asyncio.ensure_future(cache.label_probs(["a"], ["X"], priority=5)),
    ]
    await engine.until_running(2)
    engine.gate.set()
    await asyncio.gather(*calls)
    assert [call.priority for call in engine.calls] == [10, 0]


async def test_a_follower_keeps_its_own_deadline():
    engine = ScriptedEngine(gate=asyncio.Event())
    cache = Cache(engine)
    leader = asyncio.ensure_future(cache.label_probs(["a"], ["X"]))
    await engine.until_running(1)
    with pytest.raises(EngineTimeout, match="equal one"):
        await cache.label_probs(["a"], ["X"], deadline=time.monotonic() + 0.03)
    engine.gate.set()
    await leader

"""Advice under faults: an engine that is slow, down, spent or broken leaves the agent working."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest
from support.scripted_engine import ScriptedEngine

from ragguard import Passage, RagGuard
from ragguard.advice.adviser import AdviceAdmission
from ragguard.errors import BudgetExceeded, EngineRejected, EngineUnreachable
from ragguard.service.service import SCORER

QUESTION, LONG = "Who founded Norvik Mills?", 60_000
PASSAGES = [Passage("Ada Berg founded Norvik Mills."), Passage("Carl Dahl founded Corline Mines.")]


def advised(engine, budget_ms=LONG, **settings):
    with RagGuard(engine, store=None, scorers=(), **settings) as rg, rg.run(QUESTION) as run:
        run.retrieved(QUESTION, PASSAGES)
        return run.advise(budget_ms)


def says(text, label):
    """A judge that puts all its probability on its labels."""
    return {"NO-RESPONSE": 0.05, "A": 0.9, "B": 0.1, "5": 0.9}.get(label, 0.0)


def test_a_scripted_engine_is_judged():
    advice = advised(ScriptedEngine(label=says, answer=lambda text, index: "Ada Berg"))
    assert (advice.status, advice.action, advice.engine) == ("judged", "answer", "scripted/first_token")


@pytest.mark.parametrize(
    "error",
    [
        EngineUnreachable("nothing answers"),
        EngineRejected("no such model"),
        BudgetExceeded("spent"),
        ValueError("odd"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_engine_that_fails_means_go_on(error):
    advice = advised(ScriptedEngine(fault=lambda call: error), budget_ms=3_000)
    assert advice.action == "continue"
    assert advice.status in ("error", "timeout")
    assert str(error) in advice.reasons[0]
    assert (advice.calibrated, advice.expected_gain, advice.numbers) == (False, None, {})


def test_a_budget_that_is_spent_means_go_on():
    advice = advised(ScriptedEngine(label=says), budget={"tokens": 0})
    assert (advice.action, advice.status) == ("continue", "error")
    assert "budget" in advice.reasons[0].lower()


def test_an_engine_that_is_away_until_the_budget_is_over_is_named():
    with socket.socket() as taken:  # bound and not listening
        taken.bind(("127.0.0.1", 0))
        advice = advised(f"http://127.0.0.1:{taken.getsockname()[1]}/v1", budget_ms=700)
    assert (advice.action, advice.status) == ("continue", "error")
    assert "refused" in advice.reasons[0]
    assert "more time" not in advice.reasons[0]


async def test_an_engine_that_is_slow_means_go_on():
    slow = ScriptedEngine(label=says, gate=asyncio.Event())
    async with RagGuard(slow, store=None, scorers=()) as rg:
        async with rg.run(QUESTION) as run:
            run.retrieved(QUESTION, PASSAGES)
            advice = await run.aadvise(30)
            assert (advice.action, advice.status) == ("continue", "timeout")
            assert "within 30 ms" in advice.reasons[0]
            assert run.advise(30).status == "timeout"
            assert run.steps[0].advice.status == "timeout"
        assert all(call.deadline is not None and call.priority == -5 for call in slow.calls)


async def test_one_passage_that_cannot_be_judged_is_told_and_counts_as_no_answer():
    def unclear(text, label):
        return 0.01 if "Carl Dahl" in text and label in "012345" else says(text, label)

    async with RagGuard(ScriptedEngine(label=unclear, answer=lambda text, index: "Ada Berg"), store=None,
                        scorers=()) as rg, rg.run(QUESTION) as run:  # fmt: skip
        run.retrieved(QUESTION, PASSAGES[1:])
        run.retrieved(QUESTION, PASSAGES)
        advice = await run.aadvise(LONG)
        assert (advice.status, advice.numbers["coverage"]) == ("judged", 1.0)


async def test_cancelling_the_caller_leaves_nothing_running():
    slow = ScriptedEngine(label=says, gate=asyncio.Event())
    async with RagGuard(slow, store=None, scorers=()) as rg, rg.run(QUESTION) as run:
        run.retrieved(QUESTION, PASSAGES)
        asking = asyncio.create_task(run.aadvise(LONG))
        while not slow.running:
            await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        for _ in range(10_000):
            if not slow.running:
                break
            await asyncio.sleep(0.001)
        assert slow.running == 0


def test_on_its_own_thread_it_does_not_wait_for_itself():
    with RagGuard(ScriptedEngine(label=says), store=None, scorers=()) as rg, rg.run(QUESTION) as run:
        run.retrieved(QUESTION, PASSAGES)

        async def inside():
            return run.advise(LONG)

        advice = SCORER.run(inside())
    assert (advice.action, advice.status) == ("continue", "error")
    assert "await the async form" in advice.reasons[0]


async def test_calls_beyond_those_that_can_be_judged_in_time_go_on_and_later_ones_are_judged(monkeypatch):
    monkeypatch.setattr("ragguard.advice.adviser.AT_ONCE", 1)
    engine = ScriptedEngine(label=says, answer=lambda text, index: "Ada Berg", gate=asyncio.Event())
    async with RagGuard(engine, store=None, scorers=()) as rg, rg.run(QUESTION) as run:
        run.retrieved(QUESTION, PASSAGES)
        first = asyncio.create_task(run.aadvise(LONG))
        await engine.until_running(2)  # the reader's and the judge's questions
        asked = len(engine.calls)
        shed = await run.aadvise(100)
        assert (shed.action, shed.status, len(engine.calls)) == ("continue", "timeout", asked)
        assert "waited for its turn" in shed.reasons[0]
        SCORER.run(_set(engine.gate))
        assert (await first).status == "judged"
        assert (await run.aadvise(LONG)).status == "judged"


async def test_admission_newest_waiting_call_goes_first(monkeypatch):
    monkeypatch.setattr("ragguard.advice.adviser.AT_ONCE", 1)
    admission, order = AdviceAdmission(), []

    async def call(name):
        async with admission.admitted(time.monotonic() + LONG / 1e3):
            order.append(name)
            await asyncio.sleep(0)

    async with admission.admitted(time.monotonic() + LONG / 1e3):
        waiting = []
        for name in ("oldest", "middle", "newest"):
            waiting.append(asyncio.create_task(call(name)))
            await asyncio.sleep(0)
    await asyncio.gather(*waiting)
    assert order == ["newest", "middle", "oldest"]


async def _set(gate):
    gate.set()

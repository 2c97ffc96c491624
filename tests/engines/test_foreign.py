"""Engines and entailers of a user's own are called on a thread of their own, and given up where they never return."""

from __future__ import annotations

import asyncio
import gc
import threading
import time

import numpy as np
import pytest
from support.polling import aeventually
from support.scripted_engine import ScriptedEngine

from ragguard import RagGuard
from ragguard.engines.base import EngineInfo
from ragguard.engines.connect import connect, connect_entailer
from ragguard.engines.entailment import Entailments, Pair
from ragguard.engines.foreign import ForeignCalls, ForeignEngine
from ragguard.errors import EngineProtocolError, EngineTimeout
from ragguard.guard import DistractorGuard


class Blocking(ScriptedEngine):
    """Blocks its thread, as an engine does that calls a synchronous client."""

    def __init__(self, seconds=60.0, **settings):
        super().__init__(**settings)
        self.seconds, self.released = seconds, threading.Event()

    async def label_probs(self, *args, **kwargs):
        self.released.wait(self.seconds)
        return await super().label_probs(*args, **kwargs)


async def never():
    await asyncio.Event().wait()


async def test_foreign_engine_that_blocks_holds_up_no_loop():
    engine = ForeignEngine(Blocking())
    asked = asyncio.create_task(engine.label_probs(["Who?"], ["A"]))
    for _ in range(10):  # a loop that is held up would come here only after the answer
        await asyncio.sleep(0.001)
    assert not asked.done()
    engine.wrapped.released.set()
    assert len(await asked) == 1


async def test_foreign_call_that_waits_for_ever_is_cancelled_at_its_limit():
    calls = ForeignCalls("the engine X", seconds=0.05)
    with pytest.raises(
        EngineTimeout, match=r"the engine X has not returned from a call for 0\.05 s: the call was"
    ):
        await calls.result(never)
    assert await calls.result(lambda: asyncio.sleep(0, "next")) == "next"


async def test_foreign_call_that_blocks_for_ever_costs_its_thread_and_the_next_call_gets_another(
    caplog, monkeypatch
):
    monkeypatch.setattr("ragguard.engines.foreign.ANSWER_S", 0.05)
    calls, release = ForeignCalls("the engine X", seconds=0.05), threading.Event()

    async def block():
        release.wait(60)

    with pytest.raises(EngineTimeout, match="blocks its thread: the thread was abandoned"):
        await calls.result(block)
    assert await calls.result(lambda: asyncio.sleep(0, "next")) == "next"
    assert "abandoned, 1 so far" in caplog.text
    release.set()


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt()], ids=lambda error: type(error).__name__
)
async def test_foreign_engine_that_exits_is_an_error_of_the_engine(error):
    engine = ForeignEngine(ScriptedEngine(fault=lambda call: error))
    with pytest.raises(EngineProtocolError, match=type(error).__name__):
        await engine.label_probs(["Who?"], ["A"])


async def test_foreign_engines_thread_ends_with_the_engine():
    threads = []
    note = lambda call: threads.append(threading.current_thread())  # noqa: E731
    engine = connect(ScriptedEngine(fault=note))
    await engine.label_probs(["Who?"], ["A"])
    await engine.aclose()
    await aeventually(lambda: not threads[0].is_alive())
    engine = connect(ScriptedEngine(fault=note))
    await engine.label_probs(["Who?"], ["A"])
    assert threads[1].is_alive()
    del engine
    gc.collect()
    await aeventually(lambda: not threads[1].is_alive())


async def test_foreign_entailer_is_called_on_a_thread_of_its_own():
    class Named:
        thread = ""

        async def entail(self, pairs, *, deadline=None, priority=0):
            Named.thread = threading.current_thread().name
            return Entailments(np.full((len(pairs), 3), 1 / 3))

        async def info(self):
            return EngineInfo("named", "own", "named", "first_token")

        async def aclose(self):
            pass

    entailer = connect_entailer(Named())
    await entailer.entail([Pair("Who?", "Ada", "Bo")])
    assert Named.thread == "ragguard-engine"
    await entailer.aclose()


async def test_guard_on_a_blocking_engine_keeps_its_budget():
    engine = Blocking()
    decision = await DistractorGuard(engine, budget_ms=100).aprune("q", ["one passage", "another passage"])
    assert decision.status == "timeout"
    assert not engine.released.is_set()  # the decision came while the engine still blocked
    engine.released.set()


def test_scoring_goes_on_after_a_call_of_the_engine_that_never_returned(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("ragguard.engines.foreign.ANSWER_S", 0.05)
    model, held = ScriptedEngine(label=lambda text, label: 0.5), threading.Event()

    def hang_once(call):
        if not held.is_set():
            held.set()
            time.sleep(30)

    model.fault = hang_once
    engine = connect(model, timeout_s=0.3)
    with RagGuard(engine, store=tmp_path / "runs.db", scorers=["utility"]) as rg:
        for number in range(3):
            with rg.run(f"Who founded firm {number}?", references=["Ada"]) as run:
                run.retrieved("founder", ["Ada founded it.", "Bo did not."])
                run.answered("Ada")
        report = rg.flush(timeout=20)
        assert report.scored >= 2, report
    assert "blocks its thread, which is abandoned" in caplog.text

"""The guard under faults: code that blocks, exits or breaks, threads that die, queues, forks, late answers."""

from __future__ import annotations

import asyncio
import copy
import multiprocessing
import pickle
import threading

import pytest
from support.guards import HELPS, MISLEADS, NoCopies, guard, says, texts
from support.scripted_engine import ScriptedEngine

from ragguard.errors import PromptTooLong

ENDINGS = [SystemExit(3), StopIteration("done"), ZeroDivisionError("odd")]


class Calls:
    """A policy that does what it is told to."""

    needs_utility = False

    def __init__(self, act):
        self.act = act

    def drop(self, judged):
        return self.act(judged)


def raising(error):
    def act(*_):
        raise error

    return act


def assert_the_guards_of_this_process_work():
    assert texts(guard().prune("q", [HELPS, MISLEADS])) == [HELPS]


@pytest.mark.parametrize("error", ENDINGS, ids=lambda error: type(error).__name__)
def test_whatever_a_policy_raises_everything_is_kept_and_others_go_on(error):
    decision = guard(policies=[Calls(raising(error))]).prune("q", [HELPS, MISLEADS])
    assert (decision.status, texts(decision)) == ("error", [HELPS, MISLEADS])
    assert type(error).__name__ in decision.reason
    assert_the_guards_of_this_process_work()


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt()], ids=lambda error: type(error).__name__
)
def test_an_engine_that_exits_ends_neither_the_call_nor_the_thread(error):
    decision = guard(ScriptedEngine(fault=lambda call: error), budget_ms=500).prune("q", [HELPS, MISLEADS])
    assert decision.status in ("error", "timeout")
    assert texts(decision) == [HELPS, MISLEADS]
    assert_the_guards_of_this_process_work()


async def test_an_engine_that_exits_does_not_end_the_applications_loop():
    leaving = ScriptedEngine(fault=lambda call: SystemExit(3))
    decision = await guard(leaving).aprune("q", [HELPS, MISLEADS])
    assert (decision.status, texts(decision)) == ("error", [HELPS, MISLEADS])
    assert "SystemExit" in decision.reason


def test_engine_that_gives_no_probabilities_means_all_is_kept_with_the_reason():
    decision = guard(ScriptedEngine(label=lambda text, label: 7.0)).prune("q", [HELPS, MISLEADS])
    assert (decision.status, texts(decision)) == ("error", [HELPS, MISLEADS])
    assert "the numbers 7.0: return probabilities" in decision.reason


def test_a_budget_longer_than_any_wait():
    assert texts(guard(budget_ms=1e300).prune("q", [HELPS, MISLEADS])) == [HELPS]


@pytest.mark.parametrize("act", [lambda judged: {1: "a", 2: None, 7: "b", "x": "c"}, lambda judged: None])
def test_strange_verdicts_of_a_policy_lose_no_passage_that_it_did_not_name(act):
    decision = guard(policies=[Calls(act)], min_keep=1).prune("q", [HELPS, MISLEADS, "third"])
    assert "third" in texts(decision)
    assert len(decision.kept) + len(decision.dropped) == 3


def test_a_policy_that_counts_from_0_drops_nothing_and_is_told():
    decision = guard(policies=[Calls(lambda judged: {0: "mine"})]).prune("q", [HELPS, MISLEADS])
    assert (decision.status, texts(decision)) == ("error", [HELPS, MISLEADS])
    assert "which count from 1" in decision.reason


def test_a_policy_cannot_take_passages_away_behind_the_guards_back():
    decision = guard(policies=[Calls(lambda judged: judged.clear() or {})]).prune("q", [HELPS, MISLEADS])
    assert texts(decision) == [HELPS, MISLEADS]


def test_an_engine_that_blocks_its_thread_costs_the_budget_and_no_more():
    release = threading.Event()

    class Blocks(ScriptedEngine):
        async def label_probs(self, *args, **kwargs):
            release.wait(60)
            return await super().label_probs(*args, **kwargs)

    found = []
    blocks = guard(Blocks(label=says), budget_ms=50)
    caller = threading.Thread(target=lambda: found.append(blocks.prune("q", [HELPS, MISLEADS])))
    caller.start()
    caller.join(30)
    try:
        assert not caller.is_alive()
        assert (found[0].status, texts(found[0])) == ("timeout", [HELPS, MISLEADS])
        # Which of the two threads sees the end of the budget first is up to the machine.
        assert blocks.health().causes.keys() <= {"too_slow", "thread"}
    finally:
        release.set()
    assert_the_guards_of_this_process_work()


async def test_time_in_the_guards_own_queue_is_no_failure_of_the_engine(monkeypatch):
    monkeypatch.setattr("ragguard.guard.judge.AT_ONCE", 2)
    engine = ScriptedEngine(label=says)
    engine.gate = asyncio.Event()
    crowded = guard(engine, budget_ms=80, pause_after=3, pause_s=60)
    decisions = await asyncio.gather(*(crowded.aprune(f"q{n}", [HELPS, MISLEADS]) for n in range(12)))
    assert {decision.status for decision in decisions} == {"timeout"}
    engine.gate.set()
    crowded.budget_ms = 20_000
    assert texts(await crowded.aprune("q", [HELPS, MISLEADS])) == [HELPS]
    causes = crowded.health().causes
    assert causes["queued"] >= 10
    assert "CircuitOpen" not in causes
    assert any("own queue" in decision.reason for decision in decisions)


async def test_calls_that_failed_together_are_one_miss(monkeypatch):
    """Else one moment of silence stops a guard that many callers share."""
    engine = ScriptedEngine(label=says, gate=asyncio.Event())
    shared = guard(engine, budget_ms=80, pause_after=3, pause_s=60)
    await asyncio.gather(*(shared.aprune(f"q{n}", [HELPS, MISLEADS]) for n in range(12)))
    engine.gate.set()
    shared.budget_ms = 20_000
    assert texts(await shared.aprune("q", [HELPS, MISLEADS])) == [HELPS]


async def test_passages_that_no_model_takes_do_not_open_the_circuit():
    long = "far too long"
    engine = ScriptedEngine(
        label=says,
        fault=lambda call: PromptTooLong("4096 tokens") if any(long in text for text in call.texts) else None,
    )
    shared = guard(engine, pause_after=2, pause_s=60)
    for n in range(5):
        assert (await shared.aprune(f"q{n}", [long, f"{long}, too"])).status == "error"
    assert texts(await shared.aprune("q", [HELPS, MISLEADS])) == [HELPS]


async def test_an_answer_that_comes_too_late_is_not_taken_for_the_next_call():
    class Slow(ScriptedEngine):
        """Answers its first call late, although it is cancelled, and wrongly."""

        first = True

        async def label_probs(self, *args, **kwargs):
            if self.first:
                self.first = False
                with pytest.raises(asyncio.CancelledError):
                    await asyncio.sleep(30)
                self.label = lambda text, label: 0.5
            answer = await super().label_probs(*args, **kwargs)
            self.label = says
            return answer

    engine = Slow(label=says)
    watching = guard(engine, budget_ms=20_000)
    await watching.aprune("warm up", [HELPS])
    watching.budget_ms = 30
    assert (await watching.aprune("first", [HELPS, MISLEADS])).status == "timeout"
    watching.budget_ms = 20_000
    assert texts(await watching.aprune("second", [HELPS, MISLEADS])) == [HELPS]
    assert texts(await watching.aprune("third", [MISLEADS, HELPS])) == [HELPS]


def prune_in_child(answers, watching):
    answers.put(texts(watching.prune("in the child", [HELPS, MISLEADS])))


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_process_prunes_with_its_parents_guard():
    watching = guard(policies=[*guard().policies, NoCopies()])
    assert texts(watching.prune("in the parent", [HELPS, MISLEADS])) == [HELPS]
    fork = multiprocessing.get_context("fork")
    answers = fork.Queue()
    child = fork.Process(target=prune_in_child, args=(answers, watching))
    child.start()
    try:
        assert answers.get(timeout=60) == [HELPS]
    finally:
        child.join(30)
        child.kill()


async def test_hundreds_of_callers_on_one_loop_lose_nothing_and_keep_the_order():
    shared = guard(budget_ms=200, min_keep=2)
    given = [[f"{HELPS} {n}", f"{MISLEADS} {n}", f"{HELPS} again {n}", ""] for n in range(500)]
    decisions = await asyncio.gather(*(shared.aprune(f"q{n}", one) for n, one in enumerate(given)))
    assert_whole(given, decisions)
    assert "CircuitOpen" not in shared.health().causes
    assert shared.health().decisions == 500


def assert_whole(given, decisions):
    for one, decision in zip(given, decisions, strict=True):
        gone = {drop.position for drop in decision.dropped}
        assert texts(decision) == [text for place, text in enumerate(one, 1) if place not in gone]
        assert len([text for text in texts(decision) if text]) >= 2
        assert decision.status in ("pruned", "timeout"), decision.reason


def test_a_copy_shares_the_guard_and_a_pickle_says_what_to_do():
    watching = guard()
    assert copy.deepcopy({"guard": watching})["guard"] is watching
    with pytest.raises(TypeError, match="Make one in each process"):
        pickle.dumps(watching)

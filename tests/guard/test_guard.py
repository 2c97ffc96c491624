"""The guard: what it drops, when it keeps everything, and that it is always on time."""

import asyncio
import gc
import math
from contextlib import suppress
from types import SimpleNamespace

import pytest
from support.guards import HELPS, IDLE, MISLEADS, NoCopies, guard, says, texts
from support.scripted_engine import ScriptedEngine

from ragguard.errors import CalibrationError, EngineRejected, InvalidInput, PromptTooLong
from ragguard.guard import DistractorGuard, Example, TopUtility, UtilityThreshold
from ragguard.records import Passage


def engine(**settings):
    return ScriptedEngine(label=says, **settings)


async def test_guard_drops_misleading_passages_and_keeps_the_order():
    decision = await guard().aprune("who founded it?", [IDLE, MISLEADS, HELPS])
    assert texts(decision) == [IDLE, HELPS]
    assert decision.status == "pruned"
    (dropped,) = decision.dropped
    assert (dropped.passage.text, dropped.position) == (MISLEADS, 2)
    assert dropped.utility == pytest.approx((2 * 0.1 - 1) * 0.95)
    assert (dropped.p_abstain, dropped.p_relevant) == (pytest.approx(0.05), pytest.approx(0.1))
    assert "utility" in dropped.reason
    assert decision.elapsed_ms > 0
    assert decision.started_ns > 0


async def test_one_batch_judges_everything_ahead_of_the_scorer():
    model = engine()
    await guard(model).aprune("q", [HELPS, MISLEADS, IDLE])
    assert len(model.calls) == 1
    assert len(model.calls[0].prompts) == 6
    assert model.calls[0].priority < 0


async def test_a_judge_of_its_own_is_asked_at_the_same_time():
    reader, judge = engine(), engine(model="judge")
    decision = await guard(reader, judge=judge).aprune("q", [HELPS, MISLEADS])
    assert texts(decision) == [HELPS]
    assert [call.labels for call in reader.calls] == [("NO-RESPONSE",)]
    assert [call.labels for call in judge.calls] == [("A", "B")]


async def test_min_keep_keeps_the_least_harmful_in_order():
    worse = "Carl Dahl founded it in Rome. Surely."
    model = ScriptedEngine(label=lambda t, x: 0.5 if x == "NO-RESPONSE" and "Surely" not in t else says(t, x))
    decision = await guard(model, min_keep=1).aprune("q", [worse, MISLEADS])
    assert texts(decision) == [MISLEADS]
    decision = await guard(model, min_keep=0).aprune("q", [worse, MISLEADS])
    assert texts(decision) == []


@pytest.mark.parametrize(("passages", "min_keep"), [([], 1), ([MISLEADS], 1), ([MISLEADS] * 3, 9)])
async def test_where_nothing_can_go_nothing_is_asked(passages, min_keep):
    model = engine()
    decision = await guard(model, min_keep=min_keep).aprune("q", passages)
    reasons = {
        1: "not judged: min_keep 1 keeps 1 passage anyway",
        3: "not judged: min_keep 9 keeps 3 passages anyway",
    }
    assert decision.reason == reasons.get(len(passages), "no passages")
    assert (decision.status, texts(decision), model.calls) == ("kept_all", passages, [])


async def test_policies_apply_in_order():
    model = engine()
    policies = (NoCopies(), UtilityThreshold(-0.2), TopUtility(1))
    decision = await guard(model, policies=policies).aprune("q", [HELPS, MISLEADS, HELPS, IDLE])
    assert texts(decision) == [HELPS]
    assert [drop.reason.split()[0] for drop in decision.dropped] == ["utility", "a", "not"]


async def test_without_a_utility_policy_no_model_is_asked():
    model = engine()
    decision = await guard(model, policies=[NoCopies()]).aprune("q", [HELPS, HELPS, IDLE])
    assert (texts(decision), model.calls) == ([HELPS, IDLE], [])


async def test_late_means_everything_is_kept_on_time():
    model = engine(gate=asyncio.Event())
    decision = await guard(model, budget_ms=50).aprune("q", [HELPS, MISLEADS])  # the engine never answers
    assert (decision.status, texts(decision)) == ("timeout", [HELPS, MISLEADS])
    assert "50 ms" in decision.reason


async def test_an_engine_that_ignores_cancellation_is_not_waited_for():
    decided = asyncio.Event()

    class Stubborn(ScriptedEngine):
        async def label_probs(self, *args, **kwargs):
            while not decided.is_set():
                with suppress(asyncio.CancelledError):
                    await decided.wait()
            raise EngineRejected("never mind")

    decision = await guard(Stubborn(), budget_ms=50).aprune("q", [HELPS, MISLEADS])
    assert decision.status == "timeout"
    decided.set()


async def test_no_budget_means_no_question():
    model = engine()
    hurried = guard(model, budget_ms=1e-6, pause_after=2)
    for _ in range(4):  # never asked, the engine has missed nothing
        decision = await hurried.aprune("q", [HELPS, MISLEADS])
        assert (decision.status, len(decision.kept), model.calls) == ("timeout", 2, [])


async def test_a_call_that_the_engine_broke_off_is_no_timeout():
    class Ending(ScriptedEngine):
        async def label_probs(self, *args, **kwargs):
            raise asyncio.CancelledError

    decision = await guard(Ending()).aprune("q", [HELPS, MISLEADS])
    assert (decision.status, len(decision.kept)) == ("error", 2)
    assert "cancelled the call" in decision.reason


async def test_a_dead_engine_is_not_asked_again_until_a_pause_is_over(breaker_clock):
    faulty = True
    model = engine(fault=lambda call: EngineRejected("down") if faulty else None)
    watching = guard(model, pause_after=3, pause_s=30)
    for _ in range(3):
        assert (await watching.aprune("q", [HELPS, MISLEADS])).status == "error"
    model.calls.clear()
    for _ in range(3):
        assert (await watching.aprune("q", [HELPS, MISLEADS])).status == "error"
    assert model.calls == []
    faulty = False
    assert (await watching.aprune("q", [HELPS, MISLEADS])).status == "error"
    breaker_clock.now += 31
    assert (await watching.aprune("q", [HELPS, MISLEADS])).status == "pruned"
    assert len(model.calls) == 1


async def test_a_cancelled_caller_stays_cancelled():
    model = engine(gate=asyncio.Event())
    task = asyncio.create_task(guard(model).aprune("q", [HELPS, MISLEADS]))
    while not model.running:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await model.until_running(0)


@pytest.mark.parametrize(
    ("settings", "status"),
    [
        ({}, "pruned"),
        ({"gate": asyncio.Event()}, "timeout"),
        ({"fault": lambda call: EngineRejected("no")}, "error"),
    ],
)
async def test_nothing_is_left_for_the_garbage_collector(settings, status):
    """Its pauses stop every guard of the process, and what stands in a circle waits for it."""
    model = engine(**settings)
    watching = guard(model, budget_ms=30 if status == "timeout" else 5000, pause_after=100)
    gc.collect()
    gc.freeze()  # what other tests have left alive may end meanwhile: it is not this guard's
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        assert (await watching.aprune("q", [HELPS, MISLEADS])).status == status
        while model.running:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        gc.collect()
        left = {type(one).__qualname__ for one in gc.garbage if type(one).__module__.startswith("ragguard")}
    finally:
        gc.set_debug(0)
        gc.unfreeze()
        gc.garbage.clear()
    assert left == set()


@pytest.mark.parametrize(
    ("most", "said"), [(8000, "UtilityThreshold"), (3000, "1 of 3 could not be judged: too long")]
)
async def test_a_passage_that_is_too_long_is_judged_by_its_beginning_or_kept_and_the_others_are_judged(
    most, said
):
    def fault(call):
        return PromptTooLong("too long", limit=4096) if any(len(text) > most for text in call.texts) else None

    long = f"{HELPS} {'And so on. ' * 2000}"
    decision = await guard(engine(fault=fault)).aprune("q", [IDLE, long, MISLEADS])
    assert texts(decision) == [IDLE, long]
    assert [drop.passage.text for drop in decision.dropped] == [MISLEADS]
    assert said in decision.reason
    assert ("could not be judged" in decision.reason) == (most < 4000)


async def test_passages_that_are_all_too_long_are_an_error_and_asked_no_further():
    model = engine(fault=lambda call: PromptTooLong("too long", limit=3))
    decision = await guard(model).aprune("q", [HELPS, MISLEADS])
    assert (decision.status, len(decision.kept)) == ("error", 2)
    assert len(model.calls) <= 12


async def test_passages_come_in_each_form_that_captures_take():
    given = [
        {"text": IDLE},
        {"page_content": MISLEADS},
        (HELPS, 0.5),
        SimpleNamespace(text=HELPS),
        ({"content": IDLE}, 1),
    ]
    decision = await guard(engine()).aprune("q", given)
    assert texts(decision) == [IDLE, HELPS, HELPS, IDLE]
    assert decision.of(given) == [given[0], *given[2:]]


@pytest.mark.parametrize(
    "passages", [None, 5, "one text", Passage("one"), [None], [{"source": "a"}], [Passage(None)]]
)
async def test_argument_that_is_no_list_of_passages_is_refused(passages):
    model = engine()
    with pytest.raises(InvalidInput, match="a list of Passage"):
        await guard(model).aprune("q", passages)
    assert model.calls == []


@pytest.mark.parametrize(
    ("query", "status", "reason"),
    [
        *((blank, "kept_all", "no query") for blank in ("", "  \n")),
        (None, "error", "the query is no text but of type NoneType"),
    ],
)
async def test_without_a_query_nothing_is_asked_and_all_stays(query, status, reason):
    model = engine()
    decision = await guard(model).aprune(query, [HELPS, MISLEADS])
    assert (decision.status, len(decision.kept), decision.reason, model.calls) == (status, 2, reason, [])


async def test_a_closed_engine_keeps_everything_and_closing_twice_is_nothing():
    watching = guard()
    await watching.aclose()
    await watching.aclose()
    decision = await watching.aprune("q", [HELPS, MISLEADS])
    assert (decision.status, len(decision.kept)) == ("error", 2)
    assert "closed" in decision.reason


async def test_passages_without_a_text_are_kept_not_judged_and_said():
    model = engine()
    watching = guard(model, policies=[UtilityThreshold(-0.2), NoCopies()])
    decision = await watching.aprune("q", ["", MISLEADS, " \n", HELPS])
    assert texts(decision) == ["", " \n", HELPS]
    assert [drop.position for drop in decision.dropped] == [2]
    assert "2 without text not judged" in decision.reason
    assert len(model.calls[0].prompts) == 4
    assert (await watching.aprune("q", ["", " "])).reason == "no passage has a text"


@pytest.mark.parametrize(
    "settings",
    [
        {"threshold": 1.5},
        {"threshold": math.nan},
        {"budget_ms": 0},
        {"budget_ms": -1},
        {"budget_ms": math.nan},
        {"budget_ms": True},
        {"budget_ms": math.inf},
        {"budget_ms": None},
        {"min_keep": -1},
        {"min_keep": 1.5},
        {"pause_after": 0},
        {"pause_s": -1},
        {"policies": ["drop them all"]},
    ],
)
def test_settings_that_cannot_be_right_are_refused_at_once(settings):
    with pytest.raises(InvalidInput, match="allowed"):
        DistractorGuard(engine(), **settings)


def examples(n):
    return [Example(f"q{i}", [Passage(HELPS), Passage(MISLEADS), Passage(IDLE)], [1, 0, 0]) for i in range(n)]


def test_calibration_sets_the_threshold_and_can_be_carried_over(tmp_path):
    watching = guard(threshold=-1)
    assert watching.prune("q", [HELPS, MISLEADS]).status == "kept_all"
    found = watching.calibrate(examples(30), max_gold_loss=0.05)
    assert (found.examples, found.gold_loss, found.distractors_dropped) == (30, 0.0, 1.0)
    assert texts(watching.prune("q", [HELPS, MISLEADS])) == [HELPS]
    found.save(tmp_path / "found.json")
    other = guard(threshold=-1)
    other.use(tmp_path / "found.json")
    assert texts(other.prune("q", [HELPS, MISLEADS])) == [HELPS]


def test_a_calibration_of_another_engine_is_refused():
    found = guard().calibrate(examples(30))
    with pytest.raises(CalibrationError, match="other-model"):
        guard(engine(model="other-model")).use(found)
    with pytest.raises(CalibrationError, match="min_keep"):
        guard(min_keep=2).use(found)


@pytest.mark.parametrize(
    ("promise", "what"),
    [
        ({}, "at least 19"),
        ({"max_gold_loss": 5}, "max_gold_loss: got 5"),
    ],
)
def test_impossible_promise_is_refused_before_the_models_are_asked(promise, what):
    model = engine()
    with pytest.raises((CalibrationError, InvalidInput), match=what):
        guard(model).calibrate(examples(18), **promise)
    assert model.calls == []

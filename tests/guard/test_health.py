"""What a guard says of itself when it cannot judge: at once, with the cause, and in numbers."""

from __future__ import annotations

import random
import socket

import pytest
from support.scripted_engine import ScriptedEngine

from ragguard import DistractorGuard
from ragguard.errors import BudgetExceeded, EngineOverloaded, EngineRejected, InvalidInput
from ragguard.guard.health import DecisionCounts
from ragguard.metrics.conformal import LossWatch
from ragguard.records import Decision, Dropped, Passage

PASSAGES = ["Ada Berg founded it in Oslo.", "Carl Dahl founded it in Rome."]


@pytest.fixture
def nowhere():
    """The address of a port on which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}/v1"


def warnings(caplog):
    return [record.message for record in caplog.records if "kept passages unjudged" in record.message]


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_an_unreachable_engine_is_said_at_once_with_its_cause(nowhere, caplog, mode):
    watching = DistractorGuard(nowhere, budget_ms=2000)
    for _ in range(2):
        decision = watching.prune("q", PASSAGES) if mode == "sync" else await watching.aprune("q", PASSAGES)
        assert decision.status == "error"
        assert "connection refused" in decision.reason
        assert nowhere in decision.reason
        assert [passage.text for passage in decision.kept] == PASSAGES
    (said,) = warnings(caplog)
    assert "connection refused" in said
    found = watching.health()
    assert (found.decisions, found.statuses, found.causes) == (2, {"error": 2}, {"EngineUnreachable": 2})
    assert "connection refused" in found.reasons["EngineUnreachable"]
    assert not found.ok


@pytest.mark.parametrize(
    "error",
    [
        EngineOverloaded("busy"),
        EngineRejected("no such model"),
        BudgetExceeded("not sent: 500 tokens of 400"),
        ZeroDivisionError("a bug"),
        OSError("gone"),
    ],
)
async def test_error_is_counted_under_its_type_and_said(error, caplog):
    watching = DistractorGuard(ScriptedEngine(fault=lambda call: error), budget_ms=300)
    decision = await watching.aprune("q", PASSAGES)
    assert (decision.status, len(decision.kept)) == ("error", 2)
    assert str(error) in decision.reason
    assert watching.health().causes == {type(error).__name__: 1}
    assert len(warnings(caplog)) == 1


async def test_a_judge_that_names_no_label_is_said(caplog):
    chatty = ScriptedEngine(label=lambda text, label: 0.05)
    watching = DistractorGuard(chatty, budget_ms=20_000)
    decision = await watching.aprune("q", PASSAGES)
    assert "2 of 2 could not be judged" in decision.reason
    assert watching.health().causes == {"unclear": 1}
    assert len(warnings(caplog)) == 1


async def test_a_guard_that_judges_says_nothing(caplog):
    watching = DistractorGuard(ScriptedEngine(label=lambda text, label: 0.5), budget_ms=20_000)
    await watching.aprune("q", PASSAGES)
    found = watching.health()
    assert (found.ok, found.decisions, found.causes) == (True, 1, {})
    assert caplog.records == []


def decided(*dropped, shadow=False):
    """A decision about four passages that drops those at some places, or would."""
    drops = [Dropped(Passage(""), place, "utility", -0.5) for place in dropped]
    kept = [Passage("")] * (4 if shadow else 4 - len(drops))
    return Decision(
        kept,
        [] if shadow else drops,
        "shadow" if shadow else "pruned",
        1.0,
        would_drop=drops if shadow else [],
    )


def watched(losing, decisions=400):
    """The health of a guard that drops the only gold in a share of labelled decisions, half of them in shadow."""
    rng, counts = random.Random(0), DecisionCounts()
    counts.promise(0.05)
    for at in range(decisions):
        place = 1 if rng.random() < losing else 2
        counts.note(decided(place, shadow=at % 2 == 0), [True, False, False, False], None)
    return counts.snapshot()


def test_a_promise_that_holds_stays_and_one_that_broke_is_said(caplog):
    held = watched(0.04)
    assert (held.promise.labelled, held.promise.broken, held.ok) == (400, False, True)
    assert held.promise.gold_loss == pytest.approx(0.04, abs=0.03)
    assert not caplog.records
    broken = watched(0.15)
    assert (broken.promise.broken, broken.ok) == (True, False)
    assert [
        "drops more gold than its calibration promised" in record.message for record in caplog.records
    ] == [True]


def test_a_promise_that_just_holds_is_called_broken_in_at_most_one_of_twenty_however_often_one_looks():
    rng, alarms = random.Random(1), 0
    for _ in range(400):
        watch = LossWatch(0.05)
        for _ in range(500):
            watch.add(float(rng.random() < 0.05))
        alarms += watch.is_broken
    assert alarms <= 20 + 2 * 4.4


async def test_labels_and_thumbs_are_taken_of_a_decision():
    watching = DistractorGuard(ScriptedEngine(label=lambda text, label: 0.5), budget_ms=20_000)
    decision = await watching.aprune("q", PASSAGES)
    watching.note(decision, thumb="down")
    watching.note(decision, gold=[True, False])
    found = watching.health()
    assert (found.thumbs, found.promise) == ({"kept": {"down": 1}}, None)
    for wrong in ({"gold": [True]}, {"thumb": "sideways"}):
        with pytest.raises(InvalidInput, match=next(iter(wrong))):
            watching.note(decision, **wrong)


async def test_a_share_of_calls_in_shadow_drops_nothing():
    label = {"NO-RESPONSE": 0.0, "A": 0.0, "B": 1.0}
    watching = DistractorGuard(
        ScriptedEngine(label=lambda text, label_: label[label_]), budget_ms=20_000, shadow=0.5
    )
    statuses = [(await watching.aprune(f"q {at}", PASSAGES)).status for at in range(40)]
    assert set(statuses) == {"shadow", "pruned"}

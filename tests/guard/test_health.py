"""What a guard says of itself when it cannot judge: at once, with the cause, and in numbers."""

from __future__ import annotations

import socket

import pytest
from support.scripted_engine import ScriptedEngine

from ragguard import DistractorGuard
from ragguard.errors import BudgetExceeded, EngineOverloaded

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
    [EngineOverloaded("busy"), BudgetExceeded("not sent: 500 tokens of 400"), ZeroDivisionError("a bug")],
)
async def test_error_is_counted_under_its_type_and_said(error, caplog):
    watching = DistractorGuard(ScriptedEngine(fault=lambda call: error), budget_ms=300)
    decision = await watching.aprune("q", PASSAGES)
    assert decision.status == "error"
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

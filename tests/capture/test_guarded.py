"""A guard's decision goes to the retrievals that found what it judged."""

from __future__ import annotations

import pytest

from ragguard.capture.decisions import Verdict
from ragguard.capture.events import RunEnded
from ragguard.capture.pipeline_run import TOOL_CALL, guard_decided
from ragguard.capture.recorder import Recorder
from ragguard.records import Decision, Dropped, Passage

A, B, C = (
    Passage("Hagblad is a judge.", "a"),
    Passage("Hagblad was born in Ashwick.", "b"),
    Passage("No.", "c"),
)


@pytest.fixture
def recorder(captured):
    recorder = Recorder(captured)
    recorder.run_started("run", "Where?")
    return recorder


def retrieve(recorder, id, *passages, query="Where?", call=""):
    recorder.step_started(id, "run", query, metadata={TOOL_CALL: call} if call else None)
    recorder.step_ended(id, list(passages))


def dropping(number, *judged):
    """Returns the verdict of a guard that drops the passage of this number."""
    kept = [one for place, one in enumerate(judged, 1) if place != number]
    return Verdict(
        Decision(kept, [Dropped(judged[number - 1], number, "off topic")], "pruned", 1.0), [*judged]
    )


def drops(captured):
    return {
        step.id: [drop.position for drop in step.decision.dropped]
        for step in captured.run.steps
        if step.decision is not None
    }


@pytest.mark.parametrize(
    ("found", "given", "expected"),
    [
        pytest.param({"old": [A, B], "new": [A, B]}, [A, B], {"new": [2]}, id="the latest of equals"),
        pytest.param({"old": [A, B], "new": [A]}, [A, B], {"old": [2]}, id="the one that found more"),
        pytest.param(
            {"old": [C, B], "new": [A]}, [A, B], {"old": [2], "new": []}, id="both, where neither has all"
        ),
        pytest.param({"old": [C]}, [A, B], {}, id="none, where nothing found them"),
    ],
)
def test_decision_goes_to_as_few_retrievals_as_found_the_passages(recorder, captured, found, given, expected):
    for id, passages in found.items():
        retrieve(recorder, id, *passages)
    assert guard_decided(recorder, "run", dropping(2, *given)) is bool(expected)
    recorder.run_ended(RunEnded("run"))
    assert drops(captured) == expected


def test_decision_on_a_tool_calls_result_goes_to_a_retrieval_of_that_call(recorder, captured):
    retrieve(recorder, "first", A, B, call="1")
    retrieve(recorder, "second", A, B, call="2")
    assert guard_decided(recorder, "run", dropping(1, A, B), tool_call="1")
    assert not guard_decided(recorder, "run", dropping(1, A, B), tool_call="3")
    recorder.run_ended(RunEnded("run"))
    assert drops(captured) == {"first": [1]}


def test_decisions_of_two_guards_on_one_retrieval_are_one_with_the_drops_of_both(recorder, captured):
    retrieve(recorder, "step", A, B, C)
    guard_decided(recorder, "run", dropping(1, A, B, C))
    guard_decided(recorder, "run", dropping(2, B, C))
    recorder.run_ended(RunEnded("run"))
    assert drops(captured) == {"step": [1, 3]}
    assert captured.run.steps[0].passages == [B]

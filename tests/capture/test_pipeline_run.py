"""The run of a framework's outermost call: begun with a retrieval, joined, continued, ended once."""

from __future__ import annotations

import pytest
from support.captured import Captured

from ragguard.capture.handle import RunHandle
from ragguard.capture.pipeline_run import PipelineRun
from ragguard.capture.recorder import Recorder
from ragguard.records import Passage


@pytest.fixture
def captured() -> Captured:
    return Captured()


@pytest.fixture
def recorder(captured) -> Recorder:
    return Recorder(captured)


def retrieves(run: PipelineRun) -> None:
    run.begin("hop")
    run.recorder.step_started(f"{run.id} step", run.id, "hop")
    run.recorder.step_ended(f"{run.id} step", [Passage("a")])


def test_run_that_retrieves_nothing_is_not_recorded(recorder, captured):
    PipelineRun(recorder, "a").end("an answer")
    assert captured.events == []


def test_run_ends_once_with_the_query_in_place_of_an_unknown_question(recorder, captured):
    run = PipelineRun(recorder, "a")
    retrieves(run)
    run.end("an answer")
    run.end("another one")
    assert (captured.run.question, captured.run.answer, len(captured.run.steps)) == ("hop", "an answer", 1)


def test_id_that_is_given_twice_names_two_runs(recorder, captured):
    for id in "ab":
        run = PipelineRun(recorder, id)
        run.identify({"ragguard_run_id": "mine"})
        retrieves(run)
        run.end("an answer")
    assert [run.id for run in captured.runs] == ["a", "b"]
    assert {run.metadata["ragguard.caller_id"] for run in captured.runs} == {"mine"}


def test_run_of_the_user_is_joined_and_gets_the_answer(recorder, captured):
    with RunHandle(recorder, "who?") as handle:
        run = PipelineRun(recorder, "a")
        run.identify({})
        retrieves(run)
        run.end("an answer", "error", ValueError("noted by the user's own block"))
    assert (captured.run.id, captured.run.status, captured.run.answer) == (handle.id, "ok", "an answer")


def test_cancelled_run_that_waits_for_a_person_is_interrupted(recorder, captured):
    run = PipelineRun(recorder, "a")
    retrieves(run)
    run.waits = True
    run.end(None, "cancelled")
    assert captured.run.status == "interrupted"


def test_references_that_cannot_be_right_cost_only_themselves(recorder):
    run = PipelineRun(recorder, "a")
    run.refer(12, "metadata")
    assert (run.references, recorder.faults.count) == (None, 1)

"""A step id names one step of a run: another step that asks for it gets an id of its own, and nothing is lost."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.program import run_program

from ragguard import Passage, RagGuard, RetrievalStep, Run
from ragguard.capture import given_ids
from ragguard.capture.events import RunEnded, RunIdentity, RunStarted, StepEnded
from ragguard.storage.sqlite.store import Store

ASKED = "ragguard.asked_id"


@pytest.fixture
def make(tmp_path):
    made = []

    def guard(**more):
        made.append(RagGuard("nano", **{"store": tmp_path / "s.db", "scorers": (), **more}))
        return made[-1]

    yield guard
    for one in made:
        one.close(2.0)


def steps(rg, run_id):
    """The index, the query and the id that was asked for of each stored step, in order."""
    assert rg.flush(30)
    run = rg.store.run(run_id)
    assert len({step.id for step in run.steps}) == len(run.steps)
    return [(step.index, step.query, step.metadata.get(ASKED, step.id.split("~")[0])) for step in run.steps]


@pytest.mark.parametrize("store", [None, "s.db"])
def test_an_id_given_twice_in_a_run_is_two_steps_and_said_once(make, tmp_path, caplog, store):
    rg = make(store=store and tmp_path / store)
    with rg.run("q", id="r") as run:
        given = [run.retrieved(query, [query], id="call_1") for query in ("one", "two")]
    assert steps(rg, "r") == [(0, "one", "call_1"), (1, "two", "call_1")]
    assert given == [step.id for step in rg.store.run("r").steps] == [step.id for step in run.steps]
    assert given[0] == "call_1" != given[1]
    assert caplog.text.count("the step id 'call_1' is that of another step of run 'r'") == 1
    assert f"recorded as {given[1]!r}" in caplog.text


def test_an_id_that_capture_has_forgotten_is_found_by_the_store(make, monkeypatch, caplog):
    monkeypatch.setattr(given_ids, "IDS_KEPT", 1)
    monkeypatch.setattr("ragguard.capture.open_runs.ENDED_KEPT", 1)
    rg = make()
    with rg.run("q", id="r") as run:
        for query, id in [("one", "a"), ("two", "b"), ("three", "a")]:
            run.retrieved(query, [query], id=id)
    assert steps(rg, "r") == [(0, "one", "a"), (1, "two", "b"), (2, "three", "a")]
    assert "the step id 'a' is that of another step" in caplog.text


def test_two_runs_use_an_id_at_the_same_time(make):
    rg = make()

    class Passages:
        """A retriever's result, during whose reading the other run retrieves."""

        def __iter__(self):
            other.retrieved("two", ["second"], id="step-1")
            return iter(["first"])

    with rg.run("q", id="x") as one, rg.run("q", id="y") as other:
        one.retrieved("one", Passages(), id="step-1")
    assert rg.flush(30)
    found = {run.id: [(s.id, s.query, s.passages[0].text) for s in run.steps] for run in rg.runs()}
    assert found == {"x": [("step-1", "one", "first")], "y": [("step-1", "two", "second")]}


PART = """
import sys
from ragguard import RagGuard
rg = RagGuard("nano", store=sys.argv[1], scorers=())
with rg.run("the conversation", id="conv", resume=True) as run:
    run.retrieved("founder?", ["a"], id="step-1")
    run.retrieved("town?", ["b"], id="step-2")
assert rg.flush(30)
rg.close()
"""


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_resumed_run_whose_parts_number_their_own_steps_keeps_them_all(make, tmp_path, caplog, elsewhere):
    if elsewhere:
        assert run_program(PART, tmp_path / "s.db").returncode == 0
    rg = make()
    for first, second in [("founder?", "town?"), ("price?", "date?"), ("how?", "why?")][elsewhere:]:
        with rg.run("the conversation", id="conv", resume=True) as run:
            run.retrieved(first, [first], id="step-1")
            run.retrieved(second, [second], id="step-2")
    assert steps(rg, "conv") == [
        (0, "founder?", "step-1"), (1, "town?", "step-2"), (2, "price?", "step-1"), (3, "date?", "step-2"),
        (4, "how?", "step-1"), (5, "why?", "step-2"),
    ]  # fmt: skip
    assert "the step id 'step-1' is that of another step of run 'conv'" in caplog.text


def test_amendment_changes_the_step_of_its_own_part(make):
    rg = make()
    with rg.run("q", id="conv") as run:
        run.retrieved("one", ["a"], id="step-1")
    with rg.run(id="conv", resume=True) as run:
        run.retrieved("two", ["b"], id="step-1")
        rg.recorder.step_amended("step-1", run.key, error="the tool failed")
    assert steps(rg, "conv") == [(0, "one", "step-1"), (1, "two", "step-1")]
    assert [step.status for step in rg.store.run("conv").steps] == ["ok", "error"]


def part(begun, *queries):
    """The events of one part of the run `conv`, whose steps are numbered from 1."""
    made = [
        RetrievalStep(
            f"step-{n}", "conv", n - 1, n - 1, query=query, passages=[Passage(query)],
            candidates=[Passage(query)], started_ns=begun + n, ended_ns=begun + n + 1, status="ok",
        )
        for n, query in enumerate(queries, 1)
    ]  # fmt: skip
    start = RunStarted(Run("conv", "q", status="open", started_ns=begun), RunIdentity("conv", resumes=True))
    return [start, *(StepEnded(replace(step)) for step in made), RunEnded("conv", ended_ns=begun + 50)]


@pytest.mark.parametrize("apart", [False, True])
def test_writing_the_same_steps_again_changes_nothing(tmp_path, apart, caplog):
    store = Store(tmp_path / "s.db")
    batches = [part(100, "one", "two"), part(200, "three")]
    for events in batches if apart else [[*batches[0], *batches[1]]]:
        for _ in range(3):
            store.record(list(events))
    run = store.run("conv")
    assert [step.query for step in run.steps] == ["one", "two", "three"]
    assert [step.id for step in run.steps] == ["step-1", "step-2", "step-1~201"]
    assert caplog.text.count("the step id") == 1
    store.close()

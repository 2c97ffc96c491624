"""A run that is deleted while it is open stays deleted, whatever is captured in it later."""

from __future__ import annotations

import pytest

from ragguard import RagGuard
from ragguard.capture.events import RunEnded, RunStarted, StepEnded
from ragguard.records import Passage, RetrievalStep, Run
from ragguard.runtime.faults import NOTICES
from ragguard.storage.sqlite.store import Store


@pytest.fixture(autouse=True)
def _said_anew():
    NOTICES.forget()


@pytest.mark.parametrize("store", [None, "s.db"])
@pytest.mark.parametrize("id", ["", "PERSON's run"])
def test_nothing_of_it_comes_back(tmp_path, caplog, store, id):
    with RagGuard("nano", store=store and tmp_path / store, scorers=["utility"]) as rg:
        with rg.run("Where does PERSON live?", id=id, metadata={"user": "PERSON"}) as run:
            run.retrieved("address of PERSON", ["PERSON lives in Oslo."])
            assert rg.delete(run)
            run.retrieved("PERSON again", ["PERSON lives in Bergen."])
            run.retrieved("PERSON again", ["PERSON lives in Bergen."])
            run.answered("PERSON lives in Oslo")
        report = rg.flush(30)
        assert [*rg.runs()] == []
        assert report.events_of_deleted_runs == 2
        assert "2 events of deleted runs are not stored" in str(report)
        assert caplog.text.count("a run was deleted while it was open") == 1
        assert not rg.delete(run)
    assert not any(b"PERSON" in path.read_bytes() for path in tmp_path.iterdir())


def test_a_new_run_may_have_its_id(tmp_path):
    with RagGuard("nano", store=tmp_path / "s.db", scorers=()) as rg:
        with rg.run("first", id="r"):
            assert rg.delete("r")
        with rg.run("second", id="r") as run:
            run.retrieved("q", ["x"])
        assert rg.flush(30)
        assert [(run.question, len(run.steps)) for run in rg.runs()] == [("second", 1)]


def test_another_process_deletes_it(tmp_path):
    def a_step(id):
        return StepEnded(RetrievalStep(id, "r", 0, 0, query="q", passages=[Passage("x")], status="ok"), "r")

    owner, other = Store(tmp_path / "s.db"), Store(tmp_path / "s.db")
    owner.record([RunStarted(Run("r", "PERSON?", status="open")), a_step("one")])
    assert other.delete("r")
    owner.record([a_step("two")])
    owner.record([RunEnded("r", question="PERSON?")])
    assert (owner.run_count(), owner.counts["events_of_deleted"]) == (0, 1)
    owner.close()
    other.close()


def test_of_a_run_that_had_ended_nothing_is_noted(tmp_path):
    with RagGuard("nano", store=tmp_path / "s.db", scorers=()) as rg:
        with rg.run("q") as run:
            run.retrieved("q", ["x"])
        assert rg.delete(run)
        assert rg.flush(30).events_of_deleted_runs == 0

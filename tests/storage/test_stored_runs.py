"""Runs that begin in one transaction, and a run that is deleted."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from support.runs import a_run, as_events

from ragguard import RagGuard
from ragguard.capture.events import RunEnded, RunStarted, StepAmended, StepEnded
from ragguard.errors import StoreError
from ragguard.records import Passage, RetrievalStep, Run
from ragguard.storage.sqlite.store import Store


def whole(run_id="r"):
    return as_events(a_run(run_id))


def several():
    """Two runs whose events are mixed; one has a pool, references and a late step, the other stays open."""
    shared = Passage("shared", id="p", score=0.5, metadata={"page": 1})
    return [
        RunStarted(Run("a", "who?", status="open", metadata={"kind": "one"}, pool=[shared], started_ns=1)),
        RunStarted(Run("b", "", status="open", started_ns=2)),
        StepEnded(RetrievalStep("s1", "a", 0, 0, "hop", [shared], [shared])),
        StepEnded(RetrievalStep("s1", "a", 0, 0, "hop", [shared], [shared])),
        StepEnded(RetrievalStep("s1", "b", 0, 0, "hop", [Passage("other")], [Passage("other")])),
        RunEnded("a", "ok", "Ada", "", ["Ada"], ["who?"], [shared, Passage("third")], 9, {"more": True}),
        StepAmended("b", "s1", [Passage("cut")], metadata={"cut": 1}),
        StepEnded(RetrievalStep("s2", "a", 1, 1, "late", [shared], [shared])),
        RunEnded("unannounced", "ok", None, "what?", ended_ns=10),
    ]


@pytest.mark.parametrize("events", [whole, several], ids=["whole", "several"])
@pytest.mark.parametrize("scored", [True, False])
def test_one_transaction_makes_the_same_records_as_one_for_each_event(tmp_path, events, scored):
    found = []
    for name in ("together", "alone"):
        with closing(Store(tmp_path / f"{name}.db", scored=scored)) as store:
            for batch in [events()] if name == "together" else [[event] for event in events()]:
                store.record(batch)
            runs, due = list(store.runs()), [claim.run.id for claim in store.claim(9)[0]]
        with closing(sqlite3.connect(tmp_path / f"{name}.db")) as db:
            rows = db.execute(
                "SELECT id, body, status, revision, owner IS NULL FROM runs ORDER BY id"
            ).fetchall()
            uses = db.execute("SELECT digest, uses FROM passage_uses ORDER BY digest").fetchall()
        found.append((sorted(runs, key=lambda run: run.id), sorted(due), rows, uses))
    together, alone = found
    for run in [*together[0], *alone[0]]:
        if run.id == "unannounced":
            run.started_ns = 0
    assert together == alone


def test_metadata_that_are_equal_and_not_the_same_stay_as_they_are(tmp_path):
    """1, 1.0 and True are equal in Python. What is known of a text that came before must not stand for another."""
    values = [1, True, 1.0, "1", None, 1]
    with closing(Store(tmp_path / "s.db")) as store:
        for number, value in enumerate(values):
            passages = [Passage("one text", metadata={"value": value})]
            store.record(
                [StepEnded(RetrievalStep("s", f"r{number}", passages=passages, candidates=passages))]
            )
        found = [run.steps[0].passages[0].metadata["value"] for run in store.runs()]
    assert [(type(one), one) for one in found] == [(type(one), one) for one in values]


@pytest.mark.parametrize("path", [None, "s.db"])
def test_run_that_is_open_is_deleted_after_its_end_alone(tmp_path, path):
    with RagGuard("nano", store=path and tmp_path / path, scorers=()) as rg:
        with rg.run("first", id="r") as run:
            run.retrieved("q", ["x"])
            for name in (run, "r"):
                with pytest.raises(StoreError, match="is open"):
                    rg.delete(name)
        assert rg.delete("r")
        assert not rg.delete(run)
        with rg.run("second", id="r") as run:
            run.retrieved("q", ["x"])
        assert rg.flush(30)
        assert [(run.question, len(run.steps)) for run in rg.runs()] == [("second", 1)]

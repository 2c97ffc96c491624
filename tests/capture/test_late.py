"""What comes after the end of its run is not recorded, and that is said once and counted."""

from __future__ import annotations

import pytest

import ragguard
from ragguard import RagGuard
from ragguard.runtime.faults import NOTICES

PASSAGES = ["Ada Berg founded Nordvik."]


@pytest.fixture(autouse=True)
def _said_anew():
    NOTICES.forget()


@pytest.fixture
def rg():
    with RagGuard("nano", store=None, scorers=()) as made:
        yield made


def test_a_retrieval_an_error_and_an_answer_are_counted_and_said_once(rg, caplog):
    with rg.run("Who founded Nordvik?") as run:
        run.retrieved("founder of Nordvik", PASSAGES)
    assert run.retrieved("late", PASSAGES)
    assert run.failed("late", "no answer")
    run.answered("Ada Berg")
    report = rg.flush(30)
    assert (bool(report), report.late, report.lost) == (False, 3, 0)
    assert "3 retrievals or answers came after the end of their runs and are not recorded" in str(report)
    assert caplog.text.count("is not open, so a retrieval that came now is not recorded") == 1
    assert f"rg.run(resume={run.id!r})" in caplog.text
    (stored,) = rg.runs()
    assert (len(stored.steps), stored.answer) == (1, None)


def test_the_way_out_that_is_said_is_one(rg):
    with rg.run("Who founded Nordvik?") as run:
        run.retrieved("founder of Nordvik", PASSAGES)
    with rg.run(resume=run.id) as run:
        run.retrieved("late", PASSAGES)
        run.answered("Ada Berg")
    assert rg.flush(30)
    (stored,) = rg.runs()
    assert (len(stored.steps), stored.answer) == (2, "Ada Berg")


def test_a_retrieval_before_the_run_begins_is_counted_too(rg):
    run = rg.run("Who founded Nordvik?")
    run.retrieved("early", PASSAGES)
    assert rg.flush(30).late == 1


def test_an_answer_after_the_block_counts_while_a_stream_holds_the_run_open(rg):
    with rg.run("Who founded Nordvik?") as run:
        run.retrieved("founder of Nordvik", PASSAGES)
        rg.recorder.run_held(run.id, "a stream")
    run.answered("Ada Berg")
    rg.recorder.run_released(run.id, "a stream")
    assert rg.flush(30)
    assert rg.runs()[0].answer == "Ada Berg"


def test_nothing_is_said_of_a_run_that_is_not_sampled_or_in_a_pause(caplog):
    with RagGuard("nano", store=None, sample_rate=0.0) as rg:
        with rg.run("Who founded Nordvik?") as run:
            pass
        run.retrieved("late", PASSAGES)
        run.answered("Ada Berg")
        assert rg.flush(30).late == 0
    with RagGuard("nano", store=None, scorers=()) as rg:
        with ragguard.paused(), rg.run("Who founded Nordvik?") as run:
            run.retrieved("paused", PASSAGES)
        with ragguard.paused():
            run.retrieved("paused", PASSAGES)
        assert rg.flush(30).late == 0
    assert "is not recorded" not in caplog.text

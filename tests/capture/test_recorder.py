"""The recorder's events for what hooks report, in any order, twice, too late, or for something unknown."""

from __future__ import annotations

import logging
import threading
from itertools import count

import pytest
from support.captured import Captured
from support.clock import Clock

import ragguard
from ragguard import RagGuard
from ragguard.capture.events import Delivered, RunEnded, RunStarted, StepEnded
from ragguard.capture.recorder import Recorder
from ragguard.capture.retrievals import WholeRun
from ragguard.records import Decision, Passage


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def recorder(captured, clock):
    return Recorder(captured, clock=clock, ttl=60, max_open=5)


def kinds(captured):
    return [type(event).__name__ for event in captured.events]


def test_a_run_with_one_step_in_order(recorder, captured):
    assert recorder.run_started("r", "who?", name="n", references=["Ada"], metadata={"a": 1})
    recorder.step_started("s", "r", "hop", tool="search", name="shelf", metadata={"node": "x"})
    recorder.step_ended("s", [Passage("text")], metadata={"more": 2})
    recorder.run_ended(RunEnded("r", answer="Ada", metadata={"b": 2}))
    assert kinds(captured) == ["RunStarted", "StepEnded", "RunEnded"]
    run = captured.run
    assert (run.question, run.name, run.references, run.answer, run.status) == (
        "who?",
        "n",
        ["Ada"],
        "Ada",
        "ok",
    )
    assert run.metadata == {"a": 1, "b": 2}
    (step,) = run.steps
    assert (step.id, step.run_id, step.index, step.turn, step.query) == ("s", "r", 0, 0, "hop")
    assert (step.tool, step.status) == ("search", "ok")
    assert step.metadata == {"node": "x", "more": 2}
    assert step.passages == step.candidates == [Passage("text")]
    assert 0 < run.started_ns <= step.started_ns <= step.ended_ns <= captured.events[-1].ended_ns
    assert (len(recorder.here.runs), len(recorder.here.steps), recorder.faults.count) == (0, 0, 0)


def test_repeated_event_is_recorded_once(recorder, captured):
    for _ in range(2):
        recorder.run_started("r", "who?")
    for _ in range(2):
        recorder.step_started("s", "r", "hop")
    for _ in range(2):
        recorder.step_ended("s", [])
    for _ in range(2):
        recorder.run_ended(RunEnded("r"))
    assert kinds(captured) == ["RunStarted", "StepEnded", "RunEnded"]


def test_parts_stand_inside_their_step_in_the_order_of_their_starts(recorder, captured):
    recorder.run_started("r")
    recorder.step_started("outer", "r", "q")
    recorder.step_started("a", "r", "q1", within="outer", name="left")
    recorder.step_started("b", "r", "q2", within="outer", name="right")
    recorder.step_started("b1", "r", "q3", within="b")
    recorder.step_ended("b1", [Passage("b1")])
    recorder.step_ended("b", [Passage("b")])
    recorder.step_failed("a", ValueError("no"))
    recorder.step_ended("outer", [Passage("b")])
    recorder.run_ended(RunEnded("r"))
    (step,) = captured.run.steps
    assert [(sub.query, sub.name, sub.status, [p.text for p in sub.passages]) for sub in step.sub_steps] == [
        ("q1", "left", "error", []),
        ("q2", "right", "ok", ["b"]),
        ("q3", "", "ok", ["b1"]),
    ]


def test_the_end_of_a_run_is_the_end_of_its_steps(recorder, captured):
    recorder.run_started("r")
    recorder.step_started("outer", "r", "q")
    recorder.step_started("part", "r", "q", within="outer")
    recorder.run_ended(RunEnded("r", answer="Ada"))
    assert kinds(captured) == ["RunStarted", "StepEnded", "RunEnded"]
    (step,) = captured.run.steps
    assert step.status == "cancelled"
    assert [sub.status for sub in step.sub_steps] == ["cancelled"]
    assert captured.run.status == "ok"
    recorder.step_ended("outer", [Passage("late")])
    assert len(captured.events) == 3


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (ValueError("bad index"), "error", "ValueError: bad index"),
        ("cancelled by the user", "cancelled", "cancelled by the user"),
        (RuntimeError("x" * 1000), "error", "RuntimeError: " + "x" * 483 + "..."),
    ],
)
def test_a_failed_step_says_why(recorder, captured, error, status, said):
    recorder.run_started("r")
    recorder.step_started("s", "r", "q")
    recorder.step_failed("s", error, status)
    (step,) = captured.run.steps
    assert (step.status, step.error, step.passages) == (status, said, [])


def test_a_step_is_amended_while_its_run_is_open(recorder, captured):
    recorder.run_started("r")
    recorder.step_started("s", "r", "q")
    found = [Passage("a"), Passage("b")]
    recorder.step_ended("s", found)
    decision = Decision([found[0]])
    recorder.step_amended("s", "r", [found[0]], decision)
    recorder.run_ended(RunEnded("r"))
    recorder.step_amended("s", "r", [])
    (step,) = captured.run.steps
    assert (step.passages, step.candidates, step.decision) == ([found[0]], found, decision)


def test_deferred_value_is_not_computed_in_the_hook(recorder, captured):
    asked = []
    recorder.run_started("r")
    recorder.step_started("s", "r", "q")
    recorder.step_ended("s", [Passage("a"), Passage("b")])
    recorder.step_amended("s", "r", lambda: asked.append(1) or Delivered([Passage("b")], {"by": "the tool"}))
    recorder.run_ended(RunEnded("r"))
    assert not asked
    (step,) = captured.run.steps
    assert (step.passages, step.metadata, asked) == ([Passage("b")], {"by": "the tool"}, [1])


def test_unsampled_runs_cost_no_event(captured):
    recorder = Recorder(captured, sample_rate=0.0)
    assert not recorder.run_started("r")
    assert recorder.open_run("r")
    recorder.step_started("s", "r", "q")
    assert not recorder.wants("s")
    recorder.step_ended("s", [Passage("x")])
    recorder.run_ended(RunEnded("r", answer="Ada"))
    recorder.run_made(WholeRun("whole", "q"), [])
    assert captured.events == []
    assert (recorder.here.counts["unsampled"], recorder.here.counts["runs"], len(recorder.here.runs)) == (
        2,
        0,
        0,
    )
    assert not recorder.open_run("r")


def test_sampling_keeps_its_share_and_its_mind(captured):
    recorder = Recorder(captured, sample_rate=0.25)
    sampled = [recorder.takes(f"run-{n}") for n in range(4000)]
    assert sampled == [recorder.takes(f"run-{n}") for n in range(4000)]
    assert 0.22 < sum(sampled) / 4000 < 0.28


def test_a_run_that_nobody_ends_is_abandoned_after_its_time(recorder, captured, clock):
    recorder.run_started("old", "q")
    recorder.step_started("s", "old", "q")
    recorder.run_noted(RunEnded("old", answer="half an answer"))
    clock.now += 30
    recorder.run_started("young")
    clock.now += 31
    recorder.here.sweep()
    old = captured.runs[0]
    assert (old.status, old.answer, [step.status for step in old.steps]) == (
        "abandoned",
        "half an answer",
        ["abandoned"],
    )
    assert recorder.open_run("young")


def test_when_too_many_are_open_the_least_recently_touched_goes(recorder, captured, clock):
    for n in range(5):
        recorder.run_started(f"r{n}")
    clock.now += 2
    recorder.step_started("s", "r0", "q")
    recorder.run_started("r5")
    assert not recorder.open_run("r1")
    assert all(recorder.open_run(f"r{n}") for n in (0, 2, 3, 4, 5))
    assert [run.status for run in captured.runs if run.id == "r1"] == ["abandoned"]
    assert len(recorder.here.runs) == 5


def test_a_fault_of_the_intake_is_counted_logged_once_and_hurts_nobody(caplog):
    def intake(event):
        raise OSError("disk full")

    recorder = Recorder(intake)
    with caplog.at_level(logging.ERROR, "ragguard.capture"):
        for n in range(10):
            recorder.run_started(f"r{n}")
            recorder.step_started(f"s{n}", f"r{n}", "q")
            recorder.step_ended(f"s{n}", [])
            recorder.run_ended(RunEnded(f"r{n}"))
    assert recorder.faults.count == 30
    assert len(caplog.records) == 1
    assert "disk full" in caplog.text
    assert (len(recorder.here.runs), len(recorder.here.steps)) == (0, 0)


def test_nonsense_is_a_counted_fault_and_not_an_exception(captured):
    recorder = Recorder(captured)
    assert recorder.run_started([]) is False
    recorder.step_started([], [], "q")
    recorder.step_ended([], [])
    recorder.run_ended(RunEnded([]))
    assert recorder.faults.count == 4
    assert len(recorder.here.runs) == 0


def test_threads_never_mix_and_nothing_overtakes_the_end_of_its_run():
    captured = Captured()
    recorder = Recorder(captured)
    numbers = count()

    def work():
        for _ in range(100):
            run = f"r{next(numbers)}"
            recorder.run_started(run, run)
            for n in range(3):
                recorder.step_started(f"{run}/{n}", run, f"{run} hop {n}")
                recorder.step_ended(f"{run}/{n}", [Passage(run)])
            recorder.run_ended(RunEnded(run, answer=run))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    runs = captured.runs
    assert len(runs) == 800
    for run in runs:
        assert run.question == run.answer == run.id
        assert [step.index for step in run.steps] == [0, 1, 2]
        assert [step.turn for step in run.steps] == [0, 1, 2]
        assert {p.text for step in run.steps for p in step.passages} == {run.id}
    assert recorder.here.counts["steps"] == 2400


def test_the_end_of_a_run_waits_for_a_step_that_is_on_its_way():
    captured = Captured()
    arrived, go_on = threading.Event(), threading.Event()

    def slow_for_steps(event):
        if isinstance(event, StepEnded):
            arrived.set()
            assert go_on.wait(30)
        captured(event)

    recorder = Recorder(slow_for_steps)
    recorder.run_started("r")
    recorder.step_started("s", "r", "q")
    thread = threading.Thread(target=recorder.step_ended, args=("s", []))
    thread.start()
    assert arrived.wait(30)
    recorder.run_ended(RunEnded("r"))
    assert kinds(captured) == ["RunStarted"]
    go_on.set()
    thread.join(30)
    assert kinds(captured) == ["RunStarted", "StepEnded", "RunEnded"]


def test_last_answer_that_frameworks_note_counts(recorder, captured):
    recorder.run_started("run")
    for answer in ("first", "", None, "last", None):
        recorder.run_noted(RunEnded("run", answer=answer))
    recorder.run_ended(RunEnded("run"))
    assert captured.run.answer == "last"


def test_hook_that_runs_inside_a_hook_is_recorded_without_a_deadlock():
    """As when a garbage collection closes a generator while the recorder is at work."""
    captured = Captured()

    def intake(event):
        captured(event)
        if isinstance(event, RunStarted) and event.run.id == "outer":
            recorder.run_started("inner")
            recorder.run_ended(RunEnded("inner"))

    recorder = Recorder(intake)
    recorder.run_started("outer")
    recorder.run_ended(RunEnded("outer"))
    assert [run.status for run in captured.runs] == ["ok", "ok"]


PASSAGES = ["Ada Berg founded Nordvik."]


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
    assert caplog.text.count("is not open, so a retrieval is not recorded") == 1
    assert f"rg.run(resume={run.id!r})" in caplog.text
    (stored,) = rg.runs()
    assert (len(stored.steps), stored.answer) == (1, None)


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

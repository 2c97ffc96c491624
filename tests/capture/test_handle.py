"""The handle of one run: with and async with, nested, failing, cancelled, unsampled."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import weakref

import numpy as np
import pytest
from support.captured import Captured

from ragguard.capture.events import RunEnded
from ragguard.capture.handle import RunHandle, innermost
from ragguard.capture.recorder import Recorder
from ragguard.errors import Closed, InvalidInput
from ragguard.records import Passage
from ragguard.runtime.faults import NOTICES


def test_a_run_by_hand(recorder, captured):
    with RunHandle(recorder, "who?", references="Ada Berg", name="manual", metadata={"user": 1}) as run:
        first = run.retrieved("firm in Oslo", ["a", Passage("b", "2", 0.5)], tool="search")
        run.retrieved("founder of it", [{"text": "c"}], candidates=["c", "d"], metadata={"page": 1})
        run.answered("Ada Berg")
        assert run.record().status == "open"
    done = captured.run
    assert (done.id, done.question, done.references, done.name) == (run.id, "who?", ["Ada Berg"], "manual")
    assert (done.answer, done.status, done.metadata) == ("Ada Berg", "ok", {"user": 1})
    assert [(s.id, s.query, s.index, s.turn, s.tool) for s in done.steps] == [
        (first, "firm in Oslo", 0, 0, "search"),
        (done.steps[1].id, "founder of it", 1, 1, ""),
    ]
    assert [p.text for p in done.steps[1].candidates] == ["c", "d"]
    assert run.record().steps == done.steps
    assert (run.record().status, run.record().started_ns > 0) == ("ok", True)


def test_a_turn_that_is_no_number_is_said_and_the_next_one(recorder, captured, caplog):
    with RunHandle(recorder, "q") as run:
        for turn in (4, "x", 2.5):
            run.retrieved("a", [], turn=turn)
    assert [step.turn for step in captured.run.steps] == [4, 5, 6]
    (said,) = [one.getMessage() for one in caplog.records if one.name == "ragguard"]
    assert said == "turn: got str; allowed: a whole number. The step got the next turn"


def test_a_query_and_an_error_of_another_type_are_recorded_and_said(recorder, captured, caplog):
    with RunHandle(recorder, "q") as run:
        run.retrieved(7, ["a"])
        run.failed("b", 404)
    assert [(step.query, step.error) for step in captured.run.steps] == [("", ""), ("b", "404")]
    assert [one.getMessage() for one in caplog.records if one.name == "ragguard"] == [
        "query: got int; allowed: a string. The step has no query; the run's question is used instead",
    ]


def test_an_exception_goes_on_and_is_noted(recorder, captured):
    def work():
        with RunHandle(recorder, "q") as run:
            run.failed("hop", ValueError("index gone"))
            raise KeyError("mine")

    with pytest.raises(KeyError):
        work()
    assert (captured.run.status, captured.run.metadata) == ("error", {"error": "KeyError: 'mine'"})
    (step,) = captured.run.steps
    assert (step.status, step.error) == ("error", "ValueError: index gone")


@pytest.mark.parametrize(("answer", "kept"), [({"verdict": "Ursula"}, '{"verdict": "Ursula"}'), (42, "42")])
def test_an_answer_that_is_no_text_is_kept_as_json(recorder, captured, answer, kept):
    with RunHandle(recorder, "q") as run:
        run.answered(answer)
    assert captured.run.answer == kept


def test_ids_names_and_queries_that_are_no_texts_are_made_texts(recorder, captured):
    with RunHandle(recorder, "q", id=7, name=8) as run:
        run.retrieved(None, [Passage("a", 3, np.float32(0.5), None, 4)], id=9, tool=10)
        run.failed(None, 11)
    done = captured.run
    first, second = done.steps
    given = [one.metadata["ragguard.caller_id"] for one in (done, first)]
    assert (*given, done.name) == ("7", "9", "8")
    assert (first.query, first.tool, first.passages) == ("", "10", [Passage("a", "3", 0.5, {}, 4)])
    assert (second.query, second.status, second.error) == ("", "error", "11")
    assert recorder.faults.count == 0


def test_attributes_set_on_a_run_are_read_like_its_arguments(recorder, captured):
    with RunHandle(recorder, "q", references=["a"], sub_questions="only one?") as run:
        run.references, run.sub_questions, run.pool = "Ada Berg", "one?", ["a text"]
        run.answer, run.metadata, run.question = 7, None, 3
        assert run.record().references == ["Ada Berg"]
    (end,) = [event for event in captured.events if isinstance(event, RunEnded)]
    assert (end.references, end.sub_questions, end.pool) == (["Ada Berg"], ["one?"], [Passage("a text")])
    assert (captured.run.question, captured.run.answer) == ("q", None)
    with RunHandle(recorder, "q", references=["a"]) as run:
        run.references = 12
    assert captured.runs[1].references == ["a"]
    assert recorder.faults.count == 1


@pytest.mark.parametrize(("question", "said"), [("", 1), (" ", 1), ("who?", 0)])
def test_a_run_that_ends_without_a_question_says_once_what_cannot_be_scored(recorder, caplog, question, said):
    NOTICES.forget()
    for _ in range(2):
        with RunHandle(recorder, question) as run:
            run.retrieved("hop", ["a"])
    found = [text for text in caplog.messages if "ended without a question" in text]
    assert len(found) == said
    assert all("rg.run(question)" in text for text in found)


def test_a_handle_is_entered_once(recorder):
    run = RunHandle(recorder, "q")
    with run:
        pass
    with pytest.raises(Closed, match="already used in a `with`"), run:
        pass


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"references": 12}, "references"),
        ({"references": ["a", 3]}, "references"),
        ({"references": [" ", "\n"]}, "references"),
        ({"sub_questions": ["a", 3]}, "sub_questions"),
        ({"metadata": "user 7"}, "metadata"),
        ({"question": None}, "question"),
    ],
)
def test_arguments_that_cannot_be_right_are_refused_at_once(recorder, arguments, name):
    with pytest.raises(InvalidInput, match=name):
        RunHandle(recorder, **{"question": "q", **arguments})


def test_the_current_run_is_the_innermost_of_the_same_recorder(recorder):
    other = Recorder(Captured())
    assert innermost(recorder) is None
    with RunHandle(recorder, "outer") as outer:
        with RunHandle(other, "theirs") as theirs:
            assert (innermost(recorder), innermost(other)) == (outer, theirs)
        with RunHandle(recorder, "inner") as inner:
            assert innermost(recorder) is inner
            assert inner.metadata["parent_run_id"] == outer.id
        assert innermost(recorder) is outer
    assert innermost(recorder) is None


@pytest.fixture
def anew():
    """Calls a function in a context in which no run is open."""
    return contextvars.Context().run


def test_thousands_of_runs_open_in_one_context_raise_nothing(recorder, anew):
    def entered():
        runs = [RunHandle(recorder, f"q{n}") for n in range(3000)]
        for run in runs:
            run.__enter__()
        assert innermost(recorder) is runs[-1]
        assert runs[-1].metadata["parent_run_id"] == runs[-2].id
        for run in runs[1:-1]:
            run.__exit__(None, None, None)
        assert innermost(recorder) is runs[-1]
        runs[-1].__exit__(None, None, None)
        assert innermost(recorder) is runs[0]
        runs[0].__exit__(None, None, None)
        assert innermost(recorder) is None

    anew(entered)


def test_runs_that_overlap_for_ever_keep_no_closed_ones_in_memory(recorder, anew):
    def overlapping():
        gone = []
        window = []
        for n in range(200):
            run = RunHandle(recorder, f"q{n}")
            run.__enter__()
            gone.append(weakref.ref(run))
            window.append(run)
            if len(window) > 5:
                window.pop(n % 5).__exit__(None, None, None)
        del run
        gc.collect()
        return sum(ref() is not None for ref in gone)

    assert anew(overlapping) <= 3 * 5


async def test_run_whose_task_is_cancelled_is_recorded_as_cancelled_with_its_steps(recorder, captured):
    async def work():
        async with RunHandle(recorder, "q") as run:
            run.retrieved("hop", ["a"])
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await work()
    assert (captured.run.status, len(captured.run.steps)) == ("cancelled", 1)

"""Advice about a run that was resumed: its question and its earlier steps are known to the store alone."""

from __future__ import annotations

import signal

import pytest
from support.polling import eventually
from support.program import run_program
from support.reader import reader

from ragguard import RagGuard, connect
from ragguard.errors import AdviceError

QUESTION = "Where was the founder of Corwell Mills born?"
HOPS = [
    ("Who founded Corwell Mills?", ["Records show Ursula Almberg founded Corwell Mills."]),
    ("Where was Ursula Almberg born?", ["Ursula Almberg was born in East Dundale."]),
]
PATIENT = 120_000
"""Milliseconds for advice, so that a busy machine changes nothing."""


@pytest.fixture(params=["memory", "file"])
def store(request, tmp_path):
    return None if request.param == "memory" else tmp_path / "s.db"


def in_one_go(rg):
    with rg.run(QUESTION) as run:
        for hop in HOPS:
            run.retrieved(*hop)
            advice = run.advise(PATIENT)
    return advice


def first_part(rg):
    with rg.run(QUESTION, id="r") as run:
        run.retrieved(*HOPS[0])
        run.advise(PATIENT)


@pytest.mark.parametrize("question", ["", QUESTION])
def test_advice_of_a_resumed_run_is_that_of_a_run_in_one_go(nano, store, question):
    with RagGuard(nano, store=store, scorers=()) as rg:
        whole = in_one_go(rg)
        first_part(rg)
        with rg.run(question, resume="r") as run:
            run.retrieved(*HOPS[1])
            advice = run.advise(PATIENT)
        assert (advice.action, advice.numbers) == ("answer", whole.numbers)
        assert rg.flush(60)
        assert [step.advice.action for step in rg.runs()[-1].steps] == ["continue", "answer"]


def test_a_question_that_this_part_sets_counts_where_the_first_had_none(nano, store):
    with RagGuard(nano, store=store, scorers=()) as rg:
        with rg.run(id="r") as run:
            run.retrieved(*HOPS[0])
        with rg.run(resume="r") as run:
            run.retrieved(*HOPS[1])
            with pytest.raises(AdviceError, match="has no question"):
                run.advise(PATIENT)
            run.question = QUESTION
            assert run.advise(PATIENT).action == "answer"


def test_advice_of_a_resumed_run_is_redacted_once_and_stands_with_the_right_step(nano):
    def redact(text):
        return f"{text} (seen)"

    with RagGuard(nano, store=None, scorers=(), redact=redact) as rg:
        with rg.run(QUESTION) as run:
            run.retrieved(*HOPS[0])
        with rg.run(QUESTION, resume=run.id) as run:
            run.retrieved(*HOPS[1])
            advice = run.advise(PATIENT)
        assert advice.status == "judged"
        assert not any("(seen) (seen)" in one for one in (*advice.open_sub_questions, *advice.reasons))
        rg.flush(60)
        assert [step.advice is None for step in rg.runs()[-1].steps] == [True, False]


def test_the_parts_ask_what_one_run_asks_and_nothing_twice():
    def asked(engine):
        return [(repr(prompt), repr(call.labels)) for call in engine.calls for prompt in call.prompts]

    whole, parts = reader(), reader()
    with RagGuard(connect(whole), store=None, scorers=()) as rg:
        in_one_go(rg)
    with RagGuard(connect(parts), store=None, scorers=()) as rg:
        first_part(rg)
        with rg.run(resume="r") as run:
            run.retrieved(*HOPS[1])
            run.advise(PATIENT)
    assert sorted(asked(parts)) == sorted(asked(whole))
    assert len({*asked(parts)}) == len(asked(parts))


PART_ONE = """
import os, signal, sys
from ragguard import RagGuard

rg = RagGuard("nano", store=sys.argv[1], scorers=())
with rg.run("Where was the founder of Corwell Mills born?", id="r") as run:
    run.retrieved("Who founded Corwell Mills?", ["Records show Ursula Almberg founded Corwell Mills."])
    rg.runs()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_advice_counts_the_steps_of_a_process_that_was_killed(nano, tmp_path):
    assert run_program(PART_ONE, tmp_path / "s.db", check=False).returncode == -signal.SIGKILL
    with RagGuard(nano, store=tmp_path / "s.db", scorers=()) as rg, rg.run(resume="r") as run:
        run.retrieved(*HOPS[1])
        assert run.advise(PATIENT).action == "answer"


def test_live_scores_see_the_earlier_steps(nano, store):
    def coverage(rg):
        return [one.value for one in rg.scores(run) if (one.name, one.step_id) == ("coverage", step)]

    with RagGuard(nano, store=store, scorers=["coverage"]) as rg:
        with rg.run(QUESTION, id="r") as run:
            run.retrieved(*HOPS[0])
        assert rg.flush(60)
        with rg.run(resume="r") as run:
            step = run.retrieved(*HOPS[1])
            assert eventually(lambda: coverage(rg)) == [1.0]
        assert rg.flush(60)
        assert coverage(rg) == [1.0]

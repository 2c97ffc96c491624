"""What an agent does with advice between its hops, without a framework."""

from __future__ import annotations

import pytest
from support.scripted_engine import ScriptedEngine

from ragguard import Passage, RagGuard, world
from ragguard.advice.loop import HopAdvice, LoopAdviser, note_of
from ragguard.errors import InvalidInput
from ragguard.records import Advice

OPEN = ["Who founded it?", "Where is it?"]


@pytest.mark.parametrize(
    ("advice", "said"),
    [
        (Advice("answer"), "What was retrieved answers the question."),
        (Advice("continue"), ""),
        (
            Advice("continue", OPEN),
            "Not answered yet by what was retrieved:\n- Who founded it?\n- Where is it?",
        ),
        (
            Advice("rephrase", OPEN),
            "The last search brought nothing for its query: search in other words.\nNot",
        ),
        (Advice("distrust"), "Passages that were retrieved contradict each other or mislead"),
        (Advice("continue", OPEN, status="error"), ""),
        (Advice("continue", OPEN, status="timeout"), ""),
    ],
)
def test_text_of_an_advice_for_a_model(advice, said):
    note = note_of(advice)
    assert note.startswith(said)
    assert bool(note) == bool(said)


def test_nothing_is_asked_before_the_first_hop_and_after_the_last():
    engine = ScriptedEngine()
    with RagGuard(engine, store=None, scorers=()) as rg, rg.run("Who?") as run:
        run.retrieved("who", [Passage("Ada Berg founded it.")])
        adviser = LoopAdviser(max_hops=2)
        assert adviser.after(0) == HopAdvice(False)
        assert adviser.after(2).enough
        assert adviser.after(3).enough
        assert LoopAdviser(max_hops=3, min_hops=2).after(1) == HopAdvice(False)
        assert engine.calls == []
        assert adviser.after(1).advice is not None
        assert engine.calls
    with pytest.raises(InvalidInput, match="min_hops"):
        LoopAdviser(max_hops=2, min_hops=3)


def test_hops_in_a_row_that_bring_nothing_end_the_loop_and_that_is_said(caplog):
    junk = world.cases(1, seed=8)[0].of_kind("unrelated")
    case = world.cases(1, seed=4, hops=2)[0]
    adviser = LoopAdviser(max_hops=9, budget_ms=60_000, max_rephrases=2)
    with RagGuard(store=None, scorers=()) as rg, rg.run(case.question) as run:
        run.retrieved(case.sub_questions[0], junk[:1])
        first = adviser.after(1)
        run.retrieved(case.sub_questions[0], [case.gold[0]])
        helped = adviser.after(2)
        run.retrieved(case.sub_questions[1], junk[:1])
        third = adviser.after(3)
        run.retrieved(case.sub_questions[1], junk[1:2])
        last = adviser.after(4)
    assert [one.enough for one in (first, helped, third, last)] == [False, False, False, True]
    assert last.advice.action == "rephrase"
    assert last.note.startswith("The last 2 searches brought nothing for their queries.")
    assert "max_rephrases=2" in caplog.text

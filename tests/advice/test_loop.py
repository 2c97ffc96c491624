"""What an agent does with advice between its hops, without a framework."""

from __future__ import annotations

import pytest
from support.scripted_engine import ScriptedEngine

import ragguard
from ragguard import Passage, RagGuard
from ragguard.advice.loop import HopAdvice, LoopAdviser, note_of
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
        assert engine.calls == []
        assert adviser.after(1).advice is not None
        assert engine.calls


async def test_in_a_pause_nothing_is_asked_and_nothing_is_said(caplog):
    engine = ScriptedEngine()
    with RagGuard(engine, store=None, scorers=()) as rg, rg.run("Who?") as run:
        run.retrieved("who", [Passage("Ada Berg founded it.")])
        with ragguard.paused():
            assert LoopAdviser().after(1) == HopAdvice(False)
            assert await LoopAdviser().aafter(1) == HopAdvice(False)
    assert engine.calls == []
    assert "advice" not in caplog.text

"""Guard and scorer share what they know: whoever comes second asks nothing that the first has asked."""

from __future__ import annotations

import pytest
from support.scripted_engine import ScriptedEngine

from ragguard import DistractorGuard, Passage, RagGuard, connect
from ragguard.errors import InvalidInput

QUESTION, HOP = "who founded the firm based in Oslo?", "firm based in Oslo"
PASSAGES = [Passage(f"Passage {n} about the firm.") for n in range(4)]


@pytest.fixture
def engine():
    return ScriptedEngine(label=lambda text, label: {"NO-RESPONSE": 0.2, "A": 0.7, "B": 0.1}.get(label))


@pytest.fixture
def rg(engine):
    with RagGuard(engine=engine, scorers=("utility",), store=None) as watching:
        yield watching


def prune(rg: RagGuard, query: str) -> None:
    decision = DistractorGuard(rg.engine, budget_ms=10_000).prune(query, PASSAGES)
    assert decision.status == "kept_all", decision.reason


def score(rg: RagGuard, query: str, references: list[str] | None = None) -> None:
    with rg.run(QUESTION, references=references) as run:
        run.retrieved(query, PASSAGES)
        run.answered("Ada Berg")
    assert rg.flush(timeout=20)
    scores = {score.name for score in rg.scores(run.id)}
    assert {"p_abstain", "p_relevant", "utility", "udcg"} <= scores


def verdicts(engine: ScriptedEngine) -> list[tuple[int, tuple[str, ...]]]:
    """Each request since the last look: its number of prompts and its labels."""
    seen = [(len(call.prompts), call.labels) for call in engine.calls]
    engine.calls.clear()
    return seen


@pytest.mark.parametrize("query", [QUESTION, HOP])
def test_prompts_of_the_guard_are_not_asked_again_by_the_scorer(rg, engine, query):
    prune(rg, query)
    assert verdicts(engine) == [(8, ("NO-RESPONSE", "A", "B"))]
    score(rg, query)
    assert verdicts(engine) == []


@pytest.mark.parametrize("query", [QUESTION, HOP])
def test_prompts_of_the_scorer_are_not_asked_again_by_the_guard(rg, engine, query):
    score(rg, query)
    assert verdicts(engine) == [(8, ("NO-RESPONSE", "A", "B"))]
    prune(rg, query)
    assert verdicts(engine) == []


def test_a_judge_that_saw_references_was_asked_something_else(rg, engine):
    score(rg, QUESTION, references=["Ada Berg"])
    assert verdicts(engine) == [(8, ("NO-RESPONSE", "A", "B"))]
    prune(rg, QUESTION)
    assert verdicts(engine) == [(4, ("A", "B"))]


def test_a_hop_of_a_run_with_references_is_shared_in_full(rg, engine):
    score(rg, HOP, references=["Ada Berg"])
    verdicts(engine)
    prune(rg, HOP)
    assert verdicts(engine) == []


async def test_a_label_never_hangs_on_the_company_it_was_asked_in(engine):
    """A server that only samples: asked with NO-RESPONSE, which its first token does not tell, A would be sampled."""
    shows_tops = ScriptedEngine(label=engine.label, capabilities=frozenset({"top_logprobs"}))
    decision = await DistractorGuard(shows_tops, budget_ms=10_000).aprune(HOP, PASSAGES)
    assert decision.status == "kept_all", decision.reason
    assert sorted(verdicts(shows_tops)) == [(4, ("A", "B")), (4, ("NO-RESPONSE",))]


def test_a_ragguard_in_place_of_its_engine_is_refused_with_the_way_to_the_engine():
    with RagGuard(ScriptedEngine(), store=None, scorers=()) as rg:
        for made in (DistractorGuard, connect, lambda given: DistractorGuard("nano", judge=given)):
            with pytest.raises(InvalidInput, match=r"or an Engine.*; of a RagGuard pass `rg.engine`"):
                made(rg)
        assert isinstance(DistractorGuard(rg.engine), DistractorGuard)
    with pytest.raises(InvalidInput) as refused:
        DistractorGuard(3)
    assert "rg.engine" not in str(refused.value)

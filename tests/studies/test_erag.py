"""A passage is worth what the reader makes of it alone."""

import pytest

from ragguard import world
from ragguard.analysis.validation.contexts import Context
from ragguard.analysis.validation.scoring import rank_values
from ragguard.engines.connect import connect
from ragguard.metrics import exact_match
from studies.erag import with_downstream_relevance


@pytest.fixture(scope="module")
def engine():
    return connect("nano")


def contexts(hops):
    return [
        Context(
            id=case.question, question_id=case.question, question=case.question,
            passages=(case.of_kind("unrelated")[0], *case.gold, case.of_kind("contradiction")[-1]),
            references=tuple(case.references), ideal=(1.0,),
        )
        for case in world.cases(6, seed=3, hops=hops)
    ]  # fmt: skip


async def test_gold_alone_succeeds_and_a_lie_or_nothing_fails(engine):
    found = await with_downstream_relevance(contexts(1), engine, measure=exact_match)
    for context in found:
        assert context.relevance == (0.0, 1.0, 0.0)
        assert context.ideal is None
        assert rank_values(context)["reciprocal_rank"] == 0.5


async def test_nothing_retrieved_is_known_to_hold_nothing_relevant(engine):
    nothing = Context(id="n", question_id="n", question="who?", passages=(), relevance=())
    (found,) = await with_downstream_relevance([nothing], engine)
    assert set(rank_values(found).values()) == {0.0}


async def test_half_of_two_hops_alone_is_worth_nothing(engine):
    found = await with_downstream_relevance(contexts(2), engine, measure=exact_match)
    assert [context.relevance[1] for context in found].count(0.0) >= 5


async def test_words_that_are_shared_are_worth_something(engine):
    found = await with_downstream_relevance(
        contexts(1), engine, measure=lambda answer, references: len(answer) / 100
    )
    assert all(len(set(context.relevance)) > 1 for context in found)


async def test_without_references_nothing_is_worth_anything(engine):
    (bare,) = await with_downstream_relevance(
        [Context(id="c", question_id="q", question="who?", passages=contexts(1)[0].passages)], engine
    )
    assert bare.relevance is None

"""Contexts become numbers: the ordinary scores, and the classical measures."""

import math

import pytest

from ragguard import world
from ragguard.engines.connect import connect
from ragguard.lab.validation.contexts import Context, rank_values, score_contexts
from ragguard.metrics import udcg_of_parts, utility_parts
from ragguard.records import Passage


def judged(*relevance, ideal=None):
    passages = tuple(Passage(f"text {place}", f"p{place}") for place in range(len(relevance)))
    return Context(
        id="c", question_id="q", question="what?", passages=passages, relevance=relevance, ideal=ideal
    )


def test_rank_values_by_hand():
    values = rank_values(judged(0, 1, 0, 1, 0, ideal=(1, 1, 1, 0, 0, 0)))
    found = 1 / math.log2(3) + 1 / math.log2(5)
    best = 1 + 1 / math.log2(3) + 1 / math.log2(4)
    assert values == pytest.approx({
        "ndcg_at_k": found / best, "average_precision": (1 / 2 + 2 / 4) / 3, "reciprocal_rank": 0.5,
        "precision": 0.4, "hits": 1.0, "recall": 2 / 3,
    })  # fmt: skip


def test_nothing_relevant_is_nought_and_not_nothing():
    assert set(rank_values(judged(0, 0, ideal=(0, 0))).values()) == {0.0}
    assert rank_values(Context(id="c", question_id="q", question="?", passages=(Passage("a"),))) == {}


def test_a_retrieval_that_found_nothing_has_noughts_and_one_that_failed_has_nothing():
    assert set(rank_values(judged()).values()) == {0.0}
    assert rank_values(judged(ideal=(1, 0)))["recall"] == 0.0
    assert rank_values(Context(id="c", question_id="q", question="?", passages=())) == {}


async def test_the_scorers_give_a_context_without_passages_what_they_give_an_empty_retrieval():
    nothing = Context(id="a", question_id="q", question="what?", passages=(), relevance=(), k=3)
    failed = Context(id="b", question_id="q", question="what?", passages=())
    found, none = await score_contexts([nothing, failed], connect("nano"))
    assert found.values["udcg"] == found.values["udcg_context"] == 0.5
    assert found.values["precision"] == 0.0
    assert not found.failures
    assert none.values == {}


async def test_scores_of_the_pipeline_come_with_the_rank_measures():
    engine = connect("nano")
    contexts = [
        Context(
            id=f"{number}", question_id=f"{number}", question=case.question, passages=tuple(case.pool()[:4]),
            references=tuple(case.references), relevance=(1, 0, 0, 0), ideal=(1,),
        )
        for number, case in enumerate(world.cases(5, seed=3))
    ]  # fmt: skip
    told = []
    found = await score_contexts(contexts, engine, progress=lambda what, done, of: told.append((done, of)))
    assert [one.context for one in found] == contexts
    assert told[0] == (0, 5)
    assert told[-1] == (5, 5)
    for one in found:
        utilities = one.of_passages("utility")
        assert len(utilities) == 4
        judged = (one.of_passages(name) for name in ("p_relevant", "p_abstain"))
        assert one.values["udcg"] == pytest.approx(float(udcg_of_parts(*utility_parts(*judged))))
        assert one.values["udcg"] == one.values["udcg_context"]
        assert one.values["ndcg_at_k"] == 1.0
        assert "utility" not in one.values
        assert not one.failures

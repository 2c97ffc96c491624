"""Pools hold what a search finds, know what it is, and give contexts by the paper's recipe."""

import random

import pytest

from ragguard import world
from ragguard.errors import InvalidInput
from studies.pools import corpus_for, draw, find_pools


@pytest.fixture(scope="module", params=[1, 2])
def pools(request):
    cases = world.cases(30, seed=4, hops=request.param)
    return find_pools(corpus_for(world.default_world(), cases), cases, f"{request.param}")


def test_every_kind_of_passage_is_known_for_what_it_is(pools):
    assert len(pools) >= 24
    for pool in pools:
        assert 20 <= len(pool.passages) == len(pool.kinds) <= 25
        assert len({id(passage) for passage in pool.passages}) == len(pool.passages)
        for fact, found in zip(pool.case.facts, pool.gold, strict=True):
            for place in found:
                assert pool.kinds[place] == "gold"
                assert {fact.subject, fact.object} == {
                    pool.passages[place].metadata[end] for end in ("subject", "object")
                }
        for passage, kind in zip(pool.passages, pool.kinds, strict=True):
            mine = any(passage.id == own.id for own in pool.case.pool())
            if mine and passage.metadata["kind"] in ("gold", "contradiction"):
                assert kind == passage.metadata["kind"]
    assert {kind for pool in pools for kind in pool.kinds} == {
        "gold", "contradiction", "same_subject", "same_relation", "unrelated",
    }  # fmt: skip


def test_half_of_the_contexts_can_be_answered_from(pools):
    for pool in pools:
        contexts = draw(pool, 5, 10, random.Random(1))
        assert [len(set(places)) for places in contexts] == [5] * 10
        assert [pool.answerable(places) for places in contexts] == [True, False] * 5
        assert contexts == draw(pool, 5, 10, random.Random(1))
        if pool.case.hops == 1:
            assert not any(pool.relevance[place] for places in contexts[1::2] for place in places)


def test_a_context_without_room_for_all_hops_is_never_answerable(pools):
    pool = pools[0]
    found = [pool.answerable(places) for places in draw(pool, 1, 10, random.Random(1))]
    assert any(found) == (pool.case.hops == 1)
    with pytest.raises(InvalidInput):
        draw(pool, 25, 1, random.Random(1))


def test_a_context_has_the_worlds_own_relevance(pools):
    pool = pools[0]
    gold = [min(found) for found in pool.gold]
    junk = pool.relevance.index(0.0)
    context = pool.context([junk, *gold], "c")
    assert context.relevance == (0.0, *(1.0 for _ in gold))
    assert context.ideal == pool.relevance
    assert context.passages[0] is pool.passages[junk]
    assert (context.question_id, context.references) == (pool.id, tuple(pool.case.references))

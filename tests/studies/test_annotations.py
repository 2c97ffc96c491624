"""What is said of every passage of a pool, and what becomes of a pool of which one cannot be judged."""

import numpy as np
import pytest

from ragguard import world
from ragguard.engines.connect import connect
from ragguard.errors import EngineProtocolError
from studies.annotations import annotate
from studies.pools import corpus_for, find_pools


class Refusing:
    """nano, except that a prompt with certain words breaks its batch."""

    def __init__(self, words):
        self._nano, self._words = connect("nano"), words
        self.info, self.sample, self.aclose = self._nano.info, self._nano.sample, self._nano.aclose

    async def label_probs(self, prompts, *args, **kwargs):
        if any(self._words in message.content for prompt in prompts for message in prompt.messages):
            raise EngineProtocolError("refused")
        return await self._nano.label_probs(prompts, *args, **kwargs)


@pytest.fixture(scope="module")
def pools():
    cases = [*world.cases(2, seed=4), *world.cases(2, seed=4, hops=2)]
    return find_pools(corpus_for(world.default_world(), cases), cases, "t")


async def test_signs_follow_the_relevance_that_is_taken(pools):
    found = await annotate(pools, connect("nano"))
    assert [one.pool for one in found] == pools
    for one in found:
        gold = one.relevance == 1
        assert gold.any()
        assert (np.sign(one.utility) == np.where(gold, 1, -1)).all()
        assert one.utility == pytest.approx(np.where(gold, 1, -1) * (1 - one.p_abstain))
        assert one.judged == pytest.approx(np.where(one.p_relevant >= 0.5, 1, -1) * (1 - one.p_abstain))
        if one.pool.case.hops == 1:
            assert one.by_hop == pytest.approx(one.utility)
            assert one.judged_by_hop == pytest.approx(one.judged)
        else:
            assert one.by_hop[gold].mean() > one.utility[gold].mean()
        assert ((one.p_answer >= 0) & (one.p_answer <= 1)).all()


async def test_a_pool_with_a_passage_that_cannot_be_judged_is_left_out(pools):
    words = next(
        passage.text for passage in pools[1].passages
        if not any(passage.text == other.text for pool in pools if pool is not pools[1] for other in pool.passages)
    )  # fmt: skip
    found = await annotate(pools, Refusing(words), rivals=False)
    assert [one.pool for one in found] == [pools[0], *pools[2:]]
    assert np.isnan(found[0].erag).all()


async def test_where_none_can_be_judged_the_reason_is_told(pools):
    with pytest.raises(EngineProtocolError, match=r"no question has all its passages judged.*refused"):
        await annotate(pools, Refusing(""), rivals=False)
    assert await annotate([], Refusing("")) == []

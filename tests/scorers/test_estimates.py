"""Stated errors of beliefs beside the spread of the same belief over many draws of answers."""

import numpy as np
import pytest

from ragguard.engines.base import Sample
from ragguard.scorers.estimates import Estimator
from ragguard.scorers.meanings import Meanings
from ragguard.scorers.question import EntailAnswer, SampleAnswer

CHAIN = "north", "northern", "arctic", "polar", "south"
"""Each of the first four means the same as its neighbours alone, so that a meaning depends on its first answer."""
SHARES = 0.3, 0.25, 0.15, 0.1, 0.2


async def neighbours(questions):
    def relation(pair):
        one, other = CHAIN.index(pair.premise), CHAIN.index(pair.hypothesis)
        return (0.9, 0.05, 0.05) if abs(one - other) == 1 and 4 not in (one, other) else (0.1, 0.8, 0.1)

    return [EntailAnswer(relation(question.pair)) for question in questions]


async def estimates(seeds=60, **settings):
    random = np.random.default_rng(3)
    drawn = {
        (str(seed),): SampleAnswer(tuple(Sample(CHAIN[i], (-1.0,)) for i in random.choice(5, 10, p=SHARES)))
        for seed in range(seeds)
    }
    meanings = Meanings("where?", neighbours)
    return list((await Estimator(**settings).beliefs(drawn, ("northern",), meanings)).values())


@pytest.mark.parametrize("kind", ["hard", "entropy"])
async def test_the_error_of_a_belief_by_meanings_is_its_spread_over_draws(kind):
    found = np.array([getattr(one, kind) for one in await estimates()])
    values, errors = found.T
    ratio = np.sqrt((errors**2).mean()) / values.std(ddof=1)
    assert 0.9 < ratio < 1.3
    assert np.mean(np.abs(values - values.mean()) < 1.96 * errors) > 0.9


@pytest.mark.parametrize(
    ("relation", "pairs"),
    [((0.9, 0.1, 0.0), 2 * 4), ((0.1, 0.9, 0.0), 5 * 4 // 2)],
    ids=["one meaning", "a meaning each"],
)
async def test_an_error_asks_nothing_more_where_clustering_asked_all(relation, pairs):
    asked = []

    async def ask(questions):
        asked.extend(questions)
        return [EntailAnswer(relation) for _ in questions]

    drawn = {("context",): SampleAnswer(tuple(Sample(text, (-1.0,)) for text in CHAIN))}
    await Estimator().beliefs(drawn, (), Meanings("where?", ask))
    assert len(asked) == pairs


async def test_a_comparison_that_only_an_error_needs_may_fail():
    async def ask(questions):
        answers = await neighbours(questions)
        for at, question in enumerate(questions):
            if "north" not in (question.pair.premise, question.pair.hypothesis):
                answers[at] = EntailAnswer((1.0, 0.0, 0.0), mass=0.1)
        return answers

    texts = ("north", "northern", "arctic")
    drawn = {("context",): SampleAnswer(tuple(Sample(text, (-1.0,)) for text in texts))}
    (found,) = (await Estimator().beliefs(drawn, (), Meanings("where?", ask))).values()
    assert found.entropy.value == pytest.approx(np.log(3) - 2 / 3 * np.log(2))
    assert found.entropy.stderr > 0


async def test_an_error_that_nobody_reads_is_not_computed():
    assert all(np.isnan(one.entropy.stderr) for one in await estimates(seeds=2, errors=False))

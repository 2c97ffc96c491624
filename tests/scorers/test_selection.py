"""The price of a selection: what a guard, a reranker or a compressor did, beside all that was retrieved."""

import math

import pytest
from support.beliefs import beliefs, only, soft, values
from support.reader import (
    FALSE,
    FIRM,
    FIRM_QUERY,
    FOUNDER,
    FOUNDER_QUERY,
    NEAR,
    NOISE,
    reader,
    run,
    step,
)

from ragguard.scorers.belief import Belief
from ragguard.scorers.pipeline import ScoringPipeline
from ragguard.scorers.utility import Utility


async def test_a_guard_that_drops_the_lie_has_a_gain_with_an_error():
    results = await beliefs(
        run(step(FIRM_QUERY, [FIRM]), step(FOUNDER_QUERY, [FOUNDER], candidates=[FALSE, FOUNDER]))
    )
    price = only(results, "delta_seper_selection")
    assert price.value == pytest.approx(soft(10) - soft(6))
    assert price.stderr > 0
    assert price.explanation == f"{soft(6):.2f} → {soft(10):.2f}"
    assert price.reference_source == "gold"
    assert price.level == "step"


async def test_a_guard_that_keeps_nothing_has_a_price_and_the_step_no_other_score():
    results = await beliefs(run(step(FIRM_QUERY, [FIRM]), step(FOUNDER_QUERY, [], candidates=[FOUNDER])))
    assert only(results, "delta_seper_selection").value == pytest.approx(soft(2) - soft(10))
    assert len(values(results, "seper")) == len(values(results, "delta_seper")) == 1
    assert values(results, "delta_seper_total") == [pytest.approx(soft(2) - soft(0))]


async def test_a_step_that_gives_all_it_found_has_no_price_and_asks_nothing_more():
    engine, without = reader(), reader()
    results = await beliefs(run(step(FIRM_QUERY, [FIRM, NEAR])), engine=engine)
    assert values(results, "delta_seper_selection") == []
    await beliefs(
        run(step(FIRM_QUERY, [FIRM, NEAR])), engine=without, scorer=Belief(weights="count", selection=False)
    )
    assert engine.calls == without.calls


async def test_parallel_steps_count_as_before_beside_one_that_was_emptied():
    steps = [
        step(FIRM_QUERY, [FIRM]),
        step(FOUNDER_QUERY, [FOUNDER]),
        step(FIRM_QUERY, [], candidates=[NEAR]),
    ]
    with_it = await beliefs(run(*steps, turns=[0, 0, 0]))
    without = await beliefs(run(*steps[:2], turns=[0, 0]))
    assert values(with_it, "delta_seper") == values(without, "delta_seper")
    assert values(with_it, "delta_seper_selection") == [0.0]


async def coverage(the_run):
    return await ScoringPipeline(reader(), scorers=["coverage"]).results(the_run)


async def test_coverage_of_a_selection_is_what_was_read_by_then_beside_what_was_found():
    results = await coverage(
        run(
            step(FIRM_QUERY, [FIRM], candidates=[NEAR, FIRM]),
            step(FOUNDER_QUERY, [], candidates=[FOUNDER, NOISE]),
            step(FIRM_QUERY, [NEAR], candidates=[NEAR, FIRM, FOUNDER]),
        )
    )
    prices = [score for score in results if score.name == "delta_coverage_selection"]
    # The third step's FIRM was read before; FOUNDER was not.
    assert [price.value for price in prices] == [0.0, -0.5, -0.5]
    assert all(price.stderr == 0.0 for price in prices)
    assert prices[0].metadata["k"] == 1
    assert prices[0].metadata["candidates"] == 2


async def utility(the_run, **more):
    return await ScoringPipeline(reader(**more), scorers=[Utility(relevance="binary")]).results(the_run)


async def test_udcg_of_a_selection_is_over_the_places_of_the_candidates():
    results = await utility(run(step(FOUNDER_QUERY, [FOUNDER], candidates=[FALSE, FOUNDER])))
    price = only(results, "delta_udcg_selection")
    # By hand: u = 0.95 beside an empty place, against 0.95 and -0.9 in two places.
    assert price.value == pytest.approx(sigmoid(0.95 / 2) - sigmoid(0.95 / 2 - 0.9 / 6))
    assert (price.metadata["k"], price.stderr) == (2, 0.0)


async def test_udcg_of_a_selection_is_not_said_where_a_candidate_is_not_judged():
    engine = reader()
    rated = engine.label
    engine.label = lambda text, label: 0.01 if "Unratable" in text and label in "AB" else rated(text, label)
    results = await ScoringPipeline(engine, scorers=["utility"]).results(
        run(step(FIRM_QUERY, [FIRM], candidates=[FIRM, "Unratable."]))
    )
    assert values(results, "delta_udcg_selection") == []
    assert any("p_relevant of passage 2" in getattr(result, "message", "") for result in results)


def sigmoid(x):
    return 1 / (1 + math.exp(-x))

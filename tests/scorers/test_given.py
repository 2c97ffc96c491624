"""What a passage adds, for the run's question, to what was read in earlier turns."""

import pytest

from ragguard.records import Failure, Score
from ragguard.scorers.pipeline import ScoringPipeline
from ragguard.scorers.utility import Utility
from tests.support.reader import (
    FALSE,
    FIRM,
    FIRM_QUERY,
    FOUNDER,
    FOUNDER_QUERY,
    NOISE,
    QUESTION,
    asked,
    documents,
    run,
    step,
)
from tests.support.scripted_engine import ScriptedEngine

ABSTAINS = {frozenset({FIRM}): 0.9, frozenset({FOUNDER}): 0.6, frozenset({FIRM, FOUNDER}): 0.05,
            frozenset({FALSE}): 0.7, frozenset({FIRM, FALSE}): 0.1}  # fmt: skip
RIGHT = {frozenset({FIRM, FOUNDER}), frozenset({FOUNDER})}


def weigh(text, label):
    """p(NO-RESPONSE) and p(A) of a whole context, for the run's question; 0.5 for a step's own."""
    read = frozenset(documents(text)) - {NOISE}
    if asked(text) != QUESTION:
        return 0.5
    if label == "NO-RESPONSE":
        return ABSTAINS.get(read, 1.0)
    return (0.9 if read in RIGHT else 0.1) if label == "A" else 0.1 if read in RIGHT else 0.9


def engine(**more):
    return ScriptedEngine(label=weigh, **more)


async def given(the_run, *, soft=False, engine=engine):
    results = await ScoringPipeline(engine(), scorers=[Utility(given=True, soft=soft)]).results(the_run)
    return results, {
        (score.step_id, score.position): score
        for score in results
        if isinstance(score, Score) and score.name == "utility_given"
    }


async def test_the_second_hop_earns_what_it_completes_and_noise_nothing():
    the_run = run(step(FIRM_QUERY, [FIRM, NOISE]), step(FOUNDER_QUERY, [NOISE, FOUNDER]))
    first, second = (one.id for one in the_run.steps)
    _, found = await given(the_run)
    # v(FIRM) = -0.1, v(FIRM, FOUNDER) = +0.95, by hand.
    assert found[first, 1].value == pytest.approx(-0.1)
    assert found[first, 2].value == 0.0
    assert found[second, 1].value == 0.0
    assert found[second, 2].value == pytest.approx(0.95 - -0.1)
    assert found[second, 2].explanation == "-0.10 → 0.95"
    assert found[second, 2].metadata["read_before"] == 2


async def test_a_lie_after_the_first_hop_costs_and_a_passage_read_before_adds_nothing():
    the_run = run(step(FIRM_QUERY, [FIRM]), step(FOUNDER_QUERY, [FALSE, FIRM]))
    second = the_run.steps[1].id
    _, found = await given(the_run)
    assert found[second, 1].value == pytest.approx(-0.9 - -0.1)
    assert (found[second, 2].value, found[second, 2].label, found[second, 2].stderr) == (0.0, "repeats", 0.0)


async def test_steps_of_one_turn_have_not_read_each_other():
    the_run = run(step(FIRM_QUERY, [FIRM]), step(FOUNDER_QUERY, [FOUNDER]), turns=[0, 0])
    _, found = await given(the_run)
    assert [score.metadata["read_before"] for score in found.values()] == [0, 0]
    assert [score.value for score in found.values()] == [pytest.approx(-0.1), pytest.approx(0.4)]


async def test_what_a_guard_dropped_was_not_read():
    the_run = run(step(FIRM_QUERY, [], candidates=[FIRM]), step(FOUNDER_QUERY, [FOUNDER]))
    _, found = await given(the_run)
    assert found[the_run.steps[1].id, 1].value == pytest.approx(0.4)


async def test_soft_relevance_counts_as_a_probability():
    the_run = run(step(FIRM_QUERY, [FIRM]), step(FOUNDER_QUERY, [FOUNDER]))
    _, found = await given(the_run, soft=True)
    assert found[the_run.steps[1].id, 1].value == pytest.approx(0.8 * 0.95 - -0.8 * 0.1)


async def test_it_is_off_unless_asked_for_and_its_cost_is_foretold():
    the_run = run(step(FIRM_QUERY, [FIRM]), step(FOUNDER_QUERY, [FOUNDER]))
    plain = ScoringPipeline(engine(), scorers=[Utility()])
    assert not [s for s in await plain.results(the_run) if getattr(s, "name", "") == "utility_given"]
    asks = [
        (await ScoringPipeline(engine(), scorers=[Utility(given=wanted)]).plan(the_run)).prompts
        for wanted in (False, True)
    ]
    # FIRM, and FIRM with FOUNDER: two questions each.
    assert asks == [4, 8]


async def test_costs_add_up_and_are_told_once():
    the_run = run(step(FIRM_QUERY, [FIRM, NOISE]), step(FOUNDER_QUERY, [NOISE, FOUNDER]))
    asking = engine()
    results, _ = await given(the_run, engine=lambda: asking)
    spent = sum(score.usage.prompts for score in results)
    assert spent == sum(len(call.prompts) for call in asking.calls)


async def test_what_cannot_be_judged_is_a_failure():
    def unsure(text, label):
        return 0.01 if FOUNDER in documents(text) and label in "AB" else weigh(text, label)

    the_run = run(step(FIRM_QUERY, [FIRM]), step(FOUNDER_QUERY, [FOUNDER]))
    results, found = await given(the_run, engine=lambda: ScriptedEngine(label=unsure))
    assert list(found) == [(the_run.steps[0].id, 1)]
    assert any("utility_given of passage 1" in one.message for one in results if isinstance(one, Failure))


async def test_a_run_without_a_question_has_none():
    the_run = run(step(FIRM_QUERY, [FIRM]))
    the_run.question = " "
    _, found = await given(the_run)
    assert found == {}

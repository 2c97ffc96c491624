"""What a passage adds, for the run's question, to what was read in earlier turns."""

import pytest
from support.reader import (
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
from support.scripted_engine import ScriptedEngine

from ragguard.errors import PromptTooLong
from ragguard.records import Failure, Score
from ragguard.scorers.pipeline import ScoringPipeline
from ragguard.scorers.utility import Utility

ABSTAINS = {frozenset(): 0.95, frozenset({FIRM}): 0.9, frozenset({FOUNDER}): 0.6,
            frozenset({FIRM, FOUNDER}): 0.05, frozenset({FALSE}): 0.7, frozenset({FIRM, FALSE}): 0.1}  # fmt: skip


def weigh(text, label):
    """Abstention by the whole context for the run's question, 0.5 for a step's own query; FIRM and FOUNDER are
    relevant to the queries that brought them."""
    read = documents(text)
    if label == "NO-RESPONSE":
        return ABSTAINS.get(frozenset(read) - {NOISE}, 1.0) if asked(text) == QUESTION else 0.5
    relevant = read[0] in (FIRM, FOUNDER)
    return 0.9 if (label == "A") == relevant else 0.1


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
    assert found[first, 1].value == pytest.approx(0.95 - 0.9)
    assert found[first, 2].value == 0.0
    assert found[second, 1].value == 0.0
    assert found[second, 2].value == pytest.approx(0.9 - 0.05)
    assert found[second, 2].explanation == "p(abstain) 0.90 → 0.05"
    assert found[second, 2].metadata["read_before"] == 2


async def test_a_lie_after_the_first_hop_costs_and_a_passage_read_before_adds_nothing():
    the_run = run(step(FIRM_QUERY, [FIRM]), step(FOUNDER_QUERY, [FALSE, FIRM]))
    second = the_run.steps[1].id
    _, found = await given(the_run)
    assert found[second, 1].value == pytest.approx(-(0.9 - 0.1))
    assert (found[second, 2].value, found[second, 2].label, found[second, 2].stderr) == (0.0, "repeats", 0.0)


async def test_a_passage_that_makes_the_reader_abstain_more_earns_nothing():
    the_run = run(step(FIRM_QUERY, [FIRM, FOUNDER]), step(FOUNDER_QUERY, [FALSE]))
    _, found = await given(the_run)  # with all three the reader abstains
    assert found[the_run.steps[1].id, 1].value == 0.0
    assert found[the_run.steps[1].id, 1].explanation == "p(abstain) 0.05 → 1.00"


async def test_steps_of_one_turn_have_not_read_each_other():
    the_run = run(step(FIRM_QUERY, [FIRM]), step(FOUNDER_QUERY, [FOUNDER]), turns=[0, 0])
    _, found = await given(the_run)
    assert [score.metadata["read_before"] for score in found.values()] == [0, 0]
    assert [score.value for score in found.values()] == [pytest.approx(0.05), pytest.approx(0.35)]


async def test_passage_that_the_guard_dropped_was_not_read():
    the_run = run(step(FIRM_QUERY, [], candidates=[FIRM]), step(FOUNDER_QUERY, [FOUNDER]))
    _, found = await given(the_run)
    assert found[the_run.steps[1].id, 1].value == pytest.approx(0.35)


async def test_soft_relevance_counts_as_a_probability():
    the_run = run(step(FIRM_QUERY, [FIRM]), step(FOUNDER_QUERY, [FOUNDER]))
    _, found = await given(the_run, soft=True)
    assert found[the_run.steps[1].id, 1].value == pytest.approx(0.8 * 0.85)


async def test_given_is_off_by_default_and_its_cost_is_planned():
    the_run = run(step(FIRM_QUERY, [FIRM]), step(FOUNDER_QUERY, [FOUNDER]))
    plain = ScoringPipeline(engine(), scorers=[Utility()])
    assert not [s for s in await plain.results(the_run) if getattr(s, "name", "") == "utility_given"]
    asks = [
        (await ScoringPipeline(engine(), scorers=[Utility(given=wanted)]).plan(the_run)).prompts
        for wanted in (False, True)
    ]
    # With nothing read, with FIRM, and with FIRM and FOUNDER.
    assert asks == [4, 7]


async def test_costs_add_up_and_are_told_once():
    the_run = run(step(FIRM_QUERY, [FIRM, NOISE]), step(FOUNDER_QUERY, [NOISE, FOUNDER]))
    asking = engine()
    results, _ = await given(the_run, engine=lambda: asking)
    spent = sum(score.usage.prompts for score in results)
    assert spent == sum(len(call.prompts) for call in asking.calls)


async def test_passage_that_cannot_be_judged_is_a_failure():
    asking = engine()

    def fault(call):
        texts = ["\n".join(message.content for message in prompt.messages) for prompt in call.prompts]
        return PromptTooLong("too long") if any(len(documents(text)) > 1 for text in texts) else None

    asking.fault = fault
    the_run = run(step(FIRM_QUERY, [FIRM]), step(FOUNDER_QUERY, [FOUNDER]))
    results, found = await given(the_run, engine=lambda: asking)
    assert list(found) == [(the_run.steps[0].id, 1)]
    assert any("utility_given of passage 1" in one.message for one in results if isinstance(one, Failure))


async def test_a_run_without_a_question_has_none():
    the_run = run(step(FIRM_QUERY, [FIRM]))
    the_run.question = " "
    _, found = await given(the_run)
    assert found == {}

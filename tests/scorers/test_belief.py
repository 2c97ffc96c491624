"""What the reader of a small story believes, to numbers known beforehand."""

import math
from dataclasses import replace

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
    TableEntailer,
    reader,
    run,
    step,
    two_hops,
)

from ragguard.errors import EngineUnreachable
from ragguard.records import Score
from ragguard.scorers.belief import Belief
from ragguard.scorers.pipeline import ScoringPipeline
from ragguard.scorers.view import Caps


async def test_two_hops_are_both_credited():
    results = await beliefs(two_hops())
    assert values(results, "seper_closed_book") == [soft(0)]
    assert values(results, "seper") == [soft(2), soft(10)]
    assert values(results, "seper_hard") == [0.2, 1.0]
    assert values(results, "delta_seper") == pytest.approx([soft(2) - soft(0), soft(10) - soft(2)])
    assert values(results, "delta_seper_alone") == pytest.approx([soft(2) - soft(0), soft(6) - soft(0)])
    assert values(results, "delta_seper_total") == pytest.approx([soft(10) - soft(0)])
    assert all(score.reference_source == "gold" for score in results if score.name.startswith("delta_seper"))


async def test_useless_steps_change_nothing_and_marginals_sum_to_the_total():
    results = await beliefs(
        run(step("?", [NOISE]), step(FIRM_QUERY, [FIRM]), step("?", [NEAR]), step(FOUNDER_QUERY, [FOUNDER]))
    )
    marginal = values(results, "delta_seper")
    assert marginal[0] == marginal[2] == 0
    assert sum(marginal) == pytest.approx(values(results, "delta_seper_total")[0])


async def test_parallel_hops_get_the_mean_over_both_orders():
    results = await beliefs(run(step(FIRM_QUERY, [FIRM]), step(FOUNDER_QUERY, [FOUNDER]), turns=[0, 0]))
    firm = ((soft(2) - soft(0)) + (soft(10) - soft(6))) / 2
    founder = ((soft(6) - soft(0)) + (soft(10) - soft(2))) / 2
    assert values(results, "delta_seper") == pytest.approx([firm, founder])
    assert sum(values(results, "delta_seper")) == pytest.approx(values(results, "delta_seper_total")[0])
    assert [score.metadata["order"] for score in results if score.name == "delta_seper"] == [
        "mean over all"
    ] * 2


async def test_many_parallel_hops_go_in_call_order_and_say_so():
    hops = [step("?", [text]) for text in (FIRM, FOUNDER, NOISE, NEAR)]
    results = await beliefs(run(*hops, turns=[0] * 4))
    assert values(results, "delta_seper") == pytest.approx([soft(2) - soft(0), soft(10) - soft(2), 0, 0])
    assert {score.metadata["order"] for score in results if score.name == "delta_seper"} == {"tool calls"}


async def test_steps_that_nobody_numbered_came_one_after_another():
    the_run = two_hops()
    for one in the_run.steps:
        one.index = one.turn = 0
    assert values(await beliefs(the_run), "delta_seper") == values(await beliefs(two_hops()), "delta_seper")


async def test_passage_that_the_guard_dropped_was_not_read():
    guarded = run(step(FIRM_QUERY, [FIRM]), step(FOUNDER_QUERY, [FOUNDER], candidates=[FALSE, FOUNDER]))
    assert values(await beliefs(guarded), "seper") == [soft(2), soft(10)]
    emptied = run(step(FIRM_QUERY, [FIRM]), step(FOUNDER_QUERY, [], candidates=[FALSE, FOUNDER]))
    assert values(await beliefs(emptied), "seper") == [soft(2)]


async def test_without_gold_the_runs_own_answer_is_supported_even_when_it_is_wrong():
    misled = run(step(FIRM_QUERY, [FIRM]), step(FOUNDER_QUERY, [FALSE]), references=None, answer="Bo Lund")
    results = await beliefs(misled)
    gain = [score for score in results if score.name == "delta_seper"]
    assert gain[1].value == pytest.approx(soft(10) - soft(0))
    assert {(score.reference_source, score.label) for score in gain} == {("answer", "support")}
    gold = await beliefs(run(step(FIRM_QUERY, [FIRM]), step(FOUNDER_QUERY, [FALSE]), answer="Bo Lund"))
    assert values(gold, "delta_seper")[1] < 0
    assert {score.references_hash for score in gold if score.name == "delta_seper"}.isdisjoint(
        {score.references_hash for score in gain}
    )


@pytest.mark.parametrize("answer", [None, "", "NO-RESPONSE", "I don't know."])
async def test_an_abstention_is_supported_by_nothing_but_entropy_is_always_there(answer):
    results = await beliefs(two_hops(references=None, answer=answer))
    assert {score.name for score in results} == {"semantic_entropy", "delta_semantic_entropy"}
    entropies = values(results, "semantic_entropy")
    # Eight guesses and two right ones; then all the same.
    assert entropies == pytest.approx([-0.2 * math.log(0.2) - 0.8 * math.log(0.1), 0], abs=1e-6)
    assert values(results, "delta_semantic_entropy")[1] == pytest.approx(entropies[0])


@pytest.mark.parametrize("answer", [None, "NO-RESPONSE"])
async def test_without_a_reference_no_context_is_asked_about_that_no_score_is_about(answer):
    the_run = run(
        step(FIRM_QUERY, [FIRM], candidates=[FIRM, NEAR]), step(FOUNDER_QUERY, [FOUNDER]),
        references=None, answer=answer,
    )  # fmt: skip
    engine = reader()
    await beliefs(the_run, engine=engine)
    assert [len(call.prompts) for call in engine.calls] == [3], "none, the first hop, and both hops"
    plan = await ScoringPipeline(reader(), entailer=TableEntailer(), scorers=[Belief()]).plan(the_run)
    assert plan.calls["engine", "sample"].prompts == 3


async def test_a_long_answer_is_shortened_first_and_that_is_recorded():
    long = (
        "After having looked at everything that was retrieved, I can say with some confidence that " * 3
        + "it was Ada Berg."
    )
    results = await beliefs(two_hops(references=None, answer=long))
    total = only(results, "delta_seper_total")
    assert total.value == pytest.approx(soft(10) - soft(0))
    assert total.metadata["condensed"] == "Ada Berg"


async def test_long_references_are_not_for_beliefs():
    results = await beliefs(two_hops(references=["It all began in the year " * 12]))
    assert {score.name for score in results if isinstance(score, Score)} == {
        "semantic_entropy",
        "delta_semantic_entropy",
    }
    (failure,) = [result for result in results if not isinstance(result, Score)]
    assert failure.error == "ScoringError"
    assert "answer_coverage" in failure.message


async def test_any_of_several_references_will_do():
    entailer = TableEntailer(aliases=[frozenset({"ada berg", "a berg", "berg"})])
    results = await beliefs(two_hops(references=["Someone else", "A. Berg", "Berg"]), entailer=entailer)
    assert values(results, "seper_hard") == [0.2, 1.0]
    assert values(results, "seper")[1] == pytest.approx(0.9), (
        "an alias entails the reference, in nine of ten parts"
    )


async def test_without_log_probabilities_answers_are_counted():
    class Silent(type(reader())):
        async def sample(self, *args, **more):
            drawn = await super().sample(*args, **more)
            for row in drawn.rows:
                row[:] = [type(sample)(sample.text, ()) for sample in row]
            return drawn

    plain = reader()
    results = await beliefs(
        two_hops(), scorer=Belief(), engine=Silent(label=plain.label, answer=plain.answer)
    )
    assert values(results, "seper_hard") == [0.2, 1.0]
    assert only(results, "seper_closed_book").metadata["weights"] == "count"


async def test_ten_equal_answers_are_not_certainty_and_errors_combine():
    results = await beliefs(two_hops())
    before, after = [score for score in results if score.name == "seper"]
    assert after.stderr > 0.05
    change = [score for score in results if score.name == "delta_seper"][1]
    assert change.stderr == pytest.approx(math.hypot(before.stderr, after.stderr))


async def test_the_same_run_gives_the_same_scores():
    first, second = await beliefs(two_hops()), await beliefs(two_hops())
    assert [score.value for score in first] == [score.value for score in second]
    engine = reader()
    await beliefs(two_hops(), engine=engine)
    other = two_hops()
    other.question += " Please."
    await beliefs(other, engine=engine)
    assert engine.calls[0].seed != engine.calls[1].seed


async def test_a_small_window_drops_the_earliest_passages_and_tells_how_many():
    engine = reader(context=110)
    results = await beliefs(two_hops(), engine=engine)
    last = [score for score in results if score.name == "seper"][1]
    assert last.metadata["dropped_passages"] >= 1
    assert last.value < soft(10)


async def test_steps_over_the_cap_are_failures_with_that_reason():
    results = await beliefs(two_hops(), caps=Caps(steps=1))
    (failure,) = [result for result in results if not isinstance(result, Score)]
    assert failure.error == "CapExceeded"
    assert failure.step_id
    assert len(values(results, "seper")) == 1
    assert only(results, "delta_seper_total").metadata["steps_not_scored"] == 1


async def test_a_step_that_retrieved_nothing_leaves_belief_as_it_was_and_asks_nothing():
    one, both = step(FOUNDER_QUERY, [FOUNDER]), step(FIRM_QUERY, [])
    engine, alone = reader(), reader()
    results = await beliefs(run(one, both), engine=engine)
    before = await beliefs(run(replace(one)), engine=alone)
    assert [len(call.prompts) for call in engine.calls] == [len(call.prompts) for call in alone.calls]
    for name in ("seper", "seper_hard", "semantic_entropy"):
        first, second = (found.value for found in results if getattr(found, "name", "") == name)
        assert first == second, name
    for name in ("delta_seper", "delta_seper_alone", "delta_semantic_entropy"):
        _, nothing = [found for found in results if getattr(found, "name", "") == name]
        assert (nothing.step_id, nothing.value, nothing.stderr) == (both.id, 0.0, 0.0), name
    assert values(results, "delta_seper_total") == values(before, "delta_seper_total")


@pytest.mark.parametrize("status", ["error", "open", "cancelled"])
async def test_a_retrieval_that_did_not_end_well_is_no_empty_one(status):
    assert await beliefs(run(replace(step("?", []), status=status))) == []


async def test_a_run_without_a_question_says_so():
    the_run = two_hops()
    the_run.question = " "
    (failure,) = await beliefs(the_run)
    assert failure.error == "ScoringError"


async def test_an_entailer_that_is_gone_is_a_failure_worth_repeating():
    results = await beliefs(two_hops(), entailer=TableEntailer(fault=EngineUnreachable("gone")))
    failures = [result for result in results if not isinstance(result, Score)]
    assert failures
    assert all(failure.error == "EngineUnreachable" and failure.will_retry for failure in failures)

"""Which sub-questions the passages answer, step by step, and what the answer keeps of it."""

import math

import pytest
from support.reader import (
    FIRM,
    FIRM_QUERY,
    FOUNDER,
    FOUNDER_QUERY,
    NEAR,
    NOISE,
    named,
    reader,
    run,
    step,
    two_hops,
    values,
)

from ragguard.records import Failure, Passage
from ragguard.scorers.coverage import Coverage
from ragguard.scorers.pipeline import ScoringPipeline
from ragguard.scorers.question import count_tokens
from ragguard.scorers.view import Caps


async def coverage(the_run, engine=None, **more):
    return await ScoringPipeline(engine or reader(), scorers=[Coverage()], **more).results(the_run)


async def test_sub_questions_are_made_once_and_every_passage_is_rated_for_each():
    engine = reader()
    results = await coverage(two_hops(), engine)
    ratings = {(s.step_id, s.position, s.sub_question): s.value for s in named(results, "answerability")}
    assert sorted(ratings.values()) == [0] * 5 + [1, 5, 5]
    assert [call.verb for call in engine.calls] == ["sample", "label_probs"]
    assert {s.explanation for s in named(results, "answerability")} == {FIRM_QUERY, FOUNDER_QUERY}
    best = max(named(results, "answerability"), key=lambda s: s.value)
    assert best.expectation == pytest.approx(0.8 * 5 + 0.04 * (0 + 1 + 2 + 3 + 4))


async def test_sub_questions_over_the_cap_are_a_failure_that_counts_them():
    results = await coverage(two_hops(), caps=Caps(sub_questions=1))
    (failure,) = [one for one in results if isinstance(one, Failure)]
    assert failure.message.startswith("1 of 2 sub-questions: at most 1 sub-questions of a run are rated")


async def test_coverage_grows_and_what_each_step_adds_sums_to_it():
    results = await coverage(two_hops())
    assert values(results, "coverage") == [0.5, 1.0]
    assert values(results, "delta_coverage") == [0.5, 0.5]
    assert values(results, "coverage_total") == [1.0]


async def test_a_candidate_that_cannot_be_rated_takes_nothing_from_what_the_model_got():
    engine = reader()
    rated = engine.label
    engine.label = lambda text, label: 0.01 if "Unratable" in text else rated(text, label)
    the_run = run(
        step(FIRM_QUERY, [FIRM], candidates=[FIRM, "Unratable."]), step(FOUNDER_QUERY, [NOISE, FOUNDER])
    )
    results = await coverage(the_run, engine)
    assert values(results, "coverage") == [0.5, 1.0]
    assert values(results, "delta_coverage") == [0.5, 0.5]
    assert len(named(results, "alpha_ndcg")) == 1, "only the step that retrieved it has no ideal"
    assert not named(results, "alpha_ndcg_total")
    missing = [failure.message for failure in results if isinstance(failure, Failure)]
    assert any("alpha_ndcg (passages)" in message for message in missing)
    assert not any(" coverage (passages)" in message for message in missing)


async def test_ranked_coverage_of_a_step_is_beside_what_that_step_retrieved():
    results = await coverage(two_hops())
    assert values(results, "alpha_ndcg") == [1.0, 1 / math.log2(3)]
    ideal = 1 + 1 / math.log2(3)
    assert values(results, "alpha_ndcg_total") == [(1 + 1 / math.log2(5)) / ideal]


async def test_a_step_that_only_repeats_earlier_ones_is_worth_half():
    results = await coverage(
        run(step(FIRM_QUERY, [FIRM]), step(FIRM_QUERY, [FIRM]), step(FIRM_QUERY, [FIRM]))
    )
    assert values(results, "alpha_ndcg") == [1.0, 0.5, 0.5], "one passage, however often the model got it"
    other = "Norvik Mills, a firm, has its seat in Oslo."
    engine = reader()
    plain = engine.label
    engine.label = lambda text, label: plain(text.replace(other, FIRM), label)
    results = await coverage(
        run(step(FIRM_QUERY, [FIRM]), step(FIRM_QUERY, [other]), step(FIRM_QUERY, [FIRM])), engine
    )
    assert values(results, "alpha_ndcg") == [1.0, 0.5, 0.25]


async def test_ranked_coverage_has_the_places_of_what_a_guard_dropped():
    dropping = step(FIRM_QUERY, [FIRM], candidates=[FIRM, FOUNDER], k=2)
    emptied = step(FOUNDER_QUERY, [], candidates=[FOUNDER, NOISE], k=2)
    results = await coverage(run(dropping, emptied))
    assert values(results, "alpha_ndcg") == [1 / (1 + 1 / math.log2(3)), 0.0]
    assert values(results, "coverage") == [0.5, 0.5]
    assert [score.metadata["k"] for score in named(results, "alpha_ndcg")] == [2, 2]


async def test_given_sub_questions_are_used_as_they_are():
    engine = reader()
    results = await coverage(two_hops(sub_questions=[FIRM_QUERY, " ", FIRM_QUERY]), engine)
    assert [call.verb for call in engine.calls] == ["label_probs"]
    assert named(results, "coverage_total")[0].metadata["sub_questions"] == [FIRM_QUERY]
    made = await coverage(two_hops())
    assert named(results, "coverage_total")[0].key != named(made, "coverage_total")[0].key


async def test_a_repeated_passage_is_redundant():
    results = await coverage(run(step(FIRM_QUERY, [FIRM]), step(FIRM_QUERY, [FIRM, FOUNDER])))
    assert [(s.value, s.label) for s in named(results, "redundancy")] == [
        (0.0, "required"), (1.0, "repeats"), (0.0, "required"),
    ]  # fmt: skip


async def test_only_a_pool_may_take_sub_questions_out():
    asked = [FIRM_QUERY, FOUNDER_QUERY, "What colour is it?"]
    plain = await coverage(two_hops(sub_questions=asked))
    assert values(plain, "coverage_total") == [2 / 3]
    pool = [Passage(FIRM, grade=4), Passage(FOUNDER, grade=5), Passage(NOISE, grade=1)]
    pooled = await coverage(two_hops(sub_questions=asked, pool=pool))
    assert values(pooled, "coverage_total") == [1.0]
    assert named(pooled, "density")[0].metadata["oracle"] == "pool"


async def test_the_answer_is_rated_like_a_passage():
    results = await coverage(two_hops())
    assert values(results, "answer_coverage") == [0.5]
    lengths = [count_tokens(text) for text in (FIRM, FOUNDER)]
    density = (0.5 / count_tokens("Ada Berg") * sum(lengths)) ** 0.5
    assert values(results, "answer_density") == [density]


async def test_an_abstention_answers_nothing_and_is_not_rated():
    engine = reader()
    results = await coverage(two_hops(answer="NO-RESPONSE"), engine)
    (score,) = named(results, "answer_coverage")
    assert (score.value, score.label) == (0.0, "abstained")
    assert not named(results, "answer_density")
    assert len(engine.calls[1].prompts) == 8


async def test_ratings_that_fail_are_told_and_nothing_is_made_of_them():
    engine = reader()
    plain = engine.label
    engine.label = lambda text, label: 0.01 if NEAR in text else plain(text, label)
    results = await coverage(two_hops(), engine)
    failures = [result for result in results if isinstance(result, Failure)]
    assert {failure.error for failure in failures} == {"LowLabelMass"}
    assert not named(results, "coverage")
    assert values(results, "answer_coverage") == [0.5], "the answer itself was rated"
    assert not named(results, "answer_density")
    assert len(named(results, "answerability")) == 6


async def test_without_question_and_sub_questions_there_is_nothing_to_cover():
    the_run = two_hops()
    the_run.question = ""
    (failure,) = await coverage(the_run)
    assert failure.error == "ScoringError"
    the_run.sub_questions = [FIRM_QUERY]
    assert values(await coverage(the_run), "coverage_total") == [1.0]


async def test_a_step_that_retrieved_nothing_covers_what_was_covered_before():
    engine, alone = reader(), reader()
    results = await coverage(run(step(FIRM_QUERY, [FIRM]), step(FOUNDER_QUERY, [])), engine)
    await coverage(run(step(FIRM_QUERY, [FIRM])), alone)
    assert [call.prompts for call in engine.calls] == [call.prompts for call in alone.calls]
    assert values(results, "coverage") == [0.5, 0.5]
    assert values(results, "delta_coverage") == [0.5, 0.0]
    assert values(results, "coverage_total") == [0.5]

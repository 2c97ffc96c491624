"""What each passage does for the reader, for its own step's query, before and after the guard."""

import math

import pytest
from support.likely_engine import LikelyEngine
from support.reader import (
    FALSE,
    FIRM,
    FIRM_QUERY,
    FOUNDER,
    FOUNDER_QUERY,
    NEAR,
    NOISE,
    QUESTION,
    named,
    reader,
    run,
    step,
    two_hops,
    values,
)
from support.scripted_engine import ScriptedEngine

from ragguard.engines.base import LabelProbs
from ragguard.errors import InvalidInput
from ragguard.metrics import udcg, udcg_of_parts, utility_parts
from ragguard.records import Failure, Passage, RetrievalStep, Run
from ragguard.scorers.pipeline import ScoringPipeline
from ragguard.scorers.utility import QueryFit, Utility
from ragguard.scorers.view import Caps

BINARY = Utility(relevance="binary")


async def utility(the_run, engine=None, scorer="utility", **more):
    return await ScoringPipeline(engine or reader(), scorers=[scorer], **more).results(the_run)


async def test_a_passage_is_judged_for_its_own_steps_query():
    results = await utility(two_hops())
    assert values(results, "p_abstain") == [0.1, 0.6, 0.95, 0.05]
    assert values(results, "p_relevant") == [0.9, 0.2, 0.04, 0.96]
    r, p = [0.9, 0.2, 0.04, 0.96], [0.1, 0.6, 0.95, 0.05]
    assert values(results, "utility") == [0.8 * 0.9, -0.6 * 0.4, -0.92 * 0.05, 0.92 * 0.95]
    gain, harm = utility_parts(r, p)
    assert values(results, "udcg") == [udcg_of_parts(gain[:2], harm[:2]), udcg_of_parts(gain[2:], harm[2:])]
    assert values(results, "udcg_context") == [udcg_of_parts(gain, harm)]
    assert [score.position for score in named(results, "utility")] == [1, 2, 1, 2]
    assert [score.metadata["k"] for score in named(results, "udcg")] == [2, 2]


async def test_binary_relevance_is_the_papers_utility():
    results = await utility(two_hops(), scorer=BINARY)
    assert values(results, "utility") == [0.9, -0.4, -0.05, 0.95]
    assert values(results, "udcg") == [udcg([0.9, -0.4]), udcg([-0.05, 0.95])]
    assert values(results, "udcg_context") == [udcg([0.9, -0.4, -0.05, 0.95])]


async def test_the_option_of_the_pipeline_is_that_of_the_scorer_given_by_name_and_scores_of_both_forms_differ_in_key():
    by_name = await utility(two_hops(), relevance="binary")
    expected = await utility(two_hops())
    assert values(by_name, "utility") == [0.9, -0.4, -0.05, 0.95]
    keys = {score.key for score in named(by_name, "utility")} & {
        score.key for score in named(expected, "utility")
    }
    assert not keys
    with pytest.raises(InvalidInput, match="relevance"):
        ScoringPipeline(reader(), relevance="hard")


async def test_the_judge_sees_references_only_where_the_step_asked_the_question():
    engine = reader()
    results = await utility(run(step(QUESTION.upper(), [FOUNDER]), step(FOUNDER_QUERY, [FOUNDER])), engine)
    relevance = [text for call in engine.calls if call.labels == ("A", "B") for text in call.texts]
    assert ["<references>" in text for text in relevance] == [True, False]
    assert [score.reference_source for score in named(results, "p_relevant")] == ["gold", "none"]
    first, second = named(results, "utility")
    assert first.references_hash != second.references_hash == ""


async def test_before_and_after_the_guard_are_two_scores():
    guarded = run(step(FOUNDER_QUERY, [FOUNDER], candidates=[FALSE, FOUNDER, NOISE]))
    results = await utility(guarded, scorer=BINARY)
    assert values(results, "udcg") == [udcg([0.95])]
    assert values(results, "udcg", "candidates") == [udcg([-0.9, 0.95, -0.05])]
    before, after = named(results, "udcg", "candidates")[0], named(results, "udcg")[0]
    assert (before.label, after.label) == ("before", "after")
    assert (before.metadata["k"], after.metadata["k"]) == (3, 1)
    assert before.key != after.key
    assert [score.position for score in named(results, "utility")] == [1, 2, 3]
    assert values(results, "udcg_context") == [udcg([0.95])]


async def test_a_passage_that_a_compressor_rewrote_stands_behind_the_candidates():
    rewritten = run(step(FOUNDER_QUERY, [FOUNDER], candidates=["A long text about Ada Berg."]))
    results = await utility(rewritten, scorer=BINARY)
    assert [(score.position, round(score.value, 6)) for score in named(results, "utility")] == [
        (1, -0.05),
        (2, 0.95),
    ]
    assert values(results, "udcg") == [udcg([0.95])]


async def test_over_the_cap_the_model_passages_come_first_and_the_rest_is_a_failure():
    candidates = [NOISE, NEAR, FALSE, FOUNDER]
    results = await utility(run(step(FOUNDER_QUERY, [FOUNDER], candidates=candidates)), caps=Caps(passages=2))
    assert [score.position for score in named(results, "utility")] == [1, 4]
    (failure,) = [result for result in results if isinstance(result, Failure)]
    assert (failure.error, failure.scorer) == ("CapExceeded", "utility")
    assert "2 of 4 passages" in failure.message
    assert named(results, "udcg", "candidates")[0].metadata["not_judged"] == 2


async def test_a_judge_that_would_rather_chat_is_a_failure_and_not_a_score():
    engine = reader()
    plain = engine.label
    engine.label = lambda text, label: 0.1 if label in "AB" and NEAR in text else plain(text, label)
    results = await utility(two_hops(), engine)
    (failure,) = [result for result in results if isinstance(result, Failure)]
    assert failure.error == "LowLabelMass"
    assert "p_relevant of passage 2" in failure.message
    assert [score.position for score in named(results, "utility")] == [1, 1, 2]
    assert len(named(results, "udcg")) == 1, "a step judged in part has no UDCG"
    assert not named(results, "udcg_context")


async def test_errors_of_sampled_probabilities_are_carried_on():
    class Sampled(type(reader())):
        async def label_probs(self, *args, **more):
            probs = await super().label_probs(*args, **more)
            return LabelProbs(probs.p, False, "sampled", probs.usage, stderr=probs.p * 0 + 0.1)

    plain = reader()
    sampled = Sampled(label=plain.label, answer=plain.answer)
    results = await utility(two_hops(), sampled, scorer=BINARY)
    assert {score.stderr for score in named(results, "p_abstain")} == {0.1}
    assert {score.stderr for score in named(results, "utility")} == {0.1}
    first = named(results, "udcg")[0]
    expected = first.value * (1 - first.value) * math.hypot(0.1, 0.1 / 3) / 2
    assert first.stderr == pytest.approx(expected)
    results = await utility(two_hops(), sampled)
    of_r = named(results, "p_relevant")[0].stderr
    assert of_r > 0
    first = named(results, "utility")[0]
    assert first.stderr == pytest.approx(math.hypot(0.8 * 0.1, 2 * 0.9 * of_r))
    udcg_of_one = named(await utility(run(step(FIRM_QUERY, [FIRM])), sampled), "udcg")[0]
    slope = udcg_of_one.value * (1 - udcg_of_one.value)
    inner = math.hypot((0.9 - 0.1 / 3) * 0.1, 4 / 3 * 0.9 * of_r)
    assert udcg_of_one.stderr == pytest.approx(slope * inner)
    assert named(results, "p_abstain")[0].metadata["how"] == "sampled"


async def test_a_bound_says_so_and_claims_no_error():
    class TopK(type(reader())):
        async def label_probs(self, *args, **more):
            probs = await super().label_probs(*args, **more)
            return LabelProbs(probs.p, False, usage=probs.usage, bound=probs.p < 0.07)

    plain = reader()
    results = await utility(two_hops(), TopK(label=plain.label, answer=plain.answer))
    exact, *_, bound = named(results, "p_abstain")
    assert (exact.stderr, bound.stderr) == (0.0, None)
    assert bound.metadata == {"bound": "upper"}
    assert named(results, "udcg")[1].stderr is None


async def test_a_judge_of_its_own_is_named():
    judge = reader(model="strict")
    results = await utility(two_hops(), judge=judge)
    assert {score.engine for score in named(results, "p_relevant")} == {"strict/first_token"}
    assert {score.engine for score in named(results, "utility")} == {"scripted/first_token"}
    assert {score.metadata["judge"] for score in named(results, "utility")} == {"strict/first_token"}


async def test_learned_udcg_is_given_to_lists_with_as_many_places_as_the_weights():
    theta = {"k": 2, "ablation": None, "alpha": [2.0, 1.0], "beta": [1.0, 0.5]}
    results = await utility(two_hops(), scorer=Utility(theta=theta, relevance="binary"))
    assert values(results, "learned_udcg") == [
        1 / (1 + math.exp(-(2 * 0.9 - 0.5 * 0.4))), 1 / (1 + math.exp(-(-0.05 + 0.95)))
    ]  # fmt: skip
    three = {**theta, "k": 3, "alpha": [1.0] * 3, "beta": [1.0] * 3}
    assert not named(await utility(two_hops(), scorer=Utility(theta=three)), "learned_udcg")


FITS, NOT, QUERY = "The ferry leaves at noon.", "Lemons are yellow.", "When does the ferry leave?"


def likely(prompt, text):
    return -1.0 if FITS in prompt else -3.5 if NOT in prompt else -3.0


def a_run(*steps):
    return Run(id="r", question=QUERY, answer="noon", steps=list(steps) or [a_step()])


def a_step(query=QUERY, passages=(FITS, NOT), **more):
    return RetrievalStep(
        id="s", run_id="r", query=query, passages=[Passage(text) for text in passages], **more
    )


async def scored(run=None, engine=None, scorer=None):
    engine = engine or LikelyEngine(likely=likely)
    return await ScoringPipeline(engine, scorers=[scorer or QueryFit()]).results(run or a_run())


async def test_gain_of_a_passage_is_what_it_adds_to_the_log_probability_of_the_query():
    results = await scored()
    assert [(s.name, s.position, s.value) for s in results] == [
        ("query_gain", 1, 2.0),
        ("query_gain", 2, -0.5),
    ]
    assert {score.reference_source for score in results} == {"none"}


async def test_one_prompt_for_each_passage_and_one_for_each_query():
    engine = LikelyEngine(likely=likely)
    again = RetrievalStep(id="t", run_id="r", index=1, query=QUERY, passages=[Passage("The ferry is red.")])
    results = await scored(a_run(a_step(), again), engine)
    assert sum(len(call.prompts) for call in engine.calls) == 4
    assert sum(score.usage.prompts for score in results) == 4


async def test_engine_that_cannot_tell_gives_a_failure_with_the_way_out():
    (failure,) = await scored(engine=ScriptedEngine())
    assert isinstance(failure, Failure)
    assert "smol, hf:MODEL, or a vLLM server" in failure.message

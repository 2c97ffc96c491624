"""Stated errors of beliefs beside the spread of the same belief over many draws of answers."""

import asyncio
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.beliefs import only, values
from support.likely_engine import LikelyEngine
from support.reader import TableEntailer

from ragguard import connect, world
from ragguard.engines.base import Sample
from ragguard.engines.prompts import load_prompts
from ragguard.records import Failure, Passage, RetrievalStep, Run, Score
from ragguard.scorers.belief import Belief
from ragguard.scorers.estimates import Estimator, Meanings
from ragguard.scorers.pipeline import ScoringPipeline
from ragguard.scorers.probes import belief
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
    found = np.array([one.estimates[kind] for one in await estimates()])
    values, errors = found.T
    ratio = np.sqrt((errors**2).mean()) / values.std(ddof=1)
    assert 0.9 < ratio < 1.3
    assert np.mean(np.abs(values - values.mean()) < 1.96 * errors) > 0.9


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
    assert found.estimates["entropy"].value == pytest.approx(np.log(3) - 2 / 3 * np.log(2))
    assert found.estimates["entropy"].stderr > 0


CASE = next(case for case in world.cases(20, seed=3, hops=2) if not case.known)


HOPS = [[passage for passage in CASE.gold if passage.metadata["hop"] == hop] for hop in (1, 2)]


def two_hops(references=(), answer="nothing"):
    steps = [
        RetrievalStep(id=f"s{i}", run_id="r", index=i, query=query, passages=passages)
        for i, (query, passages) in enumerate(zip(CASE.sub_questions, HOPS, strict=True))
    ]
    return Run(id="r", question=CASE.question, references=list(references), answer=answer, steps=steps)


async def scored(run, engine="nano"):
    pipeline = ScoringPipeline(
        connect(engine) if isinstance(engine, str) else engine, scorers=[Belief(by="likelihood")]
    )
    return await pipeline.results(run)


async def test_likelihood_of_a_step_is_the_engines_probability_of_the_reference_per_token():
    run = two_hops(CASE.references)
    results = await scored(run)
    engine = connect("nano")
    texts = [passage.text for passages in HOPS for passage in passages]
    prompt = belief(load_prompts("nano"), CASE.question, texts, n=1, seed=0).prompt
    (found,) = await engine.continuations([prompt], [list(CASE.references)])
    assert values(results, "likelihood")[-1] == pytest.approx(
        max(math.exp(one.mean) for one in found), abs=1e-3
    )
    assert values(results, "likelihood_total")[-1] == pytest.approx(
        sum(math.exp(one.total + one.end) for one in found), abs=1e-3
    )


async def test_differences_of_the_steps_sum_to_that_of_the_run():
    results = await scored(two_hops(CASE.references))
    total = only(results, "delta_likelihood_total").value
    assert sum(values(results, "delta_likelihood")) == pytest.approx(total, abs=1e-5)
    assert total > 0.5
    assert only(results, "likelihood_closed_book").value + total == pytest.approx(
        values(results, "likelihood")[-1], abs=1e-5
    )
    assert {score.reference_source for score in results if isinstance(score, Score)} == {"gold"}


async def test_several_references_cost_one_prompt_each_and_the_best_counts():
    one = await scored(two_hops(CASE.references[:1]))
    both = await scored(two_hops([*CASE.references[:1], "East Dundale Lemon"]))
    assert values(both, "likelihood") == values(one, "likelihood")
    asked = [sum(score.usage.prompts for score in results) for results in (one, both)]
    assert asked[1] == 2 * asked[0]


async def test_a_new_setting_at_its_default_leaves_the_identity_of_scores_as_it_was():
    versions = {}
    for by in ("samples", "likelihood"):
        pipeline = ScoringPipeline(connect("nano"), scorers=[Belief(by=by)])
        results = await pipeline.results(two_hops(CASE.references))
        versions[by] = {score.version for score in results if isinstance(score, Score)}
    assert len(versions["samples"]) == len(versions["likelihood"]) == 1
    assert versions["samples"] != versions["likelihood"]


async def test_auto_draws_where_the_reference_is_not_nearly_certain_and_more_where_they_are_mixed():
    def likely(prompt, text):
        return -0.001 if "gold" in prompt else -4.0

    engine = LikelyEngine(
        likely=likely,
        answer=lambda text, index: "Ada" if "other" in text and not index else f"guess {index}",
        label=lambda text, label: {"A": 0.1, "B": 0.8, "C": 0.1}.get(label),
        capabilities=frozenset({"batch", "n_samples", "sample_logprobs", "continuations", "exact_labels"}),
    )
    steps = [
        RetrievalStep(id=text, run_id="r", index=at, query="q", passages=[Passage(text)])
        for at, text in enumerate(("other", "gold"))
    ]
    run = Run(id="r", question="Who?", references=["Ada"], answer="Ada", steps=steps)
    results = await ScoringPipeline(engine, scorers=[Belief(by="auto")]).results(run)
    drawn = {
        (call.texts[at], call.n)
        for call in engine.calls
        if call.verb == "sample"
        for at in range(len(call.texts))
    }
    times = {n: sum("other" in text for text, count in drawn if count == n) for n in (5, 10)}
    assert times == {5: 1, 10: 0}
    assert not any("gold" in text for text, _ in drawn)
    found = {(one.name, one.step_id): one for one in results if isinstance(one, Score)}
    assert found["seper", "gold"].value == pytest.approx(1.0, abs=0.01)
    assert found["seper", "gold"].metadata["how"] == "likelihood"
    assert found["seper", "other"].metadata["samples"] == 10
    assert found["delta_likelihood", "gold"].value > 0.9


@pytest.mark.parametrize(("end", "bound"), [(-7.0, None), (None, "upper")])
async def test_auto_does_not_believe_the_beginning_of_a_longer_answer(end, bound):
    """The reader always says "New York Times": "New York" is its beginning and no answer of its."""
    engine = LikelyEngine(
        likely=lambda prompt, text: -0.005,
        end=end,
        answer=lambda text, index: "New York Times",
        label=lambda text, label: {"A": 0.1, "B": 0.1, "C": 0.8}.get(label),
        capabilities=frozenset({"batch", "n_samples", "sample_logprobs", "continuations", "exact_labels"}),
    )
    step = RetrievalStep(id="s", run_id="r", index=0, query="q", passages=[Passage("It is a paper.")])
    run = Run(id="r", question="Which?", references=["New York", "New York "], answer="Times", steps=[step])
    results = await ScoringPipeline(engine, scorers=[Belief(by="auto")]).results(run)
    assert only(results, "seper").value == pytest.approx(0.1, abs=0.02)
    total = only(results, "likelihood_total")
    assert total.metadata.get("bound") == bound
    assert total.value == pytest.approx(math.exp(-0.01 + (end or 0)), abs=1e-6)
    assert only(results, "likelihood").value == pytest.approx(math.exp(-0.005))


WORDS = ("Oslo", "Bergen", "Oslo town", "Kiel", "NO-RESPONSE")


@given(
    st.dictionaries(st.sampled_from(WORDS[:4]), st.floats(-8, -0.01), min_size=4, max_size=4),
    st.lists(st.sampled_from(WORDS), min_size=10, max_size=10),
    st.lists(st.sampled_from(WORDS[:4]), min_size=1, max_size=3, unique=True),
    st.sampled_from(WORDS[:4]),
)
@example(dict.fromkeys(WORDS[:4], -4.0) | {"Oslo": math.log(0.79)}, ["Oslo"] * 10, ["Oslo"], "Bergen")
@example(dict.fromkeys(WORDS[:4], -4.0), ["Oslo town"] * 4 + ["Kiel"] + ["Bergen"] * 5, ["Oslo"], "Kiel")
@settings(max_examples=40, deadline=None)
def test_with_auto_another_reference_lowers_no_belief(logs, drawn, references, another):
    """Whether likelihood or answers decide, and however many answers are drawn."""

    def believed(answers):
        asked = Counter()

        def next_answer(text, index):
            asked[text] += 1
            return drawn[(asked[text] - 1) % 10]

        engine = LikelyEngine(
            likely=lambda prompt, text: logs[text] / len(text.split()),
            answer=next_answer,
            capabilities=frozenset(
                {"batch", "n_samples", "sample_logprobs", "continuations", "exact_labels"}
            ),
        )
        step = RetrievalStep(id="s", run_id="r", index=0, query="q", passages=[Passage("It is a town.")])
        run = Run(id="r", question="Which?", references=answers, answer="Rome", steps=[step])
        entailer = TableEntailer([frozenset({"oslo", "oslo town"})])
        scorers = [Belief(by="auto", credit=0)]
        results = asyncio.run(ScoringPipeline(engine, entailer=entailer, scorers=scorers).results(run))
        assert not [one for one in results if isinstance(one, Failure)]
        return {(one.name, one.step_id): one.value for one in results if one.name in ("seper", "seper_hard")}

    before, after = believed(references), believed([*references, another])
    assert before.keys() == after.keys()
    assert all(after[key] >= before[key] - 1e-9 for key in before)

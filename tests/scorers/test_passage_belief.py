"""What a passage does to the belief: alone, among all that was read, and for what the run answered."""

import math
from dataclasses import replace

import pytest
from support.likely_engine import LikelyEngine
from support.reader import TableEntailer
from support.scripted_engine import ScriptedEngine

from ragguard.facts.run_view import RunView
from ragguard.records import Failure, Passage, RetrievalStep, Run, Score
from ragguard.scorers.belief import Belief
from ragguard.scorers.catalogue import scorers_of
from ragguard.scorers.passage_belief import PassageBelief
from ragguard.scorers.pipeline import ScoringPipeline
from ragguard.scorers.random_baseline import RandomBaseline
from ragguard.scorers.view import Caps

QUESTION = "Where was the founder of Nordvik born?"
FOUNDER, BIRTH, NOISE = "Ada Berg founded Nordvik.", "Ada Berg was born in Oslo.", "Lemons are yellow."
MORE_NOISE = [f"Fact {number} is about pears." for number in range(20)]


def likely(prompt, text):
    """Oslo is known from both passages and guessed from one; Bergen stands in no passage."""
    first, second = FOUNDER in prompt, BIRTH in prompt
    if text == QUESTION:
        return -1.0 if first else -2.0
    if text == "Oslo":
        return math.log(0.9 if first and second else 0.3 if second else 0.1)
    return math.log(0.05)


def a_run(*hops, answer="Oslo", references=("Oslo",)):
    steps = [
        RetrievalStep(
            id=f"s{at}", index=at, turn=at, query=f"query {at}", passages=[Passage(t) for t in texts]
        )
        for at, texts in enumerate(hops)
    ]
    return Run(id="r", question=QUESTION, references=list(references) or None, answer=answer, steps=steps)


TWO_HOPS = a_run([FOUNDER, NOISE], [BIRTH])


async def results(run, *scorers, engine=None):
    models = {"entailer": TableEntailer()}
    pipeline = ScoringPipeline(engine or LikelyEngine(likely=likely), scorers=list(scorers), **models)
    return await pipeline.results(run)


async def values(run, name, *scorers, source=None):
    return {
        (score.step_id, score.position): round(score.value, 6)
        for score in await results(run, *scorers)
        if isinstance(score, Score) and score.name == name and source in (None, score.reference_source)
    }


IN_CONTEXT = PassageBelief(in_context=True)


async def test_each_passage_alone():
    assert await values(TWO_HOPS, "delta_likelihood", PassageBelief()) == {
        ("s0", 1): 0.0, ("s0", 2): 0.0, ("s1", 1): 0.2,
    }  # fmt: skip


async def test_each_passage_among_all_that_was_read():
    assert await values(TWO_HOPS, "contribution", IN_CONTEXT, source="gold") == {
        ("s0", 1): 0.6, ("s0", 2): 0.0, ("s1", 1): 0.8,
    }  # fmt: skip


async def test_which_passages_the_answer_rests_on_and_which_of_those_cited():
    cited = replace(TWO_HOPS, answer="Oslo [1][2, 7]")
    found = {(one.name, one.step_id, one.position, one.reference_source): one for one in
             await results(cited, IN_CONTEXT) if isinstance(one, Score)}  # fmt: skip
    assert [found["contribution", "s0", rank, "answer"].label for rank in (1, 2)] == ["used", "not used"]
    assert found["contribution", "s1", 1, "answer"].label == "used"
    unused = found["unused_share", "", None, "answer"]
    assert (unused.value, unused.explanation) == (pytest.approx(1 / 3), "1 of 3 passages")
    cites = found["cited_used", "", None, "answer"]
    assert (cites.value, cites.explanation) == (pytest.approx(1 / 3), "[2] is not used, [7] is no passage")


async def test_a_wrong_answer_has_contributions_of_its_own():
    wrong = replace(TWO_HOPS, answer="Bergen")
    assert set((await values(wrong, "contribution", IN_CONTEXT, source="answer")).values()) == {0.0}
    assert (await values(wrong, "contribution", IN_CONTEXT, source="gold"))["s1", 1] == 0.8
    assert await values(wrong, "unused_share", IN_CONTEXT) == {("", None): 1.0}


async def test_two_passages_that_say_the_same_are_both_used_and_neither_is_missed():
    same = f"{BIRTH} {BIRTH}"
    run = a_run([FOUNDER], [BIRTH, same])
    assert await values(run, "contribution", IN_CONTEXT, source="gold") == {
        ("s0", 1): 0.6, ("s1", 1): 0.0, ("s1", 2): 0.0,
    }  # fmt: skip
    assert await values(run, "unused_share", IN_CONTEXT) == {("", None): 0.0}


async def test_many_passages_are_left_out_by_halves_and_what_changes_nothing_together():
    run = a_run([FOUNDER, *MORE_NOISE[:10]], [*MORE_NOISE[10:], BIRTH])
    engine = LikelyEngine(likely=likely)
    found = [one for one in await results(run, IN_CONTEXT, engine=engine) if isinstance(one, Score)]
    gold = [one for one in found if one.name == "contribution" and one.reference_source == "gold"]
    assert len(gold) == 22
    assert {(one.step_id, one.position) for one in gold if one.value} == {("s0", 1), ("s1", 11)}
    assert sum(one.metadata.get("together", 1) > 1 for one in gold) >= 14
    whole = [prompt for call in engine.calls for prompt in call.texts if prompt.count("<document") > 10]
    assert len(whole) < 20


@pytest.mark.parametrize("answer", [None, "", "I don't know."])
async def test_without_an_answer_only_the_reference_has_contributions(answer):
    run = replace(TWO_HOPS, answer=answer)
    assert len(await values(run, "contribution", IN_CONTEXT)) == 3
    assert await values(run, "unused_share", IN_CONTEXT) == {}


async def test_without_references_the_runs_answer_is_supported():
    run = a_run([FOUNDER, NOISE], [BIRTH], references=())
    found = [one for one in await results(run, IN_CONTEXT) if isinstance(one, Score)]
    assert {one.reference_source for one in found} == {"answer"}
    assert {one.label for one in found if one.name == "delta_likelihood"} == {"support"}


async def test_passages_beyond_the_models_context_are_a_failure_and_no_zero():
    engine = LikelyEngine(likely=likely, context=330)
    run = a_run([" ".join([FOUNDER] * 40)], [BIRTH])
    found = await results(run, IN_CONTEXT, engine=engine)
    known = [one for one in found if isinstance(one, Score) and one.name == "contribution"]
    assert {one.step_id for one in known} == {"s1"}
    failed = [one for one in found if isinstance(one, Failure) and one.step_id == "s0"]
    assert any("contribution of passage 1" in one.message and "context" in one.message for one in failed)


async def test_the_question_knows_the_bridge_and_the_reference_both():
    run = a_run([FOUNDER, NOISE], [BIRTH], [NOISE])
    by = Belief(by="likelihood")
    assert await values(run, "question_gain", by) == {
        ("s0", 1): 1.0, ("s0", 2): 0.0, ("s1", 1): 0.0, ("s2", 1): 0.0,
        ("s0", None): 1.0, ("s1", None): 0.0, ("s2", None): 0.0,
    }  # fmt: skip
    lost = {("s0", None): round(math.log(3), 6), ("s1", None): round(math.log(9), 6), ("s2", None): 0.0}
    assert await values(run, "reference_gain", by) == lost
    # The three texts make the question likelier by 1/3 on average.
    assert await values(run, "joint_gain", by) == {
        ("s0", None): round(2 / 3 + math.log(3), 6),
        ("s1", None): round(-1 / 3 + math.log(9), 6),
        ("s2", None): round(-1 / 3, 6),
    }


async def test_a_passage_of_several_hops_bears_on_question_and_reference():
    joint = await values(TWO_HOPS, "joint_gain", IN_CONTEXT)
    assert joint == {
        ("s0", 1): round(2 / 3 + math.log(3), 6), ("s0", 2): round(-1 / 3, 6),
        ("s1", 1): round(-1 / 3 + math.log(9), 6),
    }  # fmt: skip
    assert await values(a_run([FOUNDER, BIRTH]), "joint_gain", IN_CONTEXT) == {}


async def test_a_run_with_nothing_to_believe_is_a_failure_that_says_so():
    run = a_run([FOUNDER], [BIRTH], references=(), answer=None)
    (failure,) = await results(run, Belief(by="likelihood"))
    assert "neither references nor an answer" in failure.message
    abstained = await results(replace(run, answer="I don't know."), Belief(by="likelihood"))
    assert [one for one in abstained if isinstance(one, Failure)] == [], "an abstention is no failure"


async def test_credit_is_by_likelihood_where_answers_are_drawn_unless_told():
    by_default, by_samples = Belief(samples=4), Belief(samples=4, credit_by="samples")
    able = frozenset({"batch", "n_samples", "sample_logprobs", "continuations", "exact_labels"})
    engine = LikelyEngine(likely=likely, capabilities=able)
    found = [one for one in await results(TWO_HOPS, by_default, engine=engine) if isinstance(one, Score)]
    credits = {
        one.step_id: (round(one.value, 6), one.metadata.get("how")) for one in found if one.name == "credit"
    }
    assert credits == {"s0": (0.3, "likelihood"), "s1": (0.5, "likelihood")}
    found = {
        (one.name, one.step_id): one
        for one in await results(TWO_HOPS, by_samples, engine=engine)
        if isinstance(one, Score)
    }
    total = found["delta_seper_total", ""].value
    assert sum(found["credit", step].value for step in ("s0", "s1")) == pytest.approx(total, abs=1e-6)
    assert "how" not in found["credit", "s0"].metadata


async def test_hops_that_found_the_same_share_alike_and_neither_is_missed():
    run, by = a_run([FOUNDER, BIRTH], [FOUNDER, BIRTH]), Belief(by="likelihood")
    assert set((await values(run, "credit", by)).values()) == {0.4}
    assert set((await values(run, "loss_without", by)).values()) == {0.0}


async def test_fifty_hops_are_credited_within_twice_the_contexts():
    run = a_run([FOUNDER], [BIRTH], *([f"Fact {number} is about figs."] for number in range(48)))
    engine, plain = LikelyEngine(likely=likely), LikelyEngine(likely=likely)
    caps = Caps(steps=50, prompt_tokens=10**7)
    found = await ScoringPipeline(engine, scorers=[Belief(by="likelihood")], caps=caps).results(run)
    await ScoringPipeline(plain, scorers=[Belief(by="likelihood", credit=0)], caps=caps).results(run)
    credits = [one for one in found if isinstance(one, Score) and one.name == "credit"]
    assert len(credits) == 50
    assert sum(one.value for one in credits) == pytest.approx(0.8, abs=1e-6)
    assert all(one.metadata["orders"] >= 2 for one in credits)
    asked, without = (len({p for call in e.calls for p in call.texts}) for e in (engine, plain))
    assert asked <= 2 * without


def failed_at_the_second_hop():
    run = a_run([FOUNDER], [])
    run.steps[1].status = "error"
    return run


@pytest.mark.parametrize(
    ("run", "credits", "reason", "said"),
    [
        (
            a_run([FOUNDER], ["", ""], [BIRTH]), {"s0": 0.3, "s2": 0.5}, "a passage without text is not judged",
            "Hops 1 and 3 were both needed (without hop 1: -0.60, without hop 3: -0.80); hop 2 gave the model nothing "
            "to read.",
        ),
        (a_run([""], [""]), {}, "a passage without text is not judged", ""),
        (failed_at_the_second_hop(), {"s0": 0.0}, "", "No hop moved the belief measurably."),
        (a_run([], []), {"s0": 0.0, "s1": 0.0}, "", "No hop moved the belief measurably."),
        (a_run([FOUNDER], [BIRTH], answer=None, references=()), {}, "neither references nor an answer", ""),
        (
            replace(TWO_HOPS, question="Was the founder of Nordvik born in Oslo?"), {"s0": 0.3, "s1": 0.5}, "",
            "Hops 1 and 2 were both needed (without hop 1: -0.60, without hop 2: -0.80).",
        ),
    ],
    ids=["a hop without text", "no text at all", "a hop that failed", "nothing found", "nothing to believe",
         "the reference in the question"],
)  # fmt: skip
async def test_of_a_bad_run_each_hop_has_a_number_or_a_reason(run, credits, reason, said):
    found = await results(run, Belief(by="likelihood"))
    scores = [one for one in found if isinstance(one, Score)]
    known = {one.step_id: one.value for one in scores if one.name == "credit"}
    assert known == pytest.approx(credits)
    total = next((one.value for one in scores if one.name == "delta_likelihood_total"), 0.0)
    assert sum(known.values()) == pytest.approx(total, abs=1e-6)
    assert any(reason in one.message for one in found if isinstance(one, Failure)) is bool(reason)
    assert RunView(run, scores).explanation.text.endswith(said)
    assert bool(said) is ("hop" in RunView(run, scores).explanation.text.lower())


async def test_a_run_of_one_hop_has_no_joint_gain_and_its_credit_is_its_total():
    by, run = Belief(by="likelihood"), a_run([FOUNDER, BIRTH])
    assert await values(run, "joint_gain", by) == await values(run, "question_gain", by) == {}
    assert await values(run, "credit", by) == await values(run, "loss_without", by) == {("s0", None): 0.8}


async def test_an_engine_without_likelihood_is_a_failure():
    found = await results(TWO_HOPS, IN_CONTEXT, Belief(by="likelihood"), engine=ScriptedEngine())
    assert found
    assert all(isinstance(one, Failure) for one in found)
    assert any("contribution" in one.message for one in found)
    assert any("credit" in one.message for one in found)


async def test_hops_after_it_was_enough_are_counted_and_those_that_asked_again_named():
    run = a_run([FOUNDER], [BIRTH], [NOISE], [NOISE])
    run.steps[3].query = run.steps[0].query
    found = {one.name: one for one in await results(run, Belief(by="likelihood")) if isinstance(one, Score)}
    assert found["enough_after"].value == 2
    assert found["redundant_hops"].value == 2
    assert found["redundant_hops"].explanation == "hops 3, 4 changed nothing; hop 4 asked the same as hop 1"


async def test_a_hop_is_compared_with_as_many_passages_of_other_questions():
    def shown(prompt, text):
        """Any document makes every answer likelier; the right ones make Oslo likelier still."""
        return likely(prompt, text) / (1 + prompt.count("<document"))

    engine = LikelyEngine(likely=shown)
    others = RandomBaseline((*MORE_NOISE, FOUNDER))
    found = [one for one in await results(TWO_HOPS, others, engine=engine) if isinstance(one, Score)]
    values = {one.step_id: (one.value, one.metadata["random"]) for one in found}
    assert values == {
        "s0": (pytest.approx(0.0), 2),
        "s1": (pytest.approx(0.3 ** (1 / 2) - 0.1 ** (1 / 2)), 1),
        "": (pytest.approx(0.9 ** (1 / 4) - 0.1 ** (1 / 4)), 3),
    }
    random = [text for call in engine.calls for text in call.texts if "pears" in text]
    assert len(random) == 3
    assert not any(FOUNDER in text for text in random)


async def test_without_given_passages_those_of_earlier_runs_of_other_questions_are_taken():
    (scorer,) = scorers_of(["random"], "probability")
    (failure, *_) = [one for one in await results(TWO_HOPS, scorer) if isinstance(one, Failure)]
    assert "2 random passages are needed and 0 of other questions are known" in failure.message
    again = await results(TWO_HOPS, scorer)
    assert not any(isinstance(one, Score) for one in again), "its own passages are no random ones"
    other = replace(TWO_HOPS, question="Who painted the mill?")
    assert "delta_likelihood_random" not in {getattr(one, "name", "") for one in await results(other, scorer)}
    strangers = replace(TWO_HOPS, question="Who bought it?", steps=[
        replace(step, passages=[Passage(f"Lime {at} {step.id}.") for at in range(2)], candidates=[])
        for step in TWO_HOPS.steps
    ])  # fmt: skip
    found = [one for one in await results(strangers, scorer) if isinstance(one, Score)]
    assert {one.metadata["random"] for one in found} == {2}

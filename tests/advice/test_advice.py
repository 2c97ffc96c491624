"""Advice during a run, on nano and its world: each action where it belongs, and what a caller does wrong."""

import asyncio

import pytest
from support.scripted_engine import ScriptedEngine

from ragguard import Passage, RagGuard, world
from ragguard.advice import KnownOutcome
from ragguard.errors import AdviceError, CalibrationError, InvalidInput

LONG = 60_000
CASE = world.cases(1, seed=4, hops=2)[0]


def near(hop, kind="same_relation"):
    return [p for p in CASE.distractors if p.metadata.get("hop") == hop and p.metadata["kind"] == kind]


@pytest.fixture(scope="module")
def rg():
    with RagGuard(store=None, scorers=()) as rg:
        yield rg


def test_hop_by_hop_a_run_comes_to_its_answer(rg):
    with rg.run(CASE.question) as run:
        run.retrieved(CASE.sub_questions[0], near(1))
        lost = run.advise(LONG)
        run.retrieved(CASE.sub_questions[0], [CASE.gold[0], *near(1)])
        first = run.advise(LONG)
        run.retrieved(CASE.sub_questions[1], [CASE.gold[1]])
        second = run.advise(LONG)
    assert [one.action for one in (lost, first, second)] == ["rephrase", "continue", "answer"]
    assert [len(one.open_sub_questions) for one in (lost, first, second)] == [2, 1, 0]
    assert lost.numbers["sufficiency"] < first.numbers["sufficiency"] + 1e-9 < second.numbers["sufficiency"]
    assert min(first.expected_gain, first.stderr) > 0
    assert not any(one.calibrated for one in (lost, first, second))
    assert {one.status for one in (lost, first, second)} == {"judged"}
    assert [one.step_id for one in (lost, first, second)] == [step.id for step in run.steps]
    assert [step.advice for step in run.steps] == [lost, first, second]


def test_a_passage_counts_as_answering_only_behind_a_query_that_it_is_relevant_to(rg):
    with rg.run(CASE.question) as run:
        run.retrieved("Who directs Zantek Foods?", [CASE.gold[0]])
        lost = run.advise(LONG)
        run.retrieved(CASE.sub_questions[0], [CASE.gold[0]])
        first = run.advise(LONG)
    assert (lost.numbers["coverage"], len(lost.open_sub_questions)) == (0.0, 2)
    assert (first.numbers["delta_coverage"], first.numbers["redundancy"]) == (0.5, 0.0)


def test_contradictions_are_distrusted(rg):
    false = near(2, "contradiction")
    with rg.run(CASE.question) as run:
        run.retrieved(CASE.sub_questions[0], [CASE.gold[0]])
        run.retrieved(CASE.sub_questions[1], [CASE.gold[1], *false])
        advice = run.advise(LONG)
    assert advice.action == "distrust"
    assert "contradict" in advice.reasons[0]
    assert advice.numbers["contested"] > 0


@pytest.mark.parametrize(
    ("to_query", "to_sub_question", "action"),
    [(0.01, 0.01, "distrust"), (0.3, 0.01, "answer"), (0.01, 0.3, "answer")],
)
async def test_passage_on_which_the_reader_may_abstain_contradicts_nobody(to_query, to_sub_question, action):
    """The judge finds both passages relevant, and their answers contradictory."""

    def says(text, label):
        both = "Rome" in text and "Oslo" in text
        if label == "NO-RESPONSE":
            return (to_query if "Seat?" in text else to_sub_question) if "Oslo" in text and not both else 0.01
        return {"A": 0.0 if both else 0.9, "C": 0.9, "5": 0.9}.get(label, 0.0)

    engine = ScriptedEngine(label=says, answer=lambda text, index: "Rome" if "Rome" in text else "Oslo")
    async with (
        RagGuard(engine, store=None, scorers=()) as rg,
        rg.run("Where?", sub_questions=["Where?"]) as run,
    ):
        run.retrieved("Seat?", [Passage("In Rome."), Passage("In Oslo.")])
        advice = await run.aadvise(LONG)
    assert (advice.action, advice.status) == (action, "judged")


async def test_references_and_what_only_an_evaluation_knows_change_nothing(rg):
    def run_of(**known):
        return rg.run(CASE.question, sub_questions=["Who was it?", CASE.sub_questions[0]], **known)

    found = []
    for known in ({}, {"references": ["Nobody"], "pool": [Passage("x", grade=5)]}):
        async with run_of(**known) as run:
            run.retrieved(CASE.sub_questions[0], [CASE.gold[0]])
            run.answered("Nobody")
            found.append(await run.aadvise(LONG))
    assert found[0].numbers == found[1].numbers
    assert found[0].action == found[1].action
    assert found[1].usage.cached == found[1].usage.prompts > 0


def test_query_that_was_asked_is_not_advised_again(rg):
    with rg.run("Say, " + CASE.question) as run:
        run.retrieved(CASE.sub_questions[0], [CASE.gold[0], *near(1)])
        first, again = run.advise(LONG), run.advise(LONG)
        run.retrieved(CASE.sub_questions[1], [CASE.gold[1]])
        second = run.advise(LONG)
    assert (again.usage.prompts, again.usage.cached) == (first.usage.prompts, first.usage.prompts)
    assert again.usage.requests == 0 < first.usage.requests
    assert second.usage.cached >= first.usage.prompts - 1, "all but the question about everything together"
    assert second.usage.prompts > second.usage.cached


async def test_live_scores_and_advice_share_their_questions():
    """What scoring without references has asked, advice does not ask."""
    async with RagGuard(store=None) as rg, rg.run(CASE.question) as run:
        run.retrieved(CASE.sub_questions[0], [CASE.gold[0], *near(1)])
        await rg.score(run)
        advice = await run.aadvise(LONG)
    fresh = advice.usage.prompts - advice.usage.cached
    assert fresh == 3, (
        "if the reader answers from it all; the first answer; the second sub-question with that answer"
    )


def test_sync_code_on_a_running_loop_may_ask(rg):
    async def agent():
        with rg.run(CASE.question) as run:
            run.retrieved(CASE.sub_questions[0], [CASE.gold[0]])
            return run.advise(LONG)

    assert asyncio.run(agent()).action == "continue"


def test_without_any_text_nothing_is_asked(rg):
    with rg.run(CASE.question) as run:
        run.retrieved("a", [])
        run.retrieved("b", [Passage("  ")])
        advice = run.advise()
    assert (advice.action, advice.status, advice.usage.prompts) == ("rephrase", "judged", 0)


def test_a_mistake_of_the_caller_is_one_clear_error(rg):
    with rg.run(CASE.question) as run:
        with pytest.raises(AdviceError, match="no step yet"):
            run.advise()
        run.retrieved("q", [CASE.gold[0]])
        for wrong in (0, -1, float("nan"), float("inf"), True, "300"):
            with pytest.raises(InvalidInput, match="budget_ms"):
                run.advise(wrong)
    with pytest.raises(AdviceError, match="has ended"):
        run.advise()
    with pytest.raises(AdviceError, match="has not begun"):
        rg.run("q").advise()
    with rg.run("") as nameless:
        nameless.retrieved("q", [CASE.gold[0]])
        with pytest.raises(AdviceError, match="has no question"):
            nameless.advise()
    with pytest.raises(InvalidInput, match="run"):
        rg.advice.advise("a run's id")


def test_a_run_that_is_not_sampled_has_no_advice():
    with RagGuard(store=None, scorers=(), sample_rate=0) as rg, rg.run("q") as run:
        run.retrieved("q", [CASE.gold[0]])
        with pytest.raises(AdviceError, match="was not sampled"):
            run.advise()


def known(n, seed):
    """Two-hop runs whose second hop makes the answer right."""
    return [
        KnownOutcome(world.make_run(case, seed=at, junk=1, references=False), [0, 1])
        for at, case in enumerate(world.cases(n, seed=seed, hops=2))
    ]


def test_a_calibration_is_learnt_saved_and_used(tmp_path):
    with RagGuard(store=None, scorers=()) as rg:
        found = rg.advice.calibrate(known(12, 5), max_loss=0.1)
        found.save(tmp_path / "advice.json")
        assert (found.runs, found.skipped) == (12, 0)
        assert 0 < found.threshold <= 1
    with RagGuard(store=None, scorers=()) as rg:
        rg.advice.use(tmp_path / "advice.json")
        with rg.run(CASE.question) as run:
            run.retrieved(CASE.sub_questions[0], [CASE.gold[0]])
            first = run.advise(LONG)
            run.retrieved(CASE.sub_questions[1], [CASE.gold[1]])
            second = run.advise(LONG)
    assert (first.action, second.action) == ("continue", "answer")
    assert [first.calibrated, second.calibrated] == [True, True]
    assert first.numbers["threshold"] == found.threshold


async def test_with_references_the_engine_says_how_right_each_step_was():
    runs = [
        world.make_run(case, seed=at, junk=0)
        for at, case in enumerate(world.cases(12, seed=6, hops=2, known=False))
    ]
    useless = [world.make_run(world.cases(1, seed=9)[0], references=False)]
    async with RagGuard(store=None, scorers=()) as rg:
        found = await rg.advice.acalibrate([*runs, *useless], max_loss=0.1)
        assert (found.runs, found.skipped, found.loss) == (12, 1, 0.0)
        with pytest.raises(CalibrationError, match="at least 49"):
            await rg.advice.acalibrate(runs)
        with pytest.raises(InvalidInput, match="one number for each turn"):
            await rg.advice.acalibrate([KnownOutcome(runs[0], [1, 1, 1])] * 12, max_loss=0.1)
        with pytest.raises(InvalidInput, match="correct: got 0; allowed: one number for each turn"):
            await rg.advice.acalibrate([KnownOutcome(runs[0], [])] * 12, max_loss=0.1)


def test_a_question_that_changed_on_the_way_is_calibrated_as_it_was():
    """Each stage is asked as it stood: with the question of that time."""
    case = world.cases(1, seed=8, hops=2)[0]
    run = world.make_run(case, junk=0, references=False)
    first = type(run)(run.id, case.question, steps=run.steps[:1], sub_questions=case.sub_questions)
    second = type(run)(run.id, case.sub_questions[1], steps=run.steps, sub_questions=case.sub_questions)
    with RagGuard(store=None, scorers=()) as rg:
        found = rg.advice.calibrate([KnownOutcome(run, [0, 1], [first, second])] * 9, max_loss=0.1)
        asked = rg.advice.advise(second, LONG)
        assert asked.usage.cached == asked.usage.prompts
        assert found.threshold <= asked.numbers["sufficiency"]


def test_a_calibration_of_another_engine_is_refused(tmp_path):
    with RagGuard(store=None, scorers=()) as rg:
        found = rg.advice.calibrate(known(10, 5), max_loss=0.1)
        other = type(found)(
            **{name: getattr(found, name) for name in found.__slots__} | {"engine": "another/1"}
        )
        with pytest.raises(CalibrationError, match="made with engine another/1"):
            rg.advice.use(other)
        assert rg.advice.calibration == found

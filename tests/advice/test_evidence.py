"""What follows from the evidence: each action, its reasons, and what another step is expected to add."""

import numpy as np
import pytest

from ragguard import Passage, RagGuard, RetrievalStep, Run
from ragguard.advice.calibration import AdviceCalibration
from ragguard.advice.evidence import THRESHOLD, Evidence, judge, sufficiency
from ragguard.advice.sub_questions import completed
from ragguard.facts.contradictions import Conflict


def evidence(**changes):
    """Two sub-questions, both answered, by a reader that is sure."""
    fields = {
        "sub_questions": ("who founded it?", "where was that person born?"), "covered": (1, 2), "turns": 2,
        "conflicts": (), "redundancy": 0.0, "p_answer": 0.98, "utilities": (0.9, -0.1),
    }  # fmt: skip
    return Evidence(**fields | changes)


CONFLICT = Conflict(1, "Ada was born in Rome.", "Rome", "Ada was born in Oslo.", second_answer="Oslo")


@pytest.mark.parametrize(
    ("p_answer", "said"),
    [
        (0.5, "sufficiency 0.50, at least 0.50"),
        (0.4999, "sufficiency 0.4999, under 0.5000"),
        (0.501, "sufficiency 0.501, at least 0.500"),
    ],
)
def test_a_sufficiency_is_shown_apart_from_its_threshold(p_answer, said):
    assert said in judge(evidence(p_answer=p_answer), None).reasons


@pytest.mark.parametrize(
    ("changes", "action", "reasons"),
    [
        ({}, "answer", ["sufficiency 0.98, at least 0.50", "passages answer all 2 sub-questions"]),
        (
            {"covered": (1, 0)}, "continue",
            ["sufficiency 0.49, under 0.50", "open: where was that person born?"],
        ),
        ({"covered": (1, 0), "utilities": ()}, "rephrase", ["no passage of the last step helps with its query"]),
        (
            {"covered": (1, 0), "utilities": (-0.05, 0.1)}, "rephrase",
            ["no passage of the last step helps with its query"],
        ),
        (
            {"covered": (1, 0), "utilities": (-0.05, -0.6)}, "distrust",
            ["a passage of the last step misleads (utility -0.60) and none helps"],
        ),
        ({"covered": (1, 0), "utilities": (-0.6, 0.9)}, "continue", ["sufficiency 0.49, under 0.50"]),
        (
            {"conflicts": (CONFLICT,)}, "distrust",
            ["passages contradict each other: 'Rome' against 'Oslo' (where was that person born?)"],
        ),
    ],
)  # fmt: skip
def test_each_evidence_has_its_action_and_its_first_reasons(changes, action, reasons):
    advice = judge(evidence(**changes), None)
    assert (advice.action, advice.reasons[: len(reasons)]) == (action, reasons)
    assert (advice.expected_gain > 0) == bool(advice.open_sub_questions)


@pytest.mark.parametrize(
    "worse",
    [{"p_answer": 0.5}, {"covered": (1, 0)}],
)
def test_everything_that_speaks_against_an_answer_lowers_the_sufficiency(worse):
    assert sufficiency(evidence(**worse)) < sufficiency(evidence())
    assert 0 <= sufficiency(evidence(**worse)) <= 1


def calibrated(threshold):
    return AdviceCalibration(threshold, 0.02, 80, 0, loss=0.0, steps_saved=0.5, engine="e", judge="j", entailer="n",
                             prompts="p", judge_prompts="q")  # fmt: skip


def test_a_calibration_moves_the_threshold():
    half = evidence(p_answer=0.6)
    assert THRESHOLD < sufficiency(half) < 0.7
    assert judge(half, None).action == "answer"
    assert judge(half, calibrated(0.7)).action == "continue"
    assert judge(half, calibrated(0.55)).action == "answer"
    assert judge(evidence(p_answer=0.1), calibrated(0.0)).action == "answer"


def test_a_contradiction_does_not_stand_against_the_promise():
    """The promise is about the rule `sufficiency at least the threshold`; another rule would keep another one."""
    found = judge(evidence(conflicts=(CONFLICT,)), calibrated(0.4))
    assert found.action == "answer"
    assert any("contradict" in reason for reason in found.reasons)
    assert judge(evidence(conflicts=(CONFLICT,), covered=(1, 0)), calibrated(0.6)).action == "distrust"


@pytest.mark.parametrize(
    ("covered", "turns"), [((0, 0, 0), 1), ((1, 0, 0), 1), ((1, 2, 0), 4), ((0, 0, 0), 6)]
)
def test_the_expected_gain_is_that_of_the_posterior(covered, turns):
    """Beside draws from the Beta distribution of the probability that the next step closes a sub-question."""
    found = judge(evidence(sub_questions=("a", "b", "c"), covered=covered, turns=turns), None)
    closing = len(set(covered) - {0})
    drawn = np.random.default_rng(1).beta(1 + closing, 1 + turns - closing, 200_000) / 3
    assert found.expected_gain == pytest.approx(drawn.mean(), abs=2e-3)
    assert found.stderr == pytest.approx(drawn.std(), abs=2e-3)


@pytest.mark.parametrize(
    ("sub_question", "whole"),
    [
        ("Where was that person born?", "Where was Ada Berg born?"),
        ("What is that person's profession?", "What is Ada Berg's profession?"),
        (
            "When did she found it, and who is her brother?",
            "When did Ada Berg found it, and who is Ada Berg's brother?",
        ),
        ("Who leads the firm that employs Ole?", "Who leads the firm that employs Ole?"),
        ("Is it true that towns grow?", "Is it true that towns grow?"),
    ],
)
def test_sub_question_that_refers_to_an_answer_is_completed_with_it(sub_question, whole):
    assert completed(sub_question, "Ada Berg") == whole


QUESTION = "Please, what is the birth year of the spouse of Egon Rosstrom?"
SPOUSE = "Notably, the spouse of Egon Rosstrom is Pedro Backman."
OTHER = (
    "It was in 1864 that Zita Hagholm was born. Indeed, the birthplace of Anton Ahllund is Lower Tarnford."
)
YEAR = "In fact, Pedro Backman was born in 1872."


@pytest.mark.parametrize(("second", "action"), [([], "continue"), ([YEAR], "answer")])
async def test_fact_about_somebody_else_does_not_answer_the_second_half_of_a_question(second, action):
    """nano splits the question by itself, and its second half is "In which year was that person born?"."""
    asked = ["Who is married to Egon Rosstrom?", "In which year was Pedro Backman born?"]
    read = [[SPOUSE, OTHER], second]
    steps = [
        RetrievalStep(f"s{at}", "r", at, at, query=query, passages=list(map(Passage, texts)))
        for at, (query, texts) in enumerate(zip(asked, read, strict=True))
        if texts
    ]
    async with RagGuard("nano", store=None, scorers=()) as rg:
        advice = await rg.advice.aadvise(Run("r", QUESTION, steps=steps, status="open"), 600_000)
    assert (advice.action, advice.status) == (action, "judged")
    if not second:
        assert any("Pedro Backman" in text for text in advice.open_sub_questions)

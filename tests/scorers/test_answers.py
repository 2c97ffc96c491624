"""Was the answer right, does a passage support it, and how good is it beside the ideal one?"""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.reader import (
    FIRM_QUERY,
    FOUNDER,
    FOUNDER_QUERY,
    NOISE,
    TableEntailer,
    named,
    reader,
    run,
    step,
    two_hops,
)

from ragguard import connect, world
from ragguard.engines.entailment import Pair
from ragguard.records import Failure, Run
from ragguard.scorers.answers import Answers, verdict_of
from ragguard.scorers.estimates import Meanings
from ragguard.scorers.pipeline import ScoringPipeline
from ragguard.scorers.question import EntailAnswer

ALIASES = [frozenset({"ada berg", "berg"})]


async def answers(the_run, engine=None, entailer=None, **more):
    pipeline = ScoringPipeline(
        engine or reader(), entailer=entailer or TableEntailer(ALIASES), scorers=[Answers()], **more
    )
    return await pipeline.results(the_run)


async def verdict(the_run, **more):
    (score,) = named(await answers(the_run, **more), "answer_correct", None)
    return score.label, score.value


@pytest.mark.parametrize(
    ("gold", "answer", "expected"),
    [
        ("Ada Berg", "ADA BERG!", ("correct", 1.0)),
        ("Ada Berg", "The firm was founded in 1902 by Ada Berg, who had been a smith.", ("correct", 1.0)),
        ("1.5 million", "15 million", ("wrong", 0.0)),
        ("5", "-5", ("wrong", 0.0)),
        ("C", "C++", ("wrong", 0.0)),
    ],
)
async def test_the_same_words_and_another_number_need_no_entailment(gold, answer, expected):
    entailer = TableEntailer()
    assert await verdict(two_hops(answer=answer, references=[gold]), entailer=entailer) == expected
    assert entailer.calls == 0


@pytest.mark.parametrize(
    ("answer", "label"),
    [
        ("not Ada Berg", "wrong"),
        ("It was not Ada Berg.", "wrong"),
        ("Ada Berg, or maybe Bo Lund", "wrong"),
        ("Bo Lund or Ada Berg", "wrong"),
        ("Ada Berg or A. Berg", "correct"),
    ],
)
async def test_no_model_overrules_a_negation_or_a_choice_between_two_answers(answer, label):
    says_yes = TableEntailer([frozenset({answer.lower(), "ada berg", "a. berg"})])
    run = two_hops(answer=answer, references=["Ada Berg", "A. Berg"])
    assert (await verdict(run, entailer=says_yes))[0] == label


async def test_an_answer_from_which_a_reference_follows_is_correct():
    assert await verdict(two_hops(answer="A. Berg")) == ("correct", 1.0)
    assert await verdict(two_hops(answer="Bo Lund")) == ("wrong", 0.0)


async def test_a_right_answer_without_a_relevant_passage_is_right_by_half():
    lucky = run(step(FIRM_QUERY, [NOISE]), step(FOUNDER_QUERY, [NOISE]))
    assert await verdict(lucky) == ("correct, unsupported", 0.5)
    assert await verdict(run()) == ("correct, unsupported", 0.5)


@pytest.mark.parametrize(
    ("passage", "label"),
    [
        ("The Orpheum hall seats 1250 guests.", "correct"),
        ("The Orpheum hall burned down.", "correct, unsupported"),
    ],
)
async def test_words_judge_a_right_answer_as_a_wrong_one_if_the_model_is_unfit_for_the_text(passage, label):
    """nano knows only its own world: neither verdict needs it."""
    nano = connect("nano")
    seats = Run("r", "How many seats has the Orpheum?", ["1,250"], "It has 1250 seats.",
                [step("How many seats has the Orpheum?", [passage])])  # fmt: skip
    assert (await verdict(seats, engine=nano, entailer=nano))[0] == label
    assert (await verdict(replace(seats, answer="It has 1350 seats."), engine=nano, entailer=nano))[
        0
    ] == "wrong"


async def test_passage_that_the_guard_dropped_supports_nothing():
    guarded = run(step(FOUNDER_QUERY, [NOISE], candidates=[FOUNDER, NOISE]))
    assert await verdict(guarded) == ("correct, unsupported", 0.5)


@pytest.mark.parametrize("answer", ["NO-RESPONSE", "", "I do not know."])
async def test_abstaining_is_neither_right_nor_wrong(answer):
    assert await verdict(two_hops(answer=answer)) == ("abstained", 0.0)


async def test_the_response_grade_is_the_judges():
    (grade,) = [s for s in await answers(two_hops()) if s.name == "response_grade"]
    assert (grade.value, grade.reference_source, grade.level) == (5, "gold", "run")


async def test_without_references_or_answer_nothing_is_said():
    assert await answers(two_hops(references=None)) == []
    assert await answers(two_hops(references=[" "])) == []
    assert await answers(two_hops(answer=None)) == []


async def test_support_that_cannot_be_judged_is_decided_by_words_and_is_no_failure_beside_the_score():
    engine = reader()
    plain = engine.label
    engine.label = lambda text, label: 0.1 if label in "AB" else plain(text, label)
    results = await answers(two_hops(), engine)
    assert not [one for one in results if isinstance(one, Failure) and "answer_correct" in one.message]
    (score,) = named(results, "answer_correct", None)
    assert (score.label, score.metadata["support"]) == ("correct", "by words")


async def judged_by_nano(question, references, answer):
    told = Run(question=question, references=references, answer=answer)
    return await ScoringPipeline(connect("nano"), scorers=[Answers()]).results(told)


async def verdicts_of_nano(tell):
    """Whether nano finds the answer that is told of each case right; None where it gives no verdict."""
    found = []
    for case in world.cases(30, seed=31):
        results = await judged_by_nano(case.question, case.references, tell(case))
        values = [score.value > 0 for score in named(results, "answer_correct", None)]
        found.append(values[0] if values else None)
    return found


@pytest.mark.parametrize("frame", ["{}.", "Indeed, {}.", "As the documents say, {}."])
async def test_nano_finds_right_sentences_right_and_wrong_ones_wrong(frame):
    def sentence(passage):
        return frame.format(passage.text.rstrip("."))

    right = await verdicts_of_nano(lambda case: sentence(case.gold[0]))
    false = await verdicts_of_nano(lambda case: sentence(case.of_kind("contradiction")[0]))
    near = await verdicts_of_nano(lambda case: sentence(case.of_kind("same_relation")[0]))
    assert right.count(True) >= 29
    assert [*false, *near].count(True) <= 6  # of 60: so many short ones it takes for right, too
    assert [*right, *false, *near].count(None) <= 3


async def test_the_short_form_that_nano_compares_is_recorded():
    case = world.cases(1, seed=31)[0]
    answer = case.gold[0].text.replace(case.answer, f"the town called {case.answer.split()[-1]}")
    results = await judged_by_nano(case.question, case.references, answer)
    (score,) = named(results, "answer_correct", None)
    assert "condensed" in score.metadata
    assert score.usage.prompts >= 2


async def test_a_sentence_that_nano_cannot_shorten_has_no_verdict():
    results = await judged_by_nano(
        "Where is it?", ["Port Tarnwick"], "The port of Oslo is where it is said to lie."
    )
    (failure,) = [one for one in results if isinstance(one, Failure)]
    assert "answer_correct: the model that compares answers compares short ones only" in failure.message
    assert "point ragguard at a real model" in failure.message


FILE = Path(__file__).parent / "data" / "answers.jsonl"


ROWS = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]


async def verdict_of_row(row):
    """The verdict where the entailer knows what follows from what."""

    def follows(pair: Pair) -> bool:
        return row["forward"] if pair.premise == row["answer"] else row["backward"]

    async def ask(questions):
        return [EntailAnswer((0.9, 0.1, 0.0) if follows(one.pair) else (0.1, 0.9, 0.0)) for one in questions]

    return await verdict_of(row["answer"], [row["reference"]], Meanings(row["question"], ask))


@pytest.mark.parametrize(("held_out", "passed", "refused"), [(False, 0, 2), (True, 0, 1)])
async def test_right_and_wrong(held_out, passed, refused):
    rows = [row for row in ROWS if row["held_out"] is held_out]
    correct = [(await verdict_of_row(row))[0] == "correct" for row in rows]
    assert sum(found and not row["right"] for row, found in zip(rows, correct, strict=True)) == passed
    assert sum(row["right"] and not found for row, found in zip(rows, correct, strict=True)) == refused


async def test_more_than_the_reference_is_not_the_reference():
    (row,) = [row for row in ROWS if row["answer"] == "Malia, Sasha, and Susan"]
    assert await verdict_of_row(row) == ("wrong", "a reference follows from it, and it names more")

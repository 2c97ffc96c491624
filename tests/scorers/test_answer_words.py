"""Scores of the answer by its words: no model is asked for them."""

import pytest
from support.reader import FOUNDER, FOUNDER_QUERY, NOISE, reader, run, step, two_hops
from support.scripted_engine import ScriptedEngine

from ragguard.errors import EngineUnreachable
from ragguard.records import Score
from ragguard.scorers.answer_words import AnswerWords
from ragguard.scorers.answers import Answers
from ragguard.scorers.pipeline import ScoringPipeline
from ragguard.scorers.settings import ScoringSettings


async def scores(the_run, scorers=("words",), **more):
    engine = reader()
    results = await ScoringPipeline(engine, scorers=list(scorers), **more).results(the_run)
    return engine, {(one.name, one.level): one for one in results if isinstance(one, Score)}


async def test_a_right_answer_whose_reference_was_read_is_correct_and_nobody_is_asked():
    engine, found = await scores(two_hops(answer="It was founded by Ada Berg."))
    assert found["answer_correct", "run"].label == "correct"
    assert found["answer_in_context", "run"].value == 1
    assert found["ungrounded", "run"].value == 0
    assert not engine.calls


async def test_a_name_that_no_passage_holds_is_listed():
    _, found = await scores(two_hops(answer="It was founded by Bo Lund in 1986."))
    assert found["answer_correct", "run"].label == "wrong"
    assert found["ungrounded", "run"].value == 1
    assert found["ungrounded", "run"].explanation == "in no passage that was read: “Bo Lund”, “1986”"


@pytest.mark.parametrize(
    ("answer", "missing"),
    [
        ("Either Ada Berg or Bo Lund.", "“Bo Lund”"),
        ("The firm's head is Mayor Ada Berg.", ""),
        ("According to the passages, Director Ada Berg.", ""),
        ("Unfortunately Ada Berg did.", ""),
        ("By Doctor Berg.", ""),
        ("Eva Berg founded it.", "“Eva Berg”"),
    ],
)
async def test_a_name_is_looked_for_without_the_words_before_it_that_are_no_part_of_it(answer, missing):
    _, found = await scores(two_hops(answer=answer, references=None))
    explanation = found["ungrounded", "run"].explanation
    assert explanation.removeprefix("in no passage that was read: ") == missing


async def test_a_right_answer_without_its_reference_in_what_was_read_is_unsupported():
    lucky = run(step(FOUNDER_QUERY, [NOISE], candidates=[FOUNDER, NOISE]), answer="Ada Berg")
    _, found = await scores(lucky)
    assert found["answer_in_context", "run"].value == 0
    assert (found["answer_correct", "run"].label, found["answer_correct", "run"].value) == (
        "correct, unsupported",
        0.5,
    )


@pytest.mark.parametrize(
    ("passage", "reference", "answer", "label"),
    [
        ("Iver repairs clocks.", "repairing clocks", "He repairs clocks.", "correct"),
        ("The lab is on the 3rd floor.", "third", "3rd floor", "correct"),
        ("The lab has 3 doors.", "third", "3rd floor", "correct, unsupported"),
    ],
)
async def test_the_words_of_the_answer_support_it_as_those_of_the_reference_do(
    passage, reference, answer, label
):
    _, found = await scores(run(step(FOUNDER_QUERY, [passage]), answer=answer, references=[reference]))
    assert found["answer_correct", "run"].label == label


@pytest.mark.parametrize(("second", "stands", "label"), [
    ("He was a potter.", 1, "correct"), ("He was a barber.", 0, "correct, unsupported"),
])  # fmt: skip
async def test_the_parts_of_a_reference_may_be_in_several_passages(second, stands, label):
    both = ["Ada Berg and potter"]
    _, found = await scores(run(step(FOUNDER_QUERY, [FOUNDER, second]), answer=both[0], references=both))
    assert (found["answer_in_context", "run"].value, found["answer_correct", "run"].label) == (stands, label)


@pytest.mark.parametrize("answer", [None, "", "the firm near the old mill"])
async def test_what_words_do_not_decide_has_no_verdict(answer):
    _, found = await scores(two_hops(answer=answer, references=["the firm near that mill"]))
    assert answer == "" or ("answer_correct", "run") not in found


async def test_without_references_the_answer_is_grounded_all_the_same():
    _, found = await scores(two_hops(answer="Bo Lund", references=None))
    assert set(found) == {("ungrounded", "run")}


async def test_the_judge_has_the_verdict_if_it_is_asked_for_it():
    _, found = await scores(two_hops(answer="Ada Berg"), [AnswerWords(), Answers()])
    assert found["answer_correct", "run"].scorer == "answers"


async def test_every_pipeline_has_what_words_tell_and_asks_nothing_for_it():
    engine = ScriptedEngine()
    for scorers in (["grades"], ["utility", "coverage"], ["likelihood"]):
        pipeline = ScoringSettings(engine=engine, scorers=scorers).build()
        assert (await pipeline.identity()).scorers[0].scorer == "words"
    assert not ScoringSettings(engine=engine, scorers=()).build().live_scorers("at once")
    gone = ScriptedEngine(fault=lambda call: EngineUnreachable("gone"))
    results = await ScoringSettings(engine=gone, scorers=["utility"]).build().results(two_hops())
    assert {"answer_correct", "answer_in_context"} <= {getattr(one, "name", "") for one in results}


async def test_scores_by_words_name_no_model_and_are_the_same_ones_whichever_answers():
    class Unknown(ScriptedEngine):
        async def info(self):
            raise EngineUnreachable("gone")

    the_run, keys = two_hops(answer="Ada Berg"), []
    for engine in (Unknown(), reader(), ScriptedEngine(model="another")):
        results = await ScoringPipeline(engine, scorers=["words", "utility"]).results(the_run)
        words = [one for one in results if isinstance(one, Score) and one.scorer == "words"]
        assert {(one.engine, one.prompts) for one in words} == {("", "")}
        keys.append([one.key for one in words])
    assert keys == [keys[0]] * 3

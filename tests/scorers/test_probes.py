"""How answers of judges are read, and what is refused."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragguard.engines.base import Sample, as_prompt
from ragguard.engines.connect import connect
from ragguard.engines.prompts import load_prompts
from ragguard.errors import EngineProtocolError, ScoringError
from ragguard.records import Run, Usage
from ragguard.scorers.answers import Answers
from ragguard.scorers.pipeline import ScoringPipeline
from ragguard.scorers.probes import (
    abstention,
    answerability,
    belief,
    grade,
    read_abstention,
    read_rating,
    read_relevance,
    read_sub_questions,
    relevance,
    response_grade,
)
from ragguard.scorers.question import (
    LabelAnswer,
    LabelQuestion,
    SampleAnswer,
    count_tokens,
    prompt_tokens,
)

SETS = ["default", "nano"]
FIVE = LabelQuestion(as_prompt("?"), ("1", "2", "3", "4", "5"))


@pytest.mark.parametrize("name", SETS)
def test_every_probe_speaks_every_shipped_prompt_set(name):
    prompts = load_prompts(name)
    asked = [
        abstention(prompts, "who?", "a text"),
        relevance(prompts, "who?", "a text"),
        relevance(prompts, "Who", "a text", question="who?", references=["Ada"]),
        answerability(prompts, "who?", "a text"),
        grade(prompts, "who?", "a text"),
        response_grade(prompts, "who?", "Ada", ["Ada Berg"]),
    ]
    assert all(question.labels for question in asked)
    assert asked[0].who == "engine"
    assert {question.who for question in asked[1:]} == {"judge"}
    assert "Ada" in str(asked[2].prompt)
    assert (
        belief(prompts, "who?", [], n=10, seed=1).prompt
        != belief(prompts, "who?", ["a text"], n=10, seed=1).prompt
    )


def test_beliefs_never_offer_to_abstain():
    prompts = load_prompts("default")
    for passages in ([], ["a text"]):
        assert "NO-RESPONSE" not in str(belief(prompts, "who?", passages, n=1, seed=0).prompt)


def test_all_questions_about_a_passage_begin_alike_and_longer_contexts_begin_as_shorter_ones():
    prompts = load_prompts("default")
    text = "Ada Berg founded Norvik Mills. " * 5

    def read(question):
        return "".join(message.content for message in question.prompt.messages)

    about = [
        abstention(prompts, "who?", text),
        relevance(prompts, "who?", text),
        relevance(prompts, "who?", text, question="who?", references=["Ada"]),
        answerability(prompts, "where?", text),
        grade(prompts, "who?", text),
        belief(prompts, "who?", [text], n=1, seed=0),
        belief(prompts, "who?", [text, "more"], n=1, seed=0),
    ]
    first, *others = [read(question) for question in about]
    beginning = first[: first.index(text) + len(text)]
    assert all(other.startswith(beginning) for other in others)
    assert read(about[-1]).startswith(read(about[-2]).split("\n\n<question>")[0])


def test_relevance_estimated_by_sampling_has_the_error_of_a_share():
    question = relevance(load_prompts("default"), "who?", "a text")
    error = (0.3 * 0.7 / 20) ** 0.5
    read = read_relevance(question, LabelAnswer((0.3, 0.7), "sampled", (error, error)))
    assert read.stderr == pytest.approx(((0.7 * error) ** 2 + (0.3 * error) ** 2) ** 0.5)
    assert read.remarks == {"how": "sampled"}


def test_a_rating_is_the_likeliest_digit_and_the_mean():
    rating = read_rating(FIVE, LabelAnswer((0.1, 0.1, 0.1, 0.2, 0.4)))
    assert rating.value == 5
    assert rating.expectation == pytest.approx((0.1 + 0.2 + 0.3 + 0.8 + 2.0) / 0.9)
    assert rating.stderr == 0
    assert read_rating(FIVE, LabelAnswer((0.3, 0.3, 0.1, 0.1, 0.1))).value == 1, "the lower of equals"


def test_the_error_of_a_sampled_rating_is_that_of_a_mean():
    p, n = (0.1, 0.2, 0.4, 0.2, 0.1), 20
    errors = tuple((x * (1 - x) / n) ** 0.5 for x in p)
    rating = read_rating(FIVE, LabelAnswer(p, "sampled", errors))
    spread = sum(x * (g - 3) ** 2 for x, g in zip(p, range(1, 6), strict=True))
    assert rating.stderr == pytest.approx((spread / n) ** 0.5)


def test_abstention_is_the_first_label_and_its_bound_is_told():
    read = read_abstention(LabelAnswer((0.2,), bound=True, truncated=12))
    assert (read.value, read.stderr) == (0.2, None)
    assert read.remarks == {"bound": "upper", "cut_tokens": 12}


def test_label_answer_with_numbers_that_are_no_probabilities_is_refused():
    question = LabelQuestion(as_prompt("?"), ("A",))
    for wrong in (7.0, -0.5, math.nan):
        with pytest.raises(EngineProtocolError, match=f"the labels A the numbers {wrong}"):
            question.answer(((wrong,), True, "first_token", None, None, 0), Usage())
    assert question.answer(((1.0000002,), True, "first_token", None, None, 0), Usage()).p


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Who is it?\nWhere is it?", ["Who is it?", "Where is it?"]),
        ("1. Who is it?\n2) Where is it?\n(3) When?", ["Who is it?", "Where is it?", "When?"]),
        ("- Who is it?\n* who is it\n\n• Where?", ["Who is it?", "Where?"]),
        ("Q1: Who is it?\n  Where?  ", ["Who is it?", "Where?"]),
        ("I cannot break this down further.\nWho is it?", ["Who is it?"]),
        ("1984 was when?\n3D or not?", ["1984 was when?", "3D or not?"]),
    ],
)
def test_sub_questions_are_lines_without_markers_each_once(text, expected):
    assert read_sub_questions(SampleAnswer((Sample(text, ()),))) == expected


def test_a_judge_that_only_declines_gave_no_sub_question():
    with pytest.raises(ScoringError, match="and gave none; give them with the run"):
        read_sub_questions(SampleAnswer((Sample("I am sorry, but I can't help with that.", ()),)))


@settings(deadline=None)
@given(st.text(max_size=300))
def test_tokens_are_counted_for_any_text(text):
    assert 0 <= count_tokens(text) <= 3 * len(text) + 1
    assert count_tokens(text + " word") >= count_tokens(text)


def test_tokens_are_about_right_and_long_texts_are_quick():
    prose = "The firm was founded in Oslo by two engineers, who had met while studying abroad. " * 5
    assert 0.8 * 17 * 5 <= count_tokens(prose) <= 1.3 * 17 * 5
    long = "word and word " * 200_000
    assert count_tokens(long) == pytest.approx(600_000, rel=0.02)
    assert count_tokens("東京都" * 10) >= 25
    assert prompt_tokens(as_prompt("one two")) >= 3


def test_digits_may_stand_for_grades_of_another_scale():
    answer = LabelAnswer((0.0, 0.1, 0.3, 0.25, 0.35))
    assert read_rating(FIVE, answer).value == 5
    rating = read_rating(FIVE, answer, (1, 1, 2, 5, 5))
    assert (rating.value, rating.expectation) == (5, pytest.approx(0.1 + 0.6 + 3.0))
    assert read_rating(FIVE, LabelAnswer((0.2, 0.25, 0.4, 0.1, 0.05)), (1, 1, 2, 5, 5)).value == 1


async def test_nano_grades_answers_on_the_papers_scale():
    scorer = ScoringPipeline(connect("nano"), scorers=[Answers()])
    found = {}
    for said in ("Upper Dunness", "Upper", "West Thornwick"):
        run = Run(question="Where was Hugo Rosquist born?", references=["Upper Dunness"], answer=said)
        found[said] = next(
            s.value for s in await scorer.results(run) if getattr(s, "name", "") == "response_grade"
        )
    assert found == {"Upper Dunness": 5, "Upper": 2, "West Thornwick": 1}

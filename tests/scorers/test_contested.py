"""Sub-questions that are answered, but by passages that contradict each other."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.reader import (
    FALSE,
    FIRM,
    FIRM_QUERY,
    FOUNDER,
    FOUNDER_QUERY,
    NOISE,
    TableEntailer,
    asked,
    documents,
    run,
    step,
)
from support.scripted_engine import ScriptedEngine

from ragguard import connect, metrics, world
from ragguard.records import Failure, Passage, RetrievalStep, Run, Score
from ragguard.scorers.contested import Contested
from ragguard.scorers.pipeline import ScoringPipeline

SAID = {FIRM: "Norvik Mills", FOUNDER: "Ada Berg", FALSE: "Bo Lund", "Same in other words.": "ada berg."}
ABOUT = {
    FIRM: FIRM_QUERY,
    FOUNDER: FOUNDER_QUERY,
    FALSE: FOUNDER_QUERY,
    "Same in other words.": FOUNDER_QUERY,
}


IRRELEVANT = "Cara Dahl founded Ostvik Mills."


def weigh(text, label):
    (passage,) = documents(text)
    if label in "AB":
        return 0.9 if (label == "A") == (passage != IRRELEVANT) else 0.1
    return 1.0 if label == ("5" if ABOUT.get(passage) == asked(text) else "0") else 0.0


def engine(say=lambda text, index: SAID[documents(text)[0]]):
    return ScriptedEngine(label=weigh, answer=say)


async def contested(the_run, *, judge=None, entailer=None, **more):
    the_run.sub_questions = [FIRM_QUERY, FOUNDER_QUERY]
    pipeline = ScoringPipeline(
        judge or engine(), entailer=entailer or TableEntailer(), scorers=[Contested(**more)]
    )
    return await pipeline.results(the_run)


def values(results):
    return [(one.level, one.value) for one in results if isinstance(one, Score)]


async def test_a_lie_is_found_by_the_passage_that_says_otherwise():
    results = await contested(run(step(FIRM_QUERY, [FIRM, NOISE]), step(FOUNDER_QUERY, [FALSE, FOUNDER])))
    assert values(results) == [("step", 0.0), ("step", 0.5), ("run", 0.5)]
    assert results[2].explanation == "2.1 “Bo Lund” against 2.2 “Ada Berg”"
    assert results[2].label == "2.1 against 2.2"
    assert results[2].metadata["conflicts"] == [
        {"sub_question": 1, "passages": ["2.1", "2.2"], "answers": ["Bo Lund", "Ada Berg"]}
    ]


async def test_the_same_answer_in_other_words_is_not_compared():
    entailer = TableEntailer()
    results = await contested(run(step(FOUNDER_QUERY, [FOUNDER, "Same in other words."])), entailer=entailer)
    assert values(results) == [("step", 0.0), ("run", 0.0)]
    assert entailer.pairs == []


async def test_the_subject_of_the_question_is_no_answer_that_contradicts_another():
    says = {FALSE: "Norvik Mills", FOUNDER: "Ada Berg"}  # of the founder of Norvik Mills
    subject = engine(lambda text, index: says[documents(text)[0]])
    results = await contested(run(step(FOUNDER_QUERY, [FOUNDER, FALSE])), judge=subject)
    assert {one.value for one in results if one.name == "contested"} == {0.0}


async def test_a_passage_that_is_not_relevant_to_its_query_contests_nothing(monkeypatch):
    # "Who founded that firm?" is answered by a passage about any firm.
    monkeypatch.setitem(SAID, IRRELEVANT, "Cara Dahl")
    monkeypatch.setitem(ABOUT, IRRELEVANT, FOUNDER_QUERY)
    results = await contested(run(step(FOUNDER_QUERY, [FOUNDER, IRRELEVANT])))
    assert values(results) == [("step", 0.0), ("run", 0.0)]
    results = await contested(run(step(FOUNDER_QUERY, [FOUNDER, IRRELEVANT, FALSE])))
    assert results[-1].label == "1.1 against 1.3"


@pytest.mark.parametrize(("query", "abstains"), [(FOUNDER_QUERY, 0.2), ("Who set up Norvik Mills?", 0.3)])
async def test_a_passage_from_which_the_reader_would_not_answer_contests_nothing(query, abstains):
    # Of the query that brought it the reader has to be surer than of the sub-question.
    async def found(p):
        def unsure(text, label):
            told = label == "NO-RESPONSE" and FALSE in text and asked(text) == FOUNDER_QUERY
            return p if told else weigh(text, label)

        judge = ScriptedEngine(label=unsure, answer=lambda text, index: SAID[documents(text)[0]])
        return values(await contested(run(step(query, [FALSE, FOUNDER])), judge=judge))

    assert await found(abstains) == [("step", 0.0), ("run", 0.0)]
    assert await found(abstains - 0.15) == [("step", 0.5), ("run", 0.5)]


async def test_beside_coverage_ratings_are_asked_once_and_costs_add_up():
    judge, entailer = engine(), TableEntailer()
    the_run = run(
        step(FIRM_QUERY, [FIRM, NOISE]), step(FOUNDER_QUERY, [FALSE, FOUNDER]), references=None, answer=None
    )
    the_run.sub_questions = [FIRM_QUERY, FOUNDER_QUERY]
    results = await ScoringPipeline(judge, entailer=entailer, scorers=["coverage"]).results(the_run)
    assert not [one for one in results if isinstance(one, Failure)]
    asks = [(call.verb, len(call.prompts)) for call in judge.calls]
    # The reader's answers to the sub-question are those to the query, which is the same text here.
    assert asks == [("label_probs", 8), ("label_probs", 2), ("label_probs", 2), ("sample", 2)]
    assert sum(one.usage.prompts for one in results) == 8 + 2 + 2 + 2 + len(entailer.pairs)


def by_hand(ratings, contradictions, eta):
    """Counted sub-question by sub-question."""
    passages, questions = ratings.shape
    disputed = sum(
        any(
            ratings[one, q] >= eta and ratings[other, q] >= eta
            and (contradictions[one, other, q] or contradictions[other, one, q])
            for one, other in itertools.product(range(passages), repeat=2)
        )
        for q in range(questions)
    )  # fmt: skip
    return disputed / questions


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 4))
def test_the_metric_is_what_counting_gives(seed, passages, questions):
    rng = np.random.default_rng(seed)
    ratings = rng.integers(0, 6, (passages, questions))
    contradictions = rng.random((passages, passages, questions)) < 0.3
    found = metrics.contested(ratings, contradictions, 3)
    assert found == pytest.approx(by_hand(ratings, contradictions, 3))
    assert found <= metrics.coverage(ratings, 3) + 1e-9


async def test_nano_finds_the_lies_of_its_world():
    pipeline = ScoringPipeline(connect("nano"), scorers=[Contested()])
    found = {"lied to": 0, "told the truth": 0}
    cases = [
        case
        for case in world.cases(60, seed=11)
        if any(p.metadata["kind"] == "contradiction" for p in case.distractors)
    ][:40]
    for case in cases:
        lie = next(p for p in case.distractors if p.metadata["kind"] == "contradiction")
        others = [p for p in case.distractors if p.metadata["kind"] == "unrelated"]
        for name, passages in (("lied to", [case.gold[0], lie]), ("told the truth", [case.gold[0], *others])):
            step = RetrievalStep(query=case.question, passages=[Passage(p.text) for p in passages])
            results = await pipeline.results(
                Run(question=case.question, steps=[step], sub_questions=case.sub_questions)
            )
            found[name] += sum(
                one.value > 0 for one in results if isinstance(one, Score) and one.level == "run"
            )
    assert len(cases) == 40
    assert found["lied to"] >= 30
    assert found["told the truth"] <= 2

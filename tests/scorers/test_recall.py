"""How much of what is relevant a step got, where nobody knows all of it."""

import math

import pytest
from support.reader import QUESTION, documents, run, step
from support.scripted_engine import ScriptedEngine

from ragguard import metrics
from ragguard.records import Decision, Failure, Passage, Score
from ragguard.scorers.pipeline import ScoringPipeline
from ragguard.scorers.recall import Recall

FIVES, FOURS = set("ABCDEFG"), set("mnopq")


def weigh(text, label):
    (passage,) = documents(text)
    return float(label == ("5" if passage in FIVES else "4" if passage in FOURS else "2"))


async def recall(the_run, *, scorers=None, engine=None):
    return await ScoringPipeline(
        engine or ScriptedEngine(label=weigh), scorers=scorers or [Recall()]
    ).results(the_run)


def named(results, name):
    return [one for one in results if isinstance(one, Score) and one.name == name]


async def test_two_retrievers_of_one_query():
    results = await recall(run(step(QUESTION, "ABCDx"), step(QUESTION, "CDEmy"), turns=[0, 0]))
    total = metrics.chapman(4, 4, 2)
    for one in named(results, "relevant_total"):
        assert (one.value, one.stderr) == pytest.approx((total.total, total.stderr))
        assert (one.metadata["low"], one.metadata["high"]) == pytest.approx((total.low, total.high))
    first, second = named(results, "recall_estimated")
    assert first.value == second.value == pytest.approx(4 / total.total)
    assert first.label == "estimated"
    assert first.stderr == pytest.approx(
        (4 / max(6, total.total - total.stderr) - 4 / (total.total + total.stderr)) / 2
    )
    assert named(results, "f_estimated")[0].value == pytest.approx(4 / (0.5 * 5 + 0.5 * total.total))


async def test_proc_knows_of_what_nobody_found():
    results = await recall(run(step(QUESTION, "ABmx"), step(QUESTION, "BCny"), turns=[0, 0]))
    # Three relevant ones each, one of them both: 4 * 4 / 2 - 1 = 7, so two more than were found, a 5 and a 4 by shares.
    assert named(results, "relevant_total")[0].value == pytest.approx(7)
    pool = [5, 5, 4, 2, 5, 4, 2, 5, 4]
    expected = metrics.proc(pool, [5, 5, 4, 2], 4)
    assert named(results, "proc_estimated")[0].value == pytest.approx(expected)
    assert expected < 1


async def test_a_guard_keeps_its_places_and_loses_recall():
    kept = step(QUESTION, "A", candidates="ABCDx")
    kept.decision = Decision([Passage("A")], [], "pruned")
    results = await recall(run(kept, step(QUESTION, "CDEmy"), turns=[0, 0]))
    total = metrics.chapman(4, 4, 2).total
    first, _ = named(results, "recall_estimated")
    assert first.value == pytest.approx(1 / total)


@pytest.mark.parametrize("second", ["ABCDx", "AB", ""])
async def test_a_retrieval_that_found_nothing_else_says_nothing(second):
    assert await recall(run(step(QUESTION, "ABCDx"), step(QUESTION, second))) == []


async def test_queries_that_differ_have_nothing_in_common_and_a_pool_knows_better():
    engine = ScriptedEngine(label=weigh)
    assert await recall(run(step("one?", "AB"), step("two?", "BC")), engine=engine) == []
    pooled = run(step(QUESTION, "AB"), step(QUESTION, "BC"), pool=[Passage("A", grade=5)])
    assert await recall(pooled, engine=engine) == []
    assert engine.calls == []


async def test_beside_grades_nothing_is_asked_twice():
    engine = ScriptedEngine(label=weigh)
    results = await recall(
        run(step(QUESTION, "ABx"), step(QUESTION, "BCy")), scorers=["grades"], engine=engine
    )
    assert [len(call.prompts) for call in engine.calls] == [5]
    assert named(results, "recall_estimated")
    assert not [one for one in results if isinstance(one, Failure)]


async def test_a_passage_without_a_grade_is_a_failure_and_no_number():
    def unsure(text, label):
        return 0.01 if "C" in documents(text) else weigh(text, label)

    results = await recall(
        run(step(QUESTION, "AB"), step(QUESTION, "BC")), engine=ScriptedEngine(label=unsure)
    )
    assert [one.message for one in results if "no grade" in one.message]
    assert not [one for one in results if isinstance(one, Score)]


async def test_given_grades_stand():
    engine = ScriptedEngine(label=weigh)
    the_run = run(step(QUESTION, "ABx"), step(QUESTION, "BCx"))
    for one in the_run.steps:
        for passage in one.candidates:
            passage.grade = 5 if passage.text == "x" else None
        one.passages = one.candidates
    results = await recall(the_run, engine=engine)
    assert named(results, "relevant_total")[0].value == pytest.approx(metrics.chapman(3, 3, 2).total)
    assert [len(call.prompts) for call in engine.calls] == [3]


async def test_nothing_relevant_says_nothing():
    results = await recall(run(step(QUESTION, "xy"), step(QUESTION, "yz")))
    assert not [one for one in results if isinstance(one, Score) and not math.isfinite(one.value)]
    assert named(results, "recall_estimated") == []


async def test_a_passage_with_two_grades_is_a_failure_and_no_estimate():
    first, second = step(QUESTION, "ABCx"), step(QUESTION, "BCDy")
    for one, grade in ((first, 5), (second, 1)):
        one.passages = [
            Passage(passage.text, grade=grade if passage.text == "B" else None) for passage in one.passages
        ]
        one.candidates = list(one.passages)
    (failure,) = await recall(run(first, second))
    assert "has the grades 5 and 1" in failure.message

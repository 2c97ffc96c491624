"""K is the number of places in the prompt, not of what a guard left of them."""

import math

import pytest
from support.reader import FIRM, FIRM_QUERY, FOUNDER, FOUNDER_QUERY, NEAR, NOISE, QUESTION, reader, run, step

from ragguard.metrics import udcg
from ragguard.records import (
    CONTENT_KIND,
    CUT_PASSAGES,
    K_ERROR,
    SPLIT_ERROR,
    Decision,
    Dropped,
    Failure,
    Passage,
    RetrievalStep,
)
from ragguard.scorers.pipeline import ScoringPipeline
from ragguard.scorers.utility import Utility
from ragguard.scorers.view import Caps

CANDIDATES = {"five a": 5, "five b": 5, "five c": 5, "two a": 2, "two b": 2}
POOL = {**CANDIDATES, "five d": 5, "one": 1, "three": 3}


def graded(texts):
    return [Passage(text, id=text, grade=POOL[text]) for text in texts]


def guarded(kept, k=None):
    """A step of five candidates of which a guard keeps some."""
    found, left = graded(CANDIDATES), graded(kept)
    gone = [Dropped(one, rank, "junk") for rank, one in enumerate(found, 1) if one.text not in kept]
    decision = Decision(left, gone, "pruned" if gone else "kept_all")
    return RetrievalStep(query=FIRM_QUERY, passages=left, candidates=found, decision=decision, k=k)


async def graded_scores(one, stage="passages"):
    the_run = run(one, pool=graded(POOL))
    results = await ScoringPipeline(reader(), scorers=["grades"]).results(the_run)
    return {score.name: score for score in results if score.stage == stage and score.level == "step"}


def expected(kept, k):
    """RA-nWG, N-Recall, precision, harm and T from their formulas, without any code of the metrics."""
    n = {grade: sum(value == grade for value in POOL.values()) for grade in range(1, 6)}
    weights = {5: 1.0, 4: 0.0, 3: min(0.1 * n[5] / n[3], 0.25), 2: 0.0, 1: 0.0}
    best = sum(sorted((weights[grade] for grade in POOL.values()), reverse=True)[:k])
    grades = [POOL[text] for text in kept]
    good, junk = sum(grade >= 4 for grade in grades), sum(grade <= 2 for grade in grades)
    return {
        "ra_nwg": sum(weights[grade] for grade in grades) / best,
        "n_recall": good / min(k, sum(grade >= 4 for grade in POOL.values())),
        "precision_at_grade": good / k,
        "harm": junk / k,
        "t": 0.5 * good - 0.5 * (len(grades) - good) / k,
    }


@pytest.mark.parametrize("k", [None, 5, 8])
@pytest.mark.parametrize("kept", [list(CANDIDATES), ["five a"], ["five a", "two a"], []])
async def test_a_guard_does_not_look_better_the_more_gold_it_drops(kept, k):
    found = await graded_scores(guarded(kept, k))
    for name, value in expected(kept, k or 5).items():
        assert found[name].value == pytest.approx(value), name
        assert (found[name].metadata["k"], found[name].metadata["kept"]) == (k or 5, len(kept))


async def test_a_reranker_that_chooses_sets_k_and_a_guard_behind_it_does_not_lower_it():
    found = graded(CANDIDATES)
    reranked = RetrievalStep(query=FIRM_QUERY, passages=found[:2], candidates=found)
    assert (await graded_scores(reranked))["ra_nwg"].metadata["k"] == reranked.places == 2
    behind = Decision(found[:1], [Dropped(found[1], 2, "junk")], "pruned")
    pruned = RetrievalStep(query=FIRM_QUERY, passages=found[:1], candidates=found, decision=behind)
    assert (await graded_scores(pruned))["ra_nwg"].metadata["k"] == pruned.places == 2
    before = Decision(found[:4], [Dropped(found[4], 5, "junk")], "pruned")
    chosen = RetrievalStep(query=FIRM_QUERY, passages=found[:2], candidates=found, decision=before)
    assert chosen.places == 2


async def utilities(*steps):
    results = await ScoringPipeline(reader(), scorers=[Utility(relevance="binary")]).results(run(*steps))
    return [score for score in results if getattr(score, "name", "") in ("udcg", "udcg_context")]


def dropping(query, kept, dropped):
    """A step of which a guard dropped some."""
    whole = step(query, [*kept, *dropped])
    left = whole.passages[: len(kept)]
    gone = [Dropped(one, 1, "junk") for one in whole.passages[len(kept) :]]
    return RetrievalStep(
        query=query, passages=left, candidates=whole.passages, decision=Decision(left, gone, "pruned")
    )


async def test_dropped_passage_is_neither_gain_nor_loss_for_udcg():
    sigma = lambda x: 1 / (1 + math.exp(-x))  # noqa: E731
    after, before, context = await utilities(dropping(FIRM_QUERY, [FIRM], [NEAR]))
    assert after.value == pytest.approx(sigma(0.9 / 2))
    assert before.value == pytest.approx(sigma(0.9 / 2 - 0.4 / 3 / 2))
    assert context.value == after.value
    assert [score.metadata["k"] for score in (after, before, context)] == [2, 2, 2]
    assert after.metadata["kept"] == 1
    assert after.value > before.value, "a guard that drops a distractor helps"
    worse, *_ = await utilities(dropping(FIRM_QUERY, [NEAR], [FIRM]))
    assert worse.value < before.value, "a guard that drops what helps does harm"


async def test_the_context_counts_the_empty_places_of_all_steps():
    *_, context = await utilities(
        dropping(FIRM_QUERY, [FIRM], [NEAR]), step(FOUNDER_QUERY, [NOISE, FOUNDER], k=4)
    )
    assert context.metadata["k"] == 2 + 4
    assert context.value == pytest.approx(udcg([0.9, 0, -0.05, 0.95, 0, 0]))


async def test_a_k_that_cannot_be_right_is_a_failure_and_no_number():
    bad = step(FIRM_QUERY, [FIRM, NEAR])
    bad.metadata = {K_ERROR: "k: got 1; allowed: a whole number, 2 or more: 2 passages were delivered"}
    results = await ScoringPipeline(reader(), scorers=["grades", "utility"]).results(run(bad))
    (failure,) = [result for result in results if isinstance(result, Failure)]
    assert (failure.scorer, failure.error, failure.step_id) == ("capture", "InvalidInput", bad.id)
    assert "2 or more" in failure.message
    assert {score.level for score in results if not isinstance(score, Failure)} == {"passage"}


@pytest.mark.parametrize("k", [None, 4])
async def test_a_step_that_retrieved_nothing_is_scored_on_its_places(k):
    """By the formulas every K gives the same; a K that is not known is not shown."""
    empty = RetrievalStep(query=FIRM_QUERY, k=k)
    engine = reader()
    results = await ScoringPipeline(engine, scorers=["utility", "grades"]).results(
        run(empty, pool=graded(POOL))
    )
    found = {score.name: score for score in results}
    assert {name: score.value for name, score in found.items()} == {
        "udcg": udcg([], k=k or 1),
        "udcg_context": udcg([], k=k or 1),
        "ra_nwg": 0.0, "n_recall": 0.0, "n_recall_5": 0.0, "recall": 0.0, "proc": 0.0, "precision_at_grade": 0.0,
        "harm": 0.0, "harm_1": 0.0, "t": 0.0, "t_u": 0.0, "f": 0.0,
    }  # fmt: skip
    assert {score.metadata.get("k") for score in results} == {k}
    assert {score.metadata["kept"] for score in results} == {0}
    assert engine.calls == []


async def test_empty_steps_take_no_place_under_the_cap_and_have_the_cap_for_themselves():
    steps = [*(step(FIRM_QUERY, []) for _ in range(3)), step(FIRM_QUERY, [FIRM])]
    results = await ScoringPipeline(reader(), scorers=["utility"], caps=Caps(steps=2)).results(run(*steps))
    found = [score.step_id for score in results if getattr(score, "name", "") == "udcg"]
    assert found == [steps[0].id, steps[1].id, steps[3].id]
    (failure,) = [result for result in results if isinstance(result, Failure)]
    assert (failure.error, failure.step_id) == ("CapExceeded", steps[2].id)


IMAGE = Passage("", "picture", metadata={CONTENT_KIND: "image"})


SCORERS = ["utility", "coverage", "grades", "belief"]


def textless_step(query, given):
    found = [one if isinstance(one, Passage) else Passage(one, one[:8]) for one in given]
    return RetrievalStep(query=query, passages=found, candidates=found)


async def scored(the_run, scorers=SCORERS, caps=None):
    results = await ScoringPipeline(reader(), scorers=scorers, caps=caps or Caps()).results(the_run)
    failures = [result for result in results if isinstance(result, Failure)]
    return [result for result in results if not isinstance(result, Failure)], failures


@pytest.mark.parametrize("scorer", SCORERS)
async def test_each_scorer_says_which_passage_it_did_not_judge(scorer):
    scores, failures = await scored(
        run(textless_step(FIRM_QUERY, [FIRM, IMAGE, Passage("  ", "blank")])), [scorer]
    )
    assert [(f.scorer, f.error, f.step_id != "", f.will_retry) for f in failures] == [
        (scorer, "NoText", True, False)
    ]
    assert failures[0].message.startswith("passage 2 (image), passage 3: ")
    assert not {"picture", "blank"} & {score.passage_id for score in scores}


async def test_an_answer_that_an_image_may_have_told_is_not_unsupported():
    async def label(passages):
        scores, _ = await scored(run(textless_step(QUESTION, passages)), ["coverage"])
        return [s.label for s in scores if s.name == "answer_correct"]

    assert await label([NEAR]) == ["correct, unsupported"]
    assert await label([NEAR, IMAGE]) == ["correct"]


async def test_a_step_of_which_passages_were_not_captured_says_so_as_a_failure_and_counts_them():
    last = Passage(NEAR, "near", metadata={CUT_PASSAGES: "the first 3 of 9 passages"})
    _, failures = await scored(
        run(textless_step(FIRM_QUERY, [FIRM, QUESTION, last])), ["utility"], Caps(passages=1)
    )
    assert [(f.scorer, f.error, f.message.partition(":")[0]) for f in failures] == [
        ("utility", "CapExceeded", "2 of the first 3 of 9 passages"),
        (
            "capture", "CapExceeded",
            "only the first 3 of 9 passages are captured, and all numbers leave out the others; record fewer",
        ),
    ]  # fmt: skip


async def test_a_step_whose_splitter_failed_says_so_as_a_failure():
    hop = textless_step(FIRM_QUERY, [FIRM])
    hop.tool, hop.metadata = "web", {SPLIT_ERROR: "ValueError: odd text"}
    scores, failures = await scored(run(hop), ["utility"])
    assert scores
    assert [(f.scorer, f.error, f.step_id, f.will_retry) for f in failures] == [
        ("capture", "SplitterFailed", hop.id, False)
    ]
    assert "'web'" in failures[0].message
    assert "odd text" in failures[0].message

"""Passages without text, such as images: they are said to be not judged, and count for nothing."""

import pytest
from support.reader import FIRM, FIRM_QUERY, NEAR, QUESTION, reader, run

from ragguard.records import CONTENT_KIND, CUT_PASSAGES, SPLIT_ERROR, Failure, Passage, RetrievalStep
from ragguard.scorers.pipeline import ScoringPipeline
from ragguard.scorers.settings import Caps

IMAGE = Passage("", "picture", metadata={CONTENT_KIND: "image"})
SCORERS = ["utility", "coverage", "grades", "belief"]


def step(query, given):
    found = [one if isinstance(one, Passage) else Passage(one, one[:8]) for one in given]
    return RetrievalStep(query=query, passages=found, candidates=found)


async def scored(the_run, scorers=SCORERS, caps=None):
    results = await ScoringPipeline(reader(), scorers=scorers, caps=caps or Caps()).results(the_run)
    failures = [result for result in results if isinstance(result, Failure)]
    return [result for result in results if not isinstance(result, Failure)], failures


def key(score):
    return score.name, score.stage, score.level, score.sub_question, score.passage_id


@pytest.mark.parametrize("scorer", SCORERS)
async def test_each_scorer_says_which_passage_it_did_not_judge(scorer):
    scores, failures = await scored(run(step(FIRM_QUERY, [FIRM, IMAGE, Passage("  ", "blank")])), [scorer])
    assert [(f.scorer, f.error, f.step_id != "", f.will_retry) for f in failures] == [
        (scorer, "NoText", True, False)
    ]
    assert failures[0].message.startswith("passage 2 (image), passage 3: ")
    assert not {"picture", "blank"} & {score.passage_id for score in scores}


async def test_an_image_changes_no_score_of_the_texts_beside_it():
    with_image, _ = await scored(run(step(FIRM_QUERY, [FIRM, IMAGE, NEAR])))
    without, _ = await scored(run(step(FIRM_QUERY, [FIRM, NEAR])))
    assert {key(s): s.value for s in with_image} == {key(s): s.value for s in without}


async def test_a_step_of_images_alone_has_no_scores():
    scores, failures = await scored(run(step(FIRM_QUERY, [FIRM]), step("a map of Oslo", [IMAGE])))
    second = {f.step_id for f in failures}
    assert len(second) == 1
    assert not second & {score.step_id for score in scores}
    assert "delta_seper" in {score.name for score in scores}


async def test_an_answer_that_an_image_may_have_told_is_not_unsupported():
    async def label(passages):
        scores, _ = await scored(run(step(QUESTION, passages)), ["coverage"])
        return [s.label for s in scores if s.name == "answer_correct"]

    assert await label([NEAR]) == ["correct, unsupported"]
    assert await label([NEAR, IMAGE]) == ["correct"]


async def test_a_step_of_which_passages_were_not_captured_says_so_as_a_failure_and_counts_them():
    last = Passage(NEAR, "near", metadata={CUT_PASSAGES: "the first 3 of 9 passages"})
    _, failures = await scored(run(step(FIRM_QUERY, [FIRM, QUESTION, last])), ["utility"], Caps(passages=1))
    assert [(f.scorer, f.error, f.message.partition(":")[0]) for f in failures] == [
        ("utility", "CapExceeded", "2 of the first 3 of 9 passages"),
        (
            "capture", "CapExceeded",
            "only the first 3 of 9 passages are captured, and no number counts the others; record fewer",
        ),
    ]  # fmt: skip


async def test_a_step_whose_splitter_failed_says_so_as_a_failure():
    hop = step(FIRM_QUERY, [FIRM])
    hop.tool, hop.metadata = "web", {SPLIT_ERROR: "ValueError: odd text"}
    scores, failures = await scored(run(hop), ["utility"])
    assert scores
    assert [(f.scorer, f.error, f.step_id, f.will_retry) for f in failures] == [
        ("capture", "SplitterFailed", hop.id, False)
    ]
    assert "'web'" in failures[0].message
    assert "odd text" in failures[0].message

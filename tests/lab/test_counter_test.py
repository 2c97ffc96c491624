"""The counter-test: the reader is asked again without what misled it, or with what it missed."""

from contextlib import closing

import pytest
from support.commands import ragguard
from support.reader import FALSE, FIRM, FOUNDER, FOUNDER_QUERY, NOISE, QUESTION, reader

from ragguard import world
from ragguard.errors import InvalidInput
from ragguard.facts.run_view import CONFIRMED, RunView
from ragguard.lab.counter_test import counter_test
from ragguard.records import Passage, RetrievalStep, Run, Score, ScoredRun
from ragguard.storage.sqlite.store import Store


def failed(texts, answer="Bo Lund", verdict="wrong", unread=(), **more):
    """Returns the view of a run that read these texts and failed; every text was judged to help."""
    passages = [Passage(text) for text in texts]
    step = RetrievalStep(
        "s", "r", 0, 0, query=FOUNDER_QUERY, passages=passages, candidates=[*passages, *map(Passage, unread)]
    )
    scores = [Score("answer_correct", 0.0, "run", "r", label=verdict)]
    scores += [
        Score("utility", 0.9, "passage", "r", "s", position=at) for at in range(1, 1 + len(step.candidates))
    ]
    return RunView(Run("r", QUESTION, ["Ada Berg"], answer, [step], **more), scores)


async def test_the_passage_that_misled_is_taken_out_and_the_answer_turns():
    found = await counter_test(failed([FIRM, FALSE]), reader())
    assert (found.cause, found.before, found.confirmed) == ("misled", "Bo Lund", True)
    assert found.sentence.startswith(
        "Confirmed, misled: without passage 1.2, the answer turns from “Bo Lund” to"
    )


@pytest.mark.parametrize(
    ("view", "put_in", "cause"),
    [
        (failed([NOISE], pool=[Passage(FOUNDER, grade=5), Passage(NOISE, grade=1)]), None, "not_found"),
        (failed([NOISE]), FOUNDER, "not_found"),
        (failed([NOISE], unread=[FOUNDER]), None, "dropped"),
        (failed([], unread=[FOUNDER]), None, "nothing_read"),
    ],
)
async def test_the_missing_passage_is_put_in_from_the_candidates_the_pool_or_by_name(view, put_in, cause):
    found = await counter_test(view, reader(), put_in=put_in)
    assert (found.cause, found.confirmed) == (cause, True)
    assert "with the passage that was missing" in found.sentence


async def test_a_change_that_does_not_help_confirms_nothing():
    found = await counter_test(failed([NOISE]), reader(), put_in=FALSE)
    assert not found.confirmed
    assert found.sentence.startswith(
        "Not confirmed, not_found: with the passage that was missing, the answer becomes"
    )


async def test_a_reader_that_was_right_tests_nothing():
    found = await counter_test(failed([FIRM, FOUNDER, FALSE]), reader())
    assert (found.was_right, found.confirmed) == (True, False)
    assert found.sentence.startswith("Not tested: with the passages as they were this reader is right")


@pytest.mark.parametrize(
    ("view", "why"),
    [
        (failed([NOISE]), "no passage is known"),
        (failed([FOUNDER], "Ada Berg", "correct"), "right"),
        (RunView(Run("r", QUESTION, None, "Bo Lund")), "no reference"),
        (RunView(Run("r", QUESTION, ["Ada Berg"])), "no cause"),
    ],
)
async def test_what_cannot_be_tested_is_refused_with_the_reason(view, why):
    with pytest.raises(InvalidInput, match=why):
        await counter_test(view, reader())


def test_the_command_marks_a_confirmed_cause_in_the_store(tmp_path):
    """nano reads; in its world a contradiction misleads it in some of the questions."""
    path, confirmed = tmp_path / "s.db", 0
    with closing(Store(path)) as store:
        for case in world.cases(12, seed=3, hops=1):
            false = next(iter(case.of_kind("contradiction")))
            run = world.make_run(case, answer=str(false.metadata["object"]))
            for listed in (run.steps[0].passages, run.steps[0].candidates):
                if false not in listed:
                    listed.append(false)
            scores = [Score("answer_correct", 0.0, "run", run.id, label="wrong")]
            scores += [
                Score("utility", 0.9, "passage", run.id, step.id, position=at)
                for step in run.steps
                for at in range(1, 1 + len(step.candidates))
            ]
            store.add_scored([ScoredRun(run, scores)])
        ids = store.run_ids()
    for id in ids:
        done = ragguard("try-again", path, id, "--engine", "nano")
        assert done.exit_code in (0, 1, 2), done.output
        assert ("Not tested" in done.output) is (done.exit_code == 2)
        confirmed += done.exit_code == 0
        shown = ragguard("report", path, "--run", id).output
        assert ("The cause is confirmed" in shown) is (done.exit_code == 0)
    with closing(Store(path)) as store:
        assert sum(run.metadata.get(CONFIRMED) == "contested" for run in store.runs()) == confirmed >= 1
    ragguard("try-again", tmp_path / "none.db", "x", code=2)
    assert not (tmp_path / "none.db").exists()

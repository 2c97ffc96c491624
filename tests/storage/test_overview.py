"""What reports read is what the records say."""

import json

import pytest
from support.overviews import overviews
from support.runs import a_run, a_step

from ragguard.records import Decision, Dropped, Failure, Passage, RetrievalStep, Run, Score, ScoredRun, Usage
from ragguard.storage.sqlite.overview import SCALE
from ragguard.storage.sqlite.store import Store


def told_of(run, scores, failures=()):
    """The overview of a run with these scores."""
    (found,) = overviews([ScoredRun(run, scores, failures)])
    return found


def rows(text):
    return json.loads(text)


def test_scores_come_by_step_and_rank_in_the_order_in_which_they_were_stored():
    run = a_run()
    of = {"run_id": run.id, "step_id": run.steps[1].id}
    found = told_of(
        run,
        [
            Score(
                "utility", -0.25001, "passage", position=2, stderr=0.1, usage=Usage(1, 2, 30, 4, 0.5), **of
            ),
            Score("answerability", 4.0, "passage", position=2, sub_question=1, **of),
            Score("redundancy", 0.5, "passage", passage_id="p", **of),
            Score("udcg", 0.5, "step", stderr=0.125, stage="candidates", engine="b", usage=Usage(1), **of),
            Score("delta_seper_total", 0.1, "run", run.id, reference_source="answer", engine="a"),
            Score("delta_seper_total", 0.2, "run", run.id, reference_source="gold", label="yes"),
        ],
        [Failure("belief", "Timeout", "too late", True, run.id)],
    )
    place = found.places[1]
    assert rows(found.of_passages) == [
        [place, 2, "utility", -2500, None, 1000],
        [place, 2, "answerability", 4 * SCALE, 1, None],
    ]
    assert rows(found.of_steps) == [[place, "udcg", 5000, 1250, "", "none", "candidates"]]
    of_run = [one for one in found.scored.scores if one.level == "run"]
    assert [(one.value, one.reference_source, one.label) for one in of_run] == [
        (0.1, "answer", ""),
        (0.2, "gold", "yes"),
    ]
    assert (found.view.worst, found.view.misleading) == (-0.25001, 1)
    assert (found.usage, found.engines) == (Usage(2, 2, 30, 4, 0.5), ["a", "b"])
    assert [failure.error for failure in found.view.failures] == ["Timeout"]


@pytest.mark.parametrize("unread", [False, True])
def test_a_utility_within_two_standard_errors_of_zero_is_not_called_misleading(unread):
    run = a_run()
    step = run.steps[0]
    if unread:  # the counts of such runs are corrected apart
        step.candidates = [*step.passages, Passage("another")]
    of = {"run_id": run.id, "step_id": step.id, "position": 1}
    for stderr, count in ((None, 1), (0.14, 1), (0.16, 0)):
        found = told_of(run, [Score("utility", -0.3, "passage", stderr=stderr, **of)])
        assert (found.view.worst, found.view.misleading) == (-0.3, count)


def test_every_reader_of_a_step_has_the_same_k():
    texts = [Passage(text) for text in "abcde"]
    dropping = Decision(texts[:1], [Dropped(one, 1, "junk") for one in texts[1:]], "pruned")
    cases = [
        {"passages": texts[:1], "candidates": texts, "decision": dropping},
        {"passages": texts[:1], "candidates": texts, "decision": dropping, "k": 7},
        {"passages": texts[:1], "candidates": texts},
        {"passages": [], "candidates": texts},
        {"passages": texts, "candidates": texts},
    ]
    run = Run("r", "q", steps=[RetrievalStep(f"s{at}", "r", at, **case) for at, case in enumerate(cases)])
    assert [step.places for step in run.steps] == [5, 7, 1, 5, 5]
    assert [hop.seen.places for hop in told_of(run, []).view.hops] == [5, 7, 1, 5, 5]
    store = Store()
    store.add_scored([ScoredRun(run)])
    assert [step.places for step in store.run("r").steps] == [5, 7, 1, 5, 5]


def test_passage_that_the_guard_dropped_was_not_given_to_the_model():
    run = a_run(steps=0)
    step = a_step(run.id, passages=4)
    twin = Passage(step.candidates[0].text, step.candidates[0].id, 0.9)
    step.candidates = [*step.candidates, twin]
    step.passages = [step.candidates[0], step.candidates[2]]
    step.decision = Decision(step.passages, [Dropped(step.candidates[1], 2, "why", -0.9)], "pruned", 1.5)
    run.steps = [step]
    [hop] = told_of(run, []).view.hops
    assert [one.passage.text for one in hop.passages] == [passage.text for passage in step.candidates]
    assert [one.read for one in hop.passages] == [True, False, True, False, False]
    assert hop.passages[1].verdict.words == "would mislead; dropped: why"
    assert hop.step.decision.elapsed_ms == 1.5


def test_only_what_the_model_got_counts_as_misleading():
    run = a_run(steps=3)
    guarded, reranked, rewritten = run.steps
    guarded.passages = guarded.candidates[1:]
    guarded.decision = Decision(guarded.passages, [Dropped(guarded.candidates[0], 1, "why", -0.9)], "pruned")
    reranked.passages = reranked.candidates[2:]
    rewritten.passages = [Passage("rewritten")]
    utilities = [(-0.9, -0.3, 0.4), (-0.8, -0.7, 0.5), (-0.6, -0.6, -0.6, -0.400001)]
    scores = [
        Score("utility", utility, "passage", run.id, step.id, position=position)
        for step, listed in zip(run.steps, utilities, strict=True)
        for position, utility in enumerate(listed, 1)
    ]
    summary = told_of(run, scores)
    assert (summary.view.worst, summary.view.misleading) == (-0.400001, 2)


def test_numbers_alone_need_no_texts():
    store = Store()
    for number in range(450):  # more than two pages
        store.add_scored([ScoredRun(a_run(f"r{number}"))])
    found = list(store.overviews(texts=False))
    assert [one.scored.run.id for one in found] == [f"r{number}" for number in range(450)]
    assert {passage.passage.text for one in found for hop in one.view.hops for passage in hop.passages} == {
        ""
    }

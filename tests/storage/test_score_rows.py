"""Scores as rows: provisional ones of open runs, and the means of a run's metrics."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.means import means_of
from support.runs import a_run, as_events, scores_of
from support.stored import scored_store, store_scores

from ragguard.capture.events import RunEnded, RunNames, RunStarted, StepAmended, StepEnded
from ragguard.records import PROVISIONAL, Failure, Run, Score, ScoredRun, Usage
from ragguard.storage.files.runfile import write_scores
from ragguard.storage.source import read_means, read_scored
from ragguard.storage.sqlite.ledger import ScoringOutcome


def test_scores_of_two_versions_are_never_mixed(tmp_path):
    run = a_run("r1", steps=1)
    of = {"run_id": "r1", "step_id": run.steps[0].id, "scorer": "utility"}
    scores = [
        Score("udcg", value, "step", version=version, **of) for value, version in ((0.2, "1-a"), (0.6, "2-b"))
    ]
    one = ScoredRun(run, scores)
    [found] = read_means(scored_store(tmp_path / "s.db", [one]))
    assert found == means_of(one)
    assert list(found.means.values()) == [0.6]


COST = Usage(1, 4, 100, 8, 0.5)
CACHED = Usage(0, 4, 0, 0, 0.0, cached=4)


def begin(store, run, steps=None):
    """Puts the run in without its end; returns what the store says has changed."""
    return store.record(as_events(run)[: 1 + (len(run.steps) if steps is None else steps)])


def end(store, run):
    store.record(as_events(run)[-1:])


def provisional(scores, usage=None):
    return [
        replace(one, metadata={PROVISIONAL: True}, usage=one.usage if usage is None else usage)
        for one in scores
    ]


def so_far(store, run, scores, failures=()):
    return store.store_provisional(run.id, scores, failures, None)


def test_the_store_says_of_which_open_runs_steps_have_ended_or_changed(store):
    run = a_run()
    started, first, second, ended = as_events(run)
    assert store.record([started]) == set()
    assert store.record([first]) == {"r1"}
    assert store.record([second]) == {"r1"}
    assert store.record([StepAmended("r1", "r1-s0", [])]) == {"r1"}
    assert store.record([ended, *as_events(a_run("r2")), *as_events(a_run("r3"))[:2]]) == {"r3"}
    assert store.record([first]) == set()


def test_a_run_that_is_continued_is_named_as_the_store_knows_it(store):
    *events, end = as_events(a_run("old"))
    store.record([*events, replace(end, waits_for="t")])
    again = Run("new", "who founded it?", status="open", started_ns=7)
    assert store.record([RunStarted(again, RunNames(thread="t", resumes=True))]) == set()
    step = replace(a_run("new", 1).steps[0], id="later")
    assert store.record([StepEnded(step)]) == {"old"}
    assert [one.id for one in store.run("old").steps] == ["old-s0", "old-s1", "later"]


def test_only_a_run_that_is_open_has_news_so_far(store):
    run = a_run()
    begin(store, run)
    end(store, run)
    assert so_far(store, run, provisional(scores_of(run))) is None
    assert so_far(store, a_run("nobody"), provisional(scores_of(run))) is None


@pytest.mark.parametrize("late", ["open", "due", "scored"])
def test_the_cost_of_live_scoring_is_in_the_final_scores_whenever_it_came(store, late):
    """The models were asked before the run's end; its final scoring then reads a cache, and would have cost nothing."""
    run = a_run()
    begin(store, run)
    live, final = (
        provisional(scores_of(run, 0.4), COST),
        [replace(one, usage=CACHED) for one in scores_of(run, 0.5)],
    )
    if late == "open":
        so_far(store, run, live)
    end(store, run)
    if late == "due":
        so_far(store, run, live)
    news = store_scores(store, run, final)
    if late == "scored":
        so_far(store, run, live)
    else:
        assert [one.usage for one in news] == [COST] * 3, "sinks get it, too"
    found = store.scores("r1")
    assert [(one.value, one.provisional) for one in found] == [(0.5, False)] * 3
    assert sum((one.usage.prompt_tokens for one in found), 0) == 3 * COST.prompt_tokens


def test_a_score_that_changes_replaces_itself_and_one_that_does_not_is_no_news(store):
    run = a_run()
    begin(store, run)
    first = provisional(scores_of(run, 0.4))
    assert so_far(store, run, first) == first
    assert so_far(store, run, first) == []
    changed = [*first[:-1], *provisional(scores_of(run, 0.7)[-1:])]
    assert so_far(store, run, changed) == changed[-1:]
    assert [(one.name, one.value, one.provisional) for one in store.scores("r1")] == [
        ("udcg", 0.4, True), ("udcg", 0.4, True), ("udcg_context", 0.7, True),
    ]  # fmt: skip


def test_the_end_takes_the_mark_away_and_keeps_what_was_paid(store):
    run = a_run()
    begin(store, run)
    so_far(store, run, provisional(scores_of(run, 0.4), COST))
    so_far(store, run, provisional(scores_of(run, 0.5), CACHED))
    end(store, run)
    final = [replace(one, usage=CACHED) for one in scores_of(run, 0.5)]
    assert store_scores(store, run, final) == [replace(one, usage=COST) for one in final]
    found = store.scores("r1")
    assert [one.provisional for one in found] == [False] * 3
    assert [one.usage for one in found] == [COST] * 3
    assert [dict(one.metadata) for one in found] == [{}] * 3


def test_score_that_the_end_changes_costs_both_attempts(store):
    run = a_run()
    begin(store, run)
    so_far(store, run, provisional(scores_of(run, 0.4), COST))
    end(store, run)
    store_scores(store, run, [replace(one, usage=COST) for one in scores_of(run, 0.6)])
    assert [(one.value, dict(one.metadata)) for one in store.scores("r1")] == [(0.6, {})] * 3
    assert store.scores("r1")[0].usage == COST + COST


def test_unconfirmed_provisional_score_goes_unless_its_engine_failed(store):
    run = a_run()
    begin(store, run)
    other = [replace(one, scorer="belief", name=f"belief {one.name}") for one in scores_of(run)]
    so_far(store, run, provisional([*scores_of(run), *other]))
    end(store, run)
    first_step = run.steps[0].id
    outcome = ScoringOutcome(
        "r1", "x", 1, scores=scores_of(run)[:2], failures=[Failure("belief", "EngineTimeout", "slow", True)],
        retry_ns=1, uncertain={("belief", first_step)},
    )  # fmt: skip
    store.store_outcome(outcome)
    assert {(one.name, one.step_id, one.provisional) for one in store.scores("r1")} == {
        ("udcg", first_step, False), ("udcg", run.steps[1].id, False), ("belief udcg", first_step, True),
    }  # fmt: skip
    store_scores(store, run, [*scores_of(run)[:2], *other[:1]])
    assert not any(one.provisional for one in store.scores("r1"))
    assert len(store.scores("r1")) == 3


def test_final_scores_of_a_run_that_goes_on_stay_until_its_next_end(store):
    run = a_run()
    store.record(as_events(run))
    store_scores(store, run, scores_of(run, 0.3))
    store.record([RunStarted(Run("part", status="open", started_ns=5), RunNames("r1", resumes=True))])
    store.record([StepEnded(replace(run.steps[0], id="later", run_id="part", index=0))])
    longer = replace(run, steps=[*run.steps, replace(run.steps[0], id="later")])
    news = so_far(store, longer, provisional(scores_of(longer, 0.6)))
    assert [one.step_id for one in news] == ["later"]
    assert [(one.value, one.provisional) for one in store.scores("r1")] == [
        (0.3, False), (0.3, False), (0.3, False), (0.6, True),
    ]  # fmt: skip
    store.record([RunEnded("part")])
    store_scores(store, longer, scores_of(longer, 0.8), revision=2)
    assert [(one.value, one.provisional) for one in store.scores("r1")] == [(0.8, False)] * 4


def test_comparisons_and_score_files_leave_provisional_scores_out(store, tmp_path):
    open_run, ended = a_run("open"), a_run("ended")
    begin(store, open_run)
    so_far(store, open_run, provisional(scores_of(open_run)))
    store.record(as_events(ended))
    store_scores(store, ended, scores_of(ended))
    assert [len(one.means) for one in store.means()] == [0, 2]
    assert [len(means_of(one).means) for one in store.scored_runs()] == [0, 2]
    write_scores(store.scored_runs(), tmp_path / "scores.jsonl")
    assert [(one.run.id, len(one.scores)) for one in read_scored(tmp_path / "scores.jsonl")] == [("ended", 3)]


def test_a_text_that_looks_like_the_mark_is_none(store):
    run = a_run()
    store.record(as_events(run))
    words = Score("mine", 1.0, "run", "r1", scorer="mine", metadata={"said": '"provisional":true'})
    store_scores(store, run, [words])
    assert [len(one.means) for one in store.means()] == [1]

"""Capturing everything and scoring a part of it, or later: score_rate, scorers=() and what flush says of it."""

from __future__ import annotations

import pytest
from support.runs import a_run
from support.scripted_pipeline import ListSink

from ragguard import Passage
from ragguard.errors import InvalidInput


def capture(rg, count):
    for n in range(count):
        with rg.run(f"question {n}", id=f"run-{n}") as run:
            run.retrieved("hop", [Passage("Nordvik is a firm")])


def scored(rg):
    return {run.id for run in rg.runs() if rg.scores(run.id)}


def test_a_share_is_scored_and_all_is_kept(make):
    rg = make(score_rate=0.25)
    capture(rg, 200)
    report = rg.flush(60)
    assert report
    assert len(rg.runs()) == 200
    assert report.scored == len(scored(rg))
    assert (report.scored + report.unscored, report.failed) == (200, 0)
    assert 25 <= report.scored <= 75
    assert f"{report.unscored} kept without a score" in str(report)


async def test_the_share_is_decided_by_the_run_id(make, tmp_path):
    first, second = make(score_rate=0.25, store=tmp_path / "1.db"), make(score_rate=0.25, store=None)
    for rg in (first, second):
        await rg.add_runs(a_run(f"run-{n}") for n in range(60))
        rg.flush(60)
    assert scored(first) == scored(second) != set()


def test_the_share_is_one_of_what_is_sampled(make):
    rg = make(sample_rate=0.5, score_rate=0.5)
    capture(rg, 400)
    rg.flush(60)
    assert 150 <= len(rg.runs()) <= 250
    assert 60 <= len(scored(rg)) <= 140


async def test_run_outside_the_score_rate_is_scored_on_demand(make):
    rg = make(score_rate=0.0)
    capture(rg, 3)
    report = await rg.aflush(30)
    assert (report.scored, report.unscored) == (0, 3)
    for run in rg.runs():
        assert {score.name for score in await rg.score(run)} >= {"utility"}
    assert len(scored(rg)) == 3


def test_sinks_hear_of_what_is_kept_without_a_score(make):
    sink = ListSink()
    rg = make(score_rate=0.0, sinks=[sink])
    capture(rg, 3)
    assert rg.flush(30)
    assert {one.run.id for one in sink.got} == {run.id for run in rg.runs()}
    assert [one.scores for one in sink.got] == [[], [], []]


def test_without_scorers_everything_is_kept_and_nothing_called_scored(make):
    rg = make(scorers=())
    capture(rg, 3)
    report = rg.flush(30)
    assert (report.captured, report.scored, report.unscored) == (3, 0, 3)


@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan"), "half", None])
def test_a_rate_is_a_share(make, rate):
    with pytest.raises(InvalidInput, match="score_rate"):
        make(score_rate=rate)

"""Which of several scores of one thing counts: one rule for the report, the page, the list, comparisons and labels."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from support.commands import ragguard

from ragguard.analysis.page import detail, summary
from ragguard.facts.run_view import RunView
from ragguard.facts.scores import CountedScores, that_count
from ragguard.lab.labels.items import latest
from ragguard.records import Passage, RetrievalStep, Run, Score, ScoredRun
from ragguard.storage.source import read_means
from ragguard.storage.sqlite.ledger import ScoringOutcome
from ragguard.storage.sqlite.store import Store

PASSAGES = [Passage("Ada founded it.", "a"), Passage("Carl founded it.", "b")]


def by_judge(judge, *utilities):
    """The scores of one judge, who judged the first passages."""
    made = {"scorer": "utility", "version": f"1-{judge}", "engine": judge}
    scores = [
        Score("utility", value, "passage", "r", "s", position=rank, **made)
        for rank, value in enumerate(utilities, 1)
    ]
    return [*scores, Score("udcg", sum(utilities) / len(utilities), "step", "r", "s", **made)]


def the_run():
    return Run(
        "r", "who founded it?", ["Ada"], "Ada", [RetrievalStep("s", "r", query="who?", passages=PASSAGES)]
    )


def stored(path, *scorings):
    store = Store(path)
    store.add_scored([ScoredRun(the_run())])
    for at, scores in enumerate(scorings):
        store.store_outcome(ScoringOutcome("r", f"settings {at}", 1, scores, []))
    store.close()
    return path


SECOND_JUDGED_LESS = (by_judge("first", -0.9, -0.8), by_judge("second", 0.9))
SECOND_JUDGED_ALL = (by_judge("first", -0.9, -0.8), by_judge("second", 0.9, 0.7))


@pytest.mark.parametrize(
    ("scorings", "counted"), [(SECOND_JUDGED_LESS, [-0.9, -0.8]), (SECOND_JUDGED_ALL, [0.9, 0.7])]
)
def test_every_reader_takes_the_numbers_of_one_judge(tmp_path, scorings, counted):
    path = stored(tmp_path / "s.db", *scorings)
    store = Store(path)
    (overview,) = store.overviews()
    (means,) = read_means(path)
    (scored,) = store.scored_runs()
    view = RunView(scored.run, scored.scores)
    mean = sum(counted) / 2
    for shown in (view, overview.view):
        assert [one.utility for one in shown.hops[0].passages] == pytest.approx(counted)
        assert shown.hops[0].find("udcg").value == pytest.approx(mean)
        assert shown.worst == min(counted)
    assert summary(overview)["misleading"] == view.misleading == sum(one < -0.2 for one in counted)
    utilities = [row for row in json.loads(overview.of_passages) if row[2] == "utility"]
    assert [row[3] / 10_000 for row in utilities] == counted  # what the page draws
    assert {series.name: value for series, value in means.means.items()} == pytest.approx(
        {"utility": mean, "udcg": mean}
    )
    assert [one.value for one in latest(scored, "utility")] == counted
    store.close()


def test_a_run_that_two_judges_scored_says_so_in_the_terminal_on_the_page_and_in_json(tmp_path):
    path = stored(tmp_path / "s.db", *SECOND_JUDGED_LESS)
    said = (
        "utility scored this run in 2 ways; its numbers here are by first (1-first), since it judged 3 passages and "
        "steps and a newer one 2, not by second (1-second)"
    )
    printed = ragguard("report", path, "--run", "r", env={"COLUMNS": "300"}).stdout
    assert said in printed
    assert "misleads" in printed
    assert "helps" not in printed
    in_json = json.loads(ragguard("report", path, "--run", "r", "--json").stdout)
    assert in_json["remarks"] == [said]
    store = Store(path)
    (overview,) = store.overviews()
    assert detail(overview, {})["remarks"] == [said]
    store.close()


def test_a_run_that_each_scorer_scored_once_has_no_remark(tmp_path):
    scores = [
        *by_judge("first", -0.9, -0.8),
        Score("grade", 4.0, "passage", "r", "s", position=1, scorer="grades"),
    ]
    assert that_count(scores) is scores
    assert list(RunView(the_run(), scores).remarks) == []


def test_gold_comes_before_support_and_the_newest_before_older_ones():
    gold = Score("seper", 0.5, "step", "r", "s", reference_source="gold", references_hash="g")
    support = replace(gold, value=0.9, reference_source="answer", references_hash="a")
    assert CountedScores([gold, support]).get("seper", "s") is gold
    assert CountedScores([support, gold]).get("seper", "s") is gold
    newer = replace(gold, value=0.6, references_hash="h")
    assert CountedScores([gold, newer]).get("seper", "s") is newer

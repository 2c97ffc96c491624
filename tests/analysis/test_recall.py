"""How many relevant passages there are, from logged runs that asked a query more than once."""

import math

import pytest
from support.compared import logged

from ragguard.analysis.recall import estimate_recall
from ragguard.metrics import chapman
from ragguard.records import Score, ScoredRun


@pytest.mark.parametrize("name", ["grade", "p_relevant"])
def test_two_runs_that_asked_the_same(name):
    (one,) = estimate_recall([logged("1", "ABCDx", name=name), logged("2", "CDEFy", query="Who", name=name)])
    assert (one.query, one.retrievals, one.found) == ("who?", 2, 6)
    assert one.total == chapman(4, 4, 2)
    assert one.recall == pytest.approx(4 / chapman(4, 4, 2).total)


def test_parallel_retrievers_of_one_run_count_as_well():
    (one,) = estimate_recall([logged("1", "ABC", "BCD")])
    assert one.total == chapman(3, 3, 2)


def test_what_a_guard_dropped_was_found():
    (one,) = estimate_recall([logged("1", "ABC", got="A"), logged("2", "BCD", got="B")])
    assert one.total == chapman(3, 3, 2)


def test_the_same_list_again_tells_nothing_and_a_query_asked_once_is_not_there():
    found = estimate_recall([logged("1", "ABC"), logged("2", "ABC"), logged("3", "XY", query="another?")])
    assert [one.query for one in found] == ["who?"]
    assert math.isnan(found[0].recall)
    assert math.isnan(found[0].total.total)


def test_a_grade_counts_before_p_relevant():
    graded = logged("1", "AB", "BC")
    said = [Score("p_relevant", 0.1, "passage", "1", step_id="1-0", position=1)]
    (one,) = estimate_recall([ScoredRun(graded.run, [*graded.scores, *said])])
    assert one.found == 3


def test_verdicts_that_differ_are_settled_by_their_majority():
    first, second, third = logged("1", "AB"), logged("2", "AC"), logged("3", "Ad")
    no = [
        Score("grade", 1, "passage", run.run.id, step_id=f"{run.run.id}-0", position=1)
        for run in (second, third)
    ]
    (one,) = estimate_recall(
        [
            first,
            *(
                ScoredRun(run.run, [s for s in run.scores if s.position != 1] + [n])
                for run, n in zip((second, third), no, strict=True)
            ),
        ]
    )
    assert one.found == 2


def test_the_lowest_recall_is_first_and_what_is_not_known_last():
    found = estimate_recall(
        [
            logged("1", "AB", "AB", query="known?"),
            logged("2", "ABCD", "ABCE", query="high?"),
            logged("3", "AB", "BCDEFG", query="low?"),
        ]
    )
    assert [one.query for one in found] == ["low?", "high?", "known?"]


def test_nothing_judged_is_nothing_estimated():
    bare = logged("1", "AB", "BC")
    assert estimate_recall([ScoredRun(bare.run, [])]) == []

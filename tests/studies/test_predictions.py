"""Tables of how metrics go with outcomes, on contexts small enough to be worked out by hand."""

import numpy as np
import pytest

from ragguard import world
from studies.annotations import Annotated
from studies.pools import corpus_for, find_pools
from studies.predictions import (
    DataSet,
    correlations,
    differences,
    other_kinds,
    outcomes,
)
from studies.samples import Sample

OUTCOME = [2.0, 2.0, 1.0, 0.0, 2.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]
"""Three questions with four contexts each; the last one's all came out the same."""


@pytest.fixture(scope="module")
def one():
    cases = world.cases(3, seed=4)
    pools = find_pools(corpus_for(world.default_world(), cases), cases, "t")
    annotated = []
    for pool in pools:
        rising = np.linspace(0, 1, len(pool.passages))
        names = (
            "p_relevant",
            "p_abstain",
            "utility",
            "judged",
            "by_hop",
            "judged_by_hop",
            "erag",
            "p_answer",
        )
        annotated.append(
            Annotated(pool=pool, relevance=np.array(pool.relevance), **dict.fromkeys(names, rising))
        )
    # Of each question two contexts with what it needs, then two without.
    rows = [
        row for pool in pools for gold in [min(pool.gold[0])] for junk in [pool.kinds.index("unrelated")]
        for row in ([gold, junk], [junk, gold], [junk, junk], [junk, junk])
    ]  # fmt: skip
    sample = Sample(tuple(annotated), np.repeat([0, 1, 2], 4), np.array(rows), np.array(OUTCOME))
    outcome = sample.outcome
    values = {
        "right": outcome, "wrong way": -outcome, "flat": np.ones(12), "absent": None,
        "half": np.array([1.0, 1.0, 0.0, 0.0] * 3),
    }  # fmt: skip
    return DataSet("set", sample, values, 5)


def test_a_row_of_numbers_is_looked_up_where_each_passage_stands(one):
    sample = one.sample
    assert sample.of(lambda pool: pool.relevance)[:4].tolist() == [[1, 0], [0, 1], [0, 0], [0, 0]]
    ideal = sample.ideal(lambda pool: pool.relevance)
    assert ideal.shape == (12, 25)
    assert ideal[0].sum() == len(sample.pools[0].pool.gold[0])
    assert (np.diff(ideal) <= 0).all()
    assert sample.answerable.tolist() == [True, True, False, False] * 3
    assert sample.varied == 2


def test_correlations_are_means_over_the_questions_that_vary(one):
    table = correlations([one], "n", "t", ("right", "wrong way", "flat", "absent", "half"), "s", ["note"])
    assert table.columns == ("metric", "set", "set, from", "set, to")
    rows = {row[0]: row[1:] for row in table.rows}
    assert [rows[name][0] for name in ("right", "wrong way", "flat")] == [1.0, -1.0, 0.0]
    assert np.isnan(rows["right"][1:]).all()  # two questions bound nothing
    assert rows["absent"] == (None, None, None)
    # Ranks 3.5 3.5 2 1 against 3.5 3.5 1.5 1.5, and 4 3 1.5 1.5 against the same.
    assert rows["half"][0] == pytest.approx(4 / np.sqrt(4.5 * 4) / 2 + 4 / np.sqrt(4.5 * 4) / 2)
    assert "note" in table.notes
    assert "of 5 questions 2 were left out" in table.notes[-1]
    assert "1 as all their contexts came out the same; 2 count" in table.notes[-1]


def test_differences_are_of_the_same_questions(one):
    table = differences([one], "n", ("right", "wrong way", "absent", "flat"), "right", "s")
    rows = {row[0]: row[1:] for row in table.rows}
    assert set(rows) == {"wrong way", "flat"}
    assert [rows[name][0] for name in ("wrong way", "flat")] == [2.0, 1.0]


def test_predictions_take_other_coefficients_and_outcomes(one):
    table = other_kinds([one], "n", ("right", "half"), "s")
    assert table.rows[0] == ("right", 1.0, 1.0, 1.0, 1.0)
    # Five pairs of each question differ in their outcome; a half says nothing of two of them at most.
    assert table.rows[1][4] == pytest.approx((4 / 5 + 4 / 5) / 2)
    told = outcomes([one], "n")
    assert told.rows[0][:2] == ("set: answerable", 6)
    assert told.rows[0][2:] == (50.0, pytest.approx(100 / 2), 0.0)
    assert told.rows[1] == ("set: answerable, with a falsehood", 0, None, None, None)

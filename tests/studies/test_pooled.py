"""Correlations over all contexts, with intervals over questions."""

import math

import numpy as np
import pytest
from scipy import stats

from studies.pooled import pooled, pooled_difference


def test_value_and_p_are_scipys() -> None:
    rng = np.random.default_rng(1)
    metric = rng.normal(size=60)
    outcome = metric + rng.normal(size=60)
    questions = np.repeat(np.arange(12), 5)
    for kind, theirs in (("pearson", stats.pearsonr), ("spearman", stats.spearmanr)):
        ours = pooled(metric, outcome, questions, kind)  # type: ignore[arg-type]
        expected = theirs(metric, outcome)
        assert (ours.value, ours.p) == pytest.approx((expected.statistic, expected.pvalue))
        assert ours.low < ours.value < ours.high
        assert (ours.counted, ours.skipped) == (60, 0)


def test_whole_questions_are_drawn() -> None:
    # Two questions that disagree: a draw of one of them alone gives 1 or −1, whatever its contexts.
    metric, outcome = [0, 1, 2, 0, 1, 2], [0, 1, 2, 2, 1, 0]
    found = pooled(metric, outcome, ["a"] * 3 + ["b"] * 3)
    assert found.value == pytest.approx(0)
    assert (found.low, found.high) == pytest.approx((-1, 1))


def test_one_question_has_no_interval() -> None:
    numbers = [0, 1, 2, 4]
    found = pooled(numbers, [0, 2, 1, 3], ["a"] * 4)
    assert math.isnan(found.low)
    assert math.isnan(found.high)
    gap = pooled_difference(numbers, [3, 1, 0, 2], [0, 2, 1, 3], ["a"] * 4, "spearman")
    assert not math.isnan(gap.value)
    assert all(math.isnan(one) for one in (gap.low, gap.high, gap.p))


def test_values_that_are_no_number_are_left_out_and_counted() -> None:
    found = pooled([0, 1, math.nan, 3], [0, 1, 2, math.nan], [1, 2, 3, 4])
    assert (found.counted, found.skipped) == (2, 2)
    nothing = pooled([math.nan], [1.0], [1])
    assert math.isnan(nothing.value)
    assert nothing.counted == 0


def test_difference_is_of_what_both_know() -> None:
    outcome = [0, 1, 2, 3, 4, 5]
    a, b = [0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, math.nan]
    gap = pooled_difference(a, b, outcome, [1, 1, 2, 2, 3, 3], "spearman")
    assert gap.value == pytest.approx(2)
    assert (gap.low, gap.high) == pytest.approx((2, 2))
    assert (gap.counted, gap.skipped) == (5, 1)
    assert gap.p < 0.01


def test_the_same_seed_gives_the_same_interval() -> None:
    rng = np.random.default_rng(2)
    metric, outcome, questions = rng.normal(size=30), rng.normal(size=30), np.repeat(np.arange(6), 5)
    assert pooled(metric, outcome, questions, seed=3) == pooled(metric, outcome, questions, seed=3)
    assert pooled(metric, outcome, questions, seed=3) != pooled(metric, outcome, questions, seed=4)

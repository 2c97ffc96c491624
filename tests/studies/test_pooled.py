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


def test_difference_is_of_what_both_know() -> None:
    outcome = [0, 1, 2, 3, 4, 5]
    a, b = [0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, math.nan]
    gap = pooled_difference(a, b, outcome, [1, 1, 2, 2, 3, 3], "spearman")
    assert gap.value == pytest.approx(2)
    assert (gap.low, gap.high) == pytest.approx((2, 2))
    assert (gap.counted, gap.skipped) == (5, 1)
    assert gap.p < 0.01

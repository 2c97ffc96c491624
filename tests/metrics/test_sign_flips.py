"""Sign flips: exact against SciPy's permutation test, intervals by inversion, one level over many measures."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from ragguard.metrics.agreement import ALL_UP_TO, least_p, sign_flips


def drawn(n, seed=0, shift=0.3):
    return np.random.default_rng(seed).normal(shift, 1.0, n)


@pytest.mark.parametrize("n", [2, 5, 9, 12])
def test_p_of_few_questions_is_that_of_scipys_exact_permutation_test(n):
    gaps = drawn(n)
    (ours,) = sign_flips([gaps])
    theirs = stats.permutation_test(
        (gaps,), np.mean, permutation_type="samples", n_resamples=np.inf, alternative="two-sided"
    )
    assert ours.p == pytest.approx(theirs.pvalue)
    assert ours.p_adjusted == ours.p
    assert ours.value == pytest.approx(gaps.mean())


def test_least_p_is_reached_where_all_differences_have_one_sign():
    (result,) = sign_flips([np.array([1.0, 2.0, 0.5, 3.0, 1.0])])
    assert result.p == least_p(5) == 1 / 16


def test_interval_of_five_questions_bounds_nothing_at_95_percent():
    (result,) = sign_flips([drawn(5)])
    assert math.isnan(result.low)
    assert math.isnan(result.high)


def test_interval_holds_exactly_the_means_that_the_test_does_not_reject():
    gaps = drawn(9)
    (result,) = sign_flips([gaps])
    for mean, rejected in [
        (result.low - 1e-6, True), (result.low + 1e-6, False), (result.high - 1e-6, False), (result.high + 1e-6, True)
    ]:  # fmt: skip
        (shifted,) = sign_flips([gaps - mean])
        subsets = [c for k in range(1, 10) for c in itertools.combinations(gaps - mean, k)]
        one_sided = min(sum(np.mean(c) <= 0 for c in subsets), sum(np.mean(c) >= 0 for c in subsets)) + 1
        assert (one_sided / 512 <= 0.025) == rejected
        assert 0 < shifted.p <= 1


@pytest.mark.parametrize("n", [ALL_UP_TO, ALL_UP_TO + 1, 60])
def test_interval_is_close_to_students_for_normal_differences(n):
    gaps = drawn(n, seed=3)
    (result,) = sign_flips([gaps])
    low, high = stats.t.interval(0.95, n - 1, gaps.mean(), stats.sem(gaps))
    assert result.low == pytest.approx(low, abs=0.15 * (high - low))
    assert result.high == pytest.approx(high, abs=0.15 * (high - low))


def test_adjusted_p_of_equal_measures_is_that_of_one_of_them():
    gaps = drawn(10)
    alone, *rest = sign_flips([gaps] * 10)
    assert alone.p_adjusted == alone.p
    assert {one.p_adjusted for one in rest} == {alone.p}


def test_adjusted_p_grows_with_unrelated_measures_and_never_orders_them_otherwise():
    random = np.random.default_rng(1)
    gaps = [random.normal(0.9, 1, 12), *random.normal(0, 1, (9, 12))]
    results = sign_flips(gaps)
    assert results[0].p_adjusted > results[0].p
    by_p = sorted(results, key=lambda one: one.p)
    assert [one.p_adjusted for one in by_p] == sorted(one.p_adjusted for one in results)


def test_any_of_ten_measures_without_a_difference_is_called_different_at_the_level():
    random = np.random.default_rng(2)
    called = [
        min(one.p_adjusted for one in sign_flips(random.normal(size=(10, 8)), draws=99)) <= 0.05
        for _ in range(400)
    ]
    assert 0.02 <= np.mean(called) <= 0.085  # 0.047 is exact; 3.5 standard errors


def test_questions_without_a_value_are_left_out_of_their_measure_alone():
    gaps = drawn(10)
    holes = gaps.copy()
    holes[3:] = np.nan
    full, part = sign_flips([gaps, holes])
    (alone,) = sign_flips([gaps[:3]])
    assert (full.counted, part.counted) == (10, 3)
    assert (part.value, part.p, part.low, part.high) == (alone.value, alone.p, alone.low, alone.high)


def test_differences_that_are_all_zero_are_no_difference():
    (result,) = sign_flips([np.zeros(8)])
    assert (result.value, result.p, result.low, result.high) == (0, 1, 0, 0)

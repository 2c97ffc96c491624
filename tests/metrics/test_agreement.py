"""Correlations with outcomes against SciPy, intervals against what they must hold, sign flips against their level."""

import itertools
import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import cohen_kappa_score, roc_auc_score

from ragguard import metrics as m
from ragguard.metrics.agreement import auc, cohen_kappa
from ragguard.metrics.mean_differences import ALL_UP_TO, mean_tests

RATINGS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=30)


def noisy(seed, n=200, strength=1.0):
    random = np.random.default_rng(seed)
    outcome = random.integers(0, 3, n).astype(float)
    return strength * outcome + random.normal(0, 1, n), outcome


@pytest.mark.parametrize(
    ("kind", "scipys"),
    [
        ("spearman", scipy.stats.spearmanr),
        ("pearson", scipy.stats.pearsonr),
        ("kendall_b", scipy.stats.kendalltau),
        ("kendall_c", lambda x, y: scipy.stats.kendalltau(x, y, variant="c")),
        ("somers_d", lambda x, y: scipy.stats.somersd(y, x)),
    ],
)
def test_equals_scipy(kind, scipys):
    metric, outcome = noisy(0)
    found, expected = m.correlate(metric, outcome, kind), scipys(metric, outcome)
    assert found.value == pytest.approx(expected.statistic, abs=1e-9)
    assert found.p == pytest.approx(expected.pvalue, rel=1e-9)
    assert (found.counted, found.skipped) == (200, 0)
    assert np.isnan(found.low)


def test_undefined_values_are_left_out_and_counted():
    metric, outcome = noisy(2)
    metric[:5], outcome[3:8] = np.nan, np.nan
    found = m.correlate(metric, outcome)
    assert (found.counted, found.skipped) == (192, 8)
    assert found.value == m.correlate(metric[8:], outcome[8:]).value


@pytest.mark.parametrize("metric", [[1.0, 1.0, 1.0], [1.0, np.nan, np.nan], [1.0, 1.0 + 1e-15, 1.0]])
def test_constant_values_have_no_correlation(metric):
    found = m.correlate(metric, [1, 2, 3])
    assert np.isnan(found.value)
    assert np.isnan(found.p)
    assert m.correlate([], []).counted == 0


def test_a_flat_metric_may_count_as_one_that_predicts_nothing():
    outcome, groups = [0, 1, 2, 0, 1, 2, 1, 1, 1], [0, 0, 0, 1, 1, 1, 2, 2, 2]
    metric = [1, 2, 3, 5, 5, 5, 1, 2, 3]
    assert m.correlate(metric, outcome, groups=groups).value == 1
    found = m.correlate(metric, outcome, groups=groups, flat=0.0)
    assert (found.value, found.counted, found.skipped) == (0.5, 2, 1)
    gap = m.paired_bootstrap(outcome, metric, groups, outcome, flat=0.0)
    assert (gap.value, gap.counted, gap.skipped) == (0.5, 2, 1)
    assert m.correlate([5, 5], [1, 2], flat=0.0).value == 0
    assert np.isnan(m.correlate([5], [1], flat=0.0).value)


def test_grouped_is_the_mean_of_each_groups_correlation():
    metric, outcome = noisy(3)
    groups = np.arange(200) // 10
    outcome[groups == 4] = 1.0
    found = m.correlate(metric, outcome, groups=groups)
    each = [
        scipy.stats.spearmanr(metric[groups == g], outcome[groups == g]).statistic
        for g in range(20)
        if g != 4
    ]
    assert found.value == pytest.approx(np.mean(each), abs=1e-9)
    assert (found.counted, found.skipped) == (19, 1)
    assert found.low < found.value < found.high
    spread = np.std(each, ddof=1) / np.sqrt(19)
    assert found.high - found.low == pytest.approx(2 * 1.96 * spread, rel=0.2)
    assert found.p < 0.01


def test_two_runs_that_differ_and_two_that_do_not():
    random = np.random.default_rng(6)
    base = random.normal(0, 1, 100)
    better = m.paired_bootstrap(base + 0.3 + random.normal(0, 0.1, 100), base)
    assert better.value == pytest.approx(0.3, abs=0.05)
    assert better.low > 0
    assert better.p < 0.01
    same = m.paired_bootstrap(base + random.normal(0, 0.1, 100), base)
    assert same.low < 0 < same.high
    assert same.p > 0.05
    assert m.paired_bootstrap(base, base).p == 1


def test_the_interval_of_a_mean_equals_that_of_scipy():
    random = np.random.default_rng(7)
    gap = random.normal(0.2, 1, 80)
    ours = m.paired_bootstrap(gap, np.zeros(80), draws=10_000)
    theirs = scipy.stats.bootstrap((gap,), np.mean, n_resamples=10_000, method="percentile", random_state=0)
    assert ours.p == pytest.approx(scipy.stats.ttest_1samp(gap, 0).pvalue, abs=0.02)
    assert ours.low == pytest.approx(theirs.confidence_interval.low, abs=0.02)
    assert ours.high == pytest.approx(theirs.confidence_interval.high, abs=0.02)


def test_runs_by_group_weigh_each_group_alike():
    # One question with many entries, one with few.
    found = m.paired_bootstrap([1.0] * 8 + [3.0, np.nan], [0.0] * 10, groups=[0] * 8 + [1] * 2)
    assert found.value == 2
    assert found.counted == 2


def test_of_two_metrics_the_one_that_follows_the_outcome_correlates_more():
    good, outcome = noisy(8, strength=2)
    poor, _ = noisy(9, strength=2)
    found = m.paired_bootstrap(good, poor, outcome=outcome, draws=200)
    assert found.value == pytest.approx(m.correlate(good, outcome).value - m.correlate(poor, outcome).value)
    assert found.low > 0
    assert found.p < 0.05
    grouped = m.paired_bootstrap(good, poor, np.arange(200) // 10, outcome, kind="kendall_b")
    assert grouped.low > 0
    assert grouped.counted == 20
    assert m.paired_bootstrap(good, good, outcome=outcome, draws=50).value == 0


def flips(differences, **settings):
    return mean_tests(differences, symmetric=True, **settings)


def drawn(n, seed=0, shift=0.3):
    return np.random.default_rng(seed).normal(shift, 1.0, n)


@pytest.mark.parametrize("n", [2, 5, 9, 12])
def test_p_of_few_questions_is_that_of_scipys_exact_permutation_test(n):
    gaps = drawn(n)
    (ours,) = flips([gaps])
    theirs = stats.permutation_test(
        (gaps,), np.mean, permutation_type="samples", n_resamples=np.inf, alternative="two-sided"
    )
    assert ours.p == pytest.approx(theirs.pvalue)
    assert ours.p_adjusted == ours.p
    assert ours.value == pytest.approx(gaps.mean())


def test_interval_holds_exactly_the_means_that_the_test_does_not_reject():
    gaps = drawn(9)
    (result,) = flips([gaps])
    for mean, rejected in [
        (result.low - 1e-6, True), (result.low + 1e-6, False), (result.high - 1e-6, False), (result.high + 1e-6, True)
    ]:  # fmt: skip
        (shifted,) = flips([gaps - mean])
        subsets = [c for k in range(1, 10) for c in itertools.combinations(gaps - mean, k)]
        one_sided = min(sum(np.mean(c) <= 0 for c in subsets), sum(np.mean(c) >= 0 for c in subsets)) + 1
        assert (one_sided / 512 <= 0.025) == rejected
        assert 0 < shifted.p <= 1


@pytest.mark.parametrize("n", [ALL_UP_TO, ALL_UP_TO + 1, 60])
def test_interval_is_close_to_students_for_normal_differences(n):
    gaps = drawn(n, seed=3)
    (result,) = flips([gaps])
    low, high = stats.t.interval(0.95, n - 1, gaps.mean(), stats.sem(gaps))
    assert result.low == pytest.approx(low, abs=0.15 * (high - low))
    assert result.high == pytest.approx(high, abs=0.15 * (high - low))


def test_adjusted_p_grows_with_unrelated_measures_and_never_orders_them_otherwise():
    random = np.random.default_rng(1)
    gaps = [random.normal(0.9, 1, 12), *random.normal(0, 1, (9, 12))]
    results = flips(gaps)
    assert results[0].p_adjusted > results[0].p
    by_p = sorted(results, key=lambda one: one.p)
    assert [one.p_adjusted for one in by_p] == sorted(one.p_adjusted for one in results)


def test_any_of_ten_measures_without_a_difference_is_called_different_at_the_level():
    random = np.random.default_rng(2)
    called = [
        min(one.p_adjusted for one in flips(random.normal(size=(10, 8)), draws=99)) <= 0.05
        for _ in range(400)
    ]
    assert 0.02 <= np.mean(called) <= 0.085  # 0.047 is exact; 3.5 standard errors


def test_questions_without_a_value_are_left_out_of_their_measure_alone():
    gaps = drawn(10)
    holes = gaps.copy()
    holes[3:] = np.nan
    full, part = flips([gaps, holes])
    (alone,) = flips([gaps[:3]])
    assert (full.counted, part.counted) == (10, 3)
    assert (part.value, part.p) == (alone.value, alone.p)
    assert np.isnan([part.low, part.high, alone.low, alone.high]).all()


@given(RATINGS)
def test_kappa_is_scikit_learns(pairs) -> None:
    first, second = zip(*pairs, strict=True)
    if len({*first, *second}) < 2:
        assert math.isnan(cohen_kappa(first, second))
        return
    assert cohen_kappa(first, second) == pytest.approx(cohen_kappa_score(first, second), abs=1e-9)
    grades = cohen_kappa(first, second, quadratic=True)
    labels = list(range(6))
    assert grades == pytest.approx(
        cohen_kappa_score(first, second, weights="quadratic", labels=labels), abs=1e-9
    )


@given(st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=2, max_size=40))
def test_auc_is_scikit_learns(pairs) -> None:
    scores, positive = zip(*pairs, strict=True)
    if len(set(positive)) < 2:
        assert math.isnan(auc(scores, positive))
    else:
        assert auc(scores, positive) == pytest.approx(roc_auc_score(positive, scores), abs=1e-9)


def test_one_question_apart_does_not_hide_a_rise_of_all_others():
    rises = 1 + 0.01 * np.arange(12)
    rises[-1] = 0.5
    (test,) = mean_tests([rises])
    assert test.p == 2**-11
    assert 0.7 < test.low < test.high < 1.3

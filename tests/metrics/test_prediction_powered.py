"""Means of a judge's values that a few labels correct."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import brentq

from ragguard.errors import InvalidInput
from ragguard.metrics.prediction_powered import corrected_mean, rogan_gladen

SEEDS = st.integers(0, 10_000)


def drawn(seed, runs=40, places=5, labels=30):
    """Returns the judge's values, all right values, those of the labelled items alone, and each item's run."""
    random = np.random.default_rng(seed)
    right = (random.random(runs * places) < 0.4).astype(float)
    judged = np.clip(0.25 + 0.5 * right + 0.2 * random.standard_normal(right.size), 0, 1)
    labelled = np.full(right.size, np.nan)
    chosen = random.choice(right.size, labels, replace=False)
    labelled[chosen] = right[chosen]
    return judged, right, labelled, np.repeat(np.arange(runs), places)


@given(SEEDS)
@settings(max_examples=30, deadline=None)
def test_with_every_label_the_judge_does_not_matter(seed):
    judged, right, _, runs = drawn(seed)
    found = corrected_mean(judged, right, runs=runs)
    assert found.value == pytest.approx(right.mean())
    by_run = right.reshape(40, 5).mean(axis=1)
    assert 0.6 < found.stderr / (by_run.std(ddof=1) / math.sqrt(40)) < 1.8
    assert found.raw == pytest.approx(judged.mean())


@given(SEEDS, st.floats(-3, 3))
@settings(max_examples=30, deadline=None)
def test_leaning_of_the_judge_does_not_matter(seed, leaning):
    judged, _, labelled, runs = drawn(seed)
    strata = (np.arange(judged.size) // 100).astype(int)
    one = corrected_mean(judged, labelled, runs=runs, strata=strata)
    other = corrected_mean(judged + leaning, labelled, runs=runs, strata=strata)
    assert other.value == pytest.approx(one.value)
    assert other.stderr == pytest.approx(one.stderr)
    assert other.raw == pytest.approx(one.raw + leaning)


@given(SEEDS)
@settings(max_examples=30, deadline=None)
def test_useless_judge_gets_no_weight_and_the_interval_of_labels_alone(seed):
    _, _, labelled, runs = drawn(seed)
    found = corrected_mean(np.full(labelled.size, 0.7), labelled, runs=runs)
    alone = corrected_mean(np.zeros(labelled.size), labelled, runs=runs)
    assert found.value == pytest.approx(np.nanmean(labelled))
    assert (found.low, found.high) == pytest.approx((alone.low, alone.high))


@given(SEEDS)
@settings(max_examples=30, deadline=None)
def test_good_judge_narrows_the_interval_and_the_tuned_weight_is_the_best(seed):
    judged, _, labelled, _ = drawn(seed)
    tuned = corrected_mean(judged, labelled)
    assert 0 < tuned.weight <= 1
    rest = [np.nanvar(labelled - weight * judged) for weight in (0.0, tuned.weight, 1.0)]
    assert rest[1] <= min(rest) + 1e-12
    assert tuned.high - tuned.low < (alone := corrected_mean(judged, labelled, weight=0.0)).high - alone.low


def test_known_case_by_hand():
    """Ten labels of twenty items, half of each stratum: 8 + 2 of 10 in one, 1 of 10 in the other by the judge."""
    judged = np.array([1.0] * 10 + [0.0] * 10)
    labelled = np.full(20, np.nan)
    labelled[:5] = (1, 1, 1, 1, 0)
    labelled[10:15] = (0, 0, 0, 0, 1)
    found = corrected_mean(judged, labelled, strata=[0] * 10 + [1] * 10, weight=1.0)
    # 1/2 + (10 · (−0.2) + 10 · 0.2) / 20
    assert found.value == pytest.approx(0.5)
    # Five of ten labels tell as much as ten of an endless stratum. The variance of five is that of a distribution which
    # counts 10 · 4/5 − 1. A quantile of the sum of two beta distributions, by adding up the density of one over the
    # distribution of the other.
    one, other = (stats.beta(7 * mean + 5 / 75, 7 * (1 - mean) + 5 / 75) for mean in (0.8, 0.2))
    at = np.linspace(0.0005, 0.9995, 1000)

    def over(total, p):
        return float(np.mean(one.pdf(at) * other.cdf(total - at))) - p

    reach = [abs(brentq(over, 0.01, 1.99, (p,)) - 1.0) / 2 for p in (0.025, 0.975)]
    of_runs = stats.t.ppf(0.975, 19) ** 2 * (np.array([0.8] * 10 + [0.2] * 10).var(ddof=1) + 0.2) / 20
    wanted = [math.sqrt(half**2 + of_runs) for half in reach]
    assert (found.below, found.above) == pytest.approx(wanted, rel=0.03)


def test_where_nearly_all_labels_agree_the_interval_reaches_further_to_the_other_side():
    judged, labelled = np.full(400, 0.5), np.full(400, np.nan)
    labelled[:20] = [1.0] * 19 + [0.0]
    found = corrected_mean(judged, labelled, range=(0, 1))
    assert found.below > 1.5 * found.above
    assert found.low < 0.8 < found.value == pytest.approx(0.95)
    assert found.high == min(1.0, found.value + found.above)


def test_fewer_than_ten_labels_and_wrong_shapes_are_refused():
    with pytest.raises(InvalidInput, match="10 labels or more"):
        corrected_mean(np.zeros(20), [1.0] * 9 + [math.nan] * 11)
    with pytest.raises(InvalidInput, match="labelled"):
        corrected_mean(np.zeros(20), np.zeros(19))


@given(SEEDS)
@settings(max_examples=30, deadline=None)
def test_rogan_and_gladen_give_the_rate_back_where_the_errors_are_known(seed):
    judged, right, _, _ = drawn(seed)
    assert rogan_gladen(judged >= 0.5, right) == pytest.approx(right.mean())


def test_rogan_and_gladen_say_nothing_of_one_class_or_of_a_judge_that_errs_more_than_not():
    assert math.isnan(rogan_gladen([True, False, True], [1.0, 1.0, math.nan]))
    assert math.isnan(rogan_gladen([True, True, False, False], [0.0, 0.0, 1.0, 1.0]))

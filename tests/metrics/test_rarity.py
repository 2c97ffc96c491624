"""RA-nWG, PROC, %PROC: by hand, by the identity, and against sums spelt out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragguard import metrics as m

POOL = (5, 4, 4, 3, 3, 3, 2, 1)
GRADES = st.lists(st.integers(1, 5), min_size=1, max_size=15)


@st.composite
def selections(draw):
    """A pool, candidates from it, at most k chosen from those, and k."""
    pool = draw(GRADES)
    candidates = draw(st.permutations(pool))[: draw(st.integers(0, len(pool)))]
    k = draw(st.integers(1, 8))
    return pool, candidates, candidates[: draw(st.integers(0, min(k, len(candidates))))], k


def spelt_out(pool, chosen, k, alpha=1.0):
    """RA-nWG one passage at a time."""
    base = {5: 1.0, 4: 0.5, 3: 0.1, 2: 0.0, 1: 0.0}
    rarity = {g: base[g] / (pool.count(g) / len(pool)) ** alpha if g in pool else 0.0 for g in base}
    weight = {5: 1.0, 4: 1.0, 3: 0.2, 2: 0.0, 1: 0.0}
    if 5 in pool:
        weight |= {4: min(rarity[4] / rarity[5], 1.0), 3: min(rarity[3] / rarity[5], 0.25)}
    oracle = sum(sorted((weight[g] for g in pool), reverse=True)[:k])
    return sum(weight[g] for g in chosen) / oracle if oracle else float("nan")


def test_rarity_of_a_small_case_is_the_number_by_hand():
    weights = m.grade_weights(POOL)
    assert weights[1:] == pytest.approx([0, 0, 1 / 30, 0.25, 1])
    assert m.ra_nwg(POOL, (4, 3, 3, 3), 4) == pytest.approx(0.22826, abs=5e-6)
    assert m.ra_nwg(POOL, (4, 3, 3, 3), 4) == pytest.approx(0.35 / (1.5 + 1 / 30))
    assert m.ra_nwg(POOL, (5, 4, 4, 3), 4) == pytest.approx(1)
    assert m.proc(POOL, (4, 4, 3, 3, 1), 4) == pytest.approx((0.5 + 2 / 30) / (1.5 + 1 / 30))
    assert m.pct_proc(POOL, (4, 4, 3, 3, 1), (4, 3), 4) == pytest.approx((0.25 + 1 / 30) / (0.5 + 2 / 30))


def test_counting_measures_by_hand():
    assert m.n_recall(POOL, (4, 3, 3, 3), 4) == pytest.approx(1 / 3)
    assert m.n_recall(POOL, (4, 3, 3, 3), 4, at_least=5) == 0
    assert m.n_recall(POOL, (5, 4), 2) == 1
    assert m.precision_at_grade((5, 4, 2), 4) == 0.5
    assert m.precision_at_grade((5, 4, 2), 4, at_least=5) == 0.25
    assert m.harm((5, 2, 1), 4) == 0.5
    assert m.harm((5, 2, 1), 4, at_most=1) == 0.25


def test_without_a_grade_5_weights_are_fixed():
    assert m.grade_weights((4, 3, 1))[1:].tolist() == [0, 0, 0.2, 1, 1]
    assert m.ra_nwg((4, 3, 1), (3,), 1) == pytest.approx(0.2)


def test_a_grade_3_may_weigh_more_than_a_4():
    pool = [5] * 2 + [4] * 10 + [3]
    weights = m.grade_weights(pool)
    assert weights[3] == pytest.approx(0.2)
    assert weights[4] == pytest.approx(0.1)
    assert m.ra_nwg(pool, [5, 5, 3], 3) == pytest.approx(1)


def test_alpha_and_caps():
    assert m.grade_weights(POOL, alpha=0)[1:] == pytest.approx([0, 0, 0.1, 0.5, 1])
    assert m.grade_weights(POOL, cap4=0.2, cap3=0.01)[1:] == pytest.approx([0, 0, 0.01, 0.2, 1])
    assert m.grade_weights([5, 5, 5, 4, 3], alpha=1000)[1:] == pytest.approx([0, 0, 0.25, 1, 1])
    assert m.grade_weights(POOL, alpha=1000)[1:] == pytest.approx([0, 0, 0, 0, 1])


@given(selections(), st.sampled_from([0.0, 0.5, 1.0, 2.0]))
def test_equals_the_sum_spelt_out(selection, alpha):
    pool, _, chosen, k = selection
    assert m.ra_nwg(pool, chosen, k, alpha) == pytest.approx(spelt_out(pool, chosen, k, alpha), nan_ok=True)


@given(selections())
def test_ra_nwg_is_proc_times_pct_proc(selection):
    pool, candidates, chosen, k = selection
    reached, ceiling = m.ra_nwg(pool, chosen, k), m.proc(pool, candidates, k)
    share = m.pct_proc(pool, candidates, chosen, k)
    if np.isnan(reached):
        assert np.isnan(ceiling)
        assert np.isnan(share)
    elif ceiling == 0:
        assert reached == 0
        assert np.isnan(share)
    else:
        assert reached == pytest.approx(ceiling * share)
        assert 0 <= reached <= ceiling + 1e-12
        assert ceiling <= 1 + 1e-12


@given(selections(), st.randoms())
def test_no_measure_knows_an_order(selection, random):
    pool, candidates, chosen, k = selection
    shuffled = [random.sample(grades, len(grades)) for grades in (pool, candidates, chosen)]
    assert m.pct_proc(*shuffled, k) == pytest.approx(m.pct_proc(pool, candidates, chosen, k), nan_ok=True)
    assert m.n_recall(shuffled[0], shuffled[2], k) == pytest.approx(m.n_recall(pool, chosen, k), nan_ok=True)


@given(selections())
def test_shares_lie_between_0_and_1_and_exclude_each_other(selection):
    pool, _, chosen, k = selection
    assert m.precision_at_grade(chosen, k) + m.harm(chosen, k) <= 1 + 1e-12
    assert m.harm(chosen, k, at_most=5) == pytest.approx(len(chosen) / k)
    recall = m.n_recall(pool, chosen, k)
    assert np.isnan(recall) or 0 <= recall <= 1

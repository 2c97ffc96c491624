"""T, T_u, F, F_e: by hand, by their limits, and the best α against SciPy."""

from fractions import Fraction

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from ragguard import metrics as m

COUNTS = st.integers(1, 20).flatmap(lambda k: st.tuples(st.integers(0, k), st.just(k), st.integers(0, k)))
ALPHA = st.floats(0, 1)


def test_top_k_of_a_small_case_is_the_number_by_hand():
    assert m.t(3, 5, 0.5) == pytest.approx(1.3)
    assert m.t_u(3, 5, 0.5) == pytest.approx(0.5)
    assert m.f(3, 5, 4, 0.5) == pytest.approx(3 / 4.5)
    assert m.f_e(3, 5, 4, 0.5) == m.f(3, 5, 4, 0.5)


@given(COUNTS, ALPHA)
def test_f_is_the_weighted_harmonic_mean_of_precision_and_recall(counts, alpha):
    n_p, k, more = counts
    total = n_p + more
    value = m.f(n_p, k, total, alpha)
    if total == 0:
        assert np.isnan(value)
    elif n_p == 0:
        assert value == 0
    else:
        assert value == pytest.approx(1 / (alpha / (n_p / k) + (1 - alpha) / (n_p / total)))
        assert 0 <= value <= 1 + 1e-12


@given(COUNTS)
def test_the_ends_of_alpha(counts):
    n_p, k, more = counts
    assert m.t(n_p, k, 0) == n_p
    assert m.t(n_p, k, 1) == pytest.approx((n_p - k) / k)
    assert m.t_u(n_p, k, 1) == n_p - k
    if n_p:
        assert m.f(n_p, k, n_p + more, 1) == pytest.approx(n_p / k)
        assert m.f(n_p, k, n_p + more, 0) == pytest.approx(n_p / (n_p + more))


def outcomes_and_counts(seed=0):
    random = np.random.default_rng(seed)
    k = random.integers(1, 20, 200)
    n_p = random.binomial(k, 0.4)
    return n_p, k, np.digitize(n_p - 0.3 * (k - n_p) + random.normal(0, 1, 200), [0, 1, 2, 4]) + 1


def test_best_alpha_is_the_best_of_a_grid_by_scipy():
    n_p, k, outcomes = outcomes_and_counts()
    grid = np.linspace(0, 1, 101)
    correlations = [
        scipy.stats.spearmanr(np.round(m.t_u(n_p, k, alpha), 12), outcomes).statistic for alpha in grid
    ]
    best = m.best_alpha(lambda alpha: m.t_u(n_p, k, alpha), outcomes)
    assert best.correlation == pytest.approx(max(correlations), abs=1e-9)
    assert best.alpha == pytest.approx(grid[int(np.argmax(np.round(correlations, 12)))])


@pytest.mark.parametrize("seed", [84, 142, 259, 285, 291])
def test_best_alpha_of_t_is_that_of_exact_arithmetic(seed):
    """Equal values of T that rounding tells apart are ties: 0.1 · 3 is 0.3."""
    random = np.random.default_rng(seed)
    n = int(random.integers(8, 60))
    k = random.choice([1, 2, 3, 5, 6, 7, 8, 9, 10, 20], n)
    n_p = (random.random(n) * (k + 1)).astype(int)
    outcomes = n_p + random.integers(0, 5, n)
    best = -1.0
    for alpha in (Fraction(at, 100) for at in range(101)):
        exact = [
            (1 - alpha) * p - alpha * (of - p) / of for p, of in zip(n_p.tolist(), k.tolist(), strict=True)
        ]
        ranks = [sorted(set(exact)).index(value) for value in exact]
        best = max(best, scipy.stats.spearmanr(ranks, outcomes).statistic)
    assert m.best_alpha(lambda alpha: m.t(n_p, k, alpha), outcomes).correlation == pytest.approx(
        best, abs=1e-12
    )


def test_best_alpha_of_outcomes_that_do_not_vary_is_nan():
    best = m.best_alpha(lambda alpha: m.t([1, 2, 3], 5, alpha), [2, 2, 2])
    assert np.isnan(best.alpha)
    assert np.isnan(best.correlation)
    assert np.isnan(m.best_alpha(lambda alpha: m.t([], [], alpha), []).alpha)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_f_e_is_0_where_the_top_2k_hold_nothing_relevant(alpha):
    assert m.f_e(0, 5, 0, alpha) == 0
    assert m.f_e([0, 3], 5, [0, 4], alpha)[0] == 0


def test_best_alpha_compares_every_alpha_on_the_same_queries():
    """F is undefined at α = 0 alone where nothing is relevant and nothing retrieved: such queries must not help it."""
    measure = {0.0: [1.0, 2.0, 3.0, np.nan, np.nan], 1.0: [1.0, 3.0, 2.0, 5.0, 4.0]}

    def at(alpha):
        return np.array(measure[0.0] if alpha == 0 else measure[1.0])

    best = m.best_alpha(at, [1, 3, 2, 9, 8])
    assert best.alpha == pytest.approx(0.01)
    assert best.correlation == pytest.approx(1.0)

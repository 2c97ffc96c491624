"""Shapley's value: it sums to the total, is fair to equals, gives nothing to who adds nothing, and equals the mean over
all orders."""

import math
from itertools import islice, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragguard.errors import InvalidInput
from ragguard.metrics.credit import (
    antithetic_orders,
    enough_after,
    loss_without,
    shapley,
    shapley_of_orders,
    shapley_weights,
)

games = st.integers(0, 6).flatmap(
    lambda n: st.lists(st.floats(-1, 1), min_size=2**n, max_size=2**n).map(np.array)
)


@given(games)
def test_credits_sum_to_the_total(values):
    assert shapley(values).sum() == pytest.approx(values[-1] - values[0], abs=1e-9)


@given(games)
def test_the_value_is_the_mean_over_all_orders(values):
    n = len(values).bit_length() - 1
    gains = np.zeros((math.factorial(n), n))
    for row, order in enumerate(permutations(range(n))):
        before = 0
        for player in order:
            gains[row, player] = values[before | 1 << player] - values[before]
            before |= 1 << player
    assert shapley(values) == pytest.approx(gains.mean(axis=0), abs=1e-9)


@given(games, st.floats(-1, 1))
def test_a_hop_that_always_adds_the_same_gets_that_and_one_that_adds_nothing_gets_nothing(values, gain):
    n = len(values).bit_length() - 1
    with_one_more = np.concatenate([values, values + gain])
    assert shapley(with_one_more)[n] == pytest.approx(gain, abs=1e-9)
    assert shapley(np.concatenate([values, values]))[n] == pytest.approx(0, abs=1e-12)
    assert shapley(with_one_more)[:n] == pytest.approx(shapley(values), abs=1e-9)


def test_two_hops_that_only_help_together_share_alike_and_each_loss_is_the_whole():
    assert shapley([0.1, 0.1, 0.1, 0.9]) == pytest.approx([0.4, 0.4])
    assert loss_without([0.1, 0.1, 0.1, 0.9]) == pytest.approx([0.8, 0.8])
    # Two hops that found the same share alike as well, and neither is missed.
    assert shapley([0.1, 0.9, 0.9, 0.9]) == pytest.approx([0.4, 0.4])
    assert loss_without([0.1, 0.9, 0.9, 0.9]) == pytest.approx([0, 0])


def test_many_runs_at_once():
    values = np.random.default_rng(0).random((5, 8))
    assert shapley(values) == pytest.approx(np.array([shapley(row) for row in values]))
    assert loss_without(values).shape == (5, 3)
    assert shapley_weights(0).shape == (0, 1)


@given(st.integers(2, 6))
def test_the_orders_come_in_pairs_with_the_given_one_first(n):
    pairs = list(islice(antithetic_orders(n, seed=1), 5))
    assert pairs[0] == (tuple(range(n)), tuple(reversed(range(n))))
    assert all(sorted(one) == list(range(n)) and other == one[::-1] for one, other in pairs)
    assert pairs == list(islice(antithetic_orders(n, seed=1), 5))


def test_the_error_over_orders_covers_the_exact_value():
    random = np.random.default_rng(3)
    covered = 0
    for _ in range(300):
        n = 6
        values = np.append(0, random.random(2**n - 1))
        exact = shapley(values)
        gains = []
        for order in [one for pair in islice(antithetic_orders(n, seed=5), 4) for one in pair]:
            masks = np.cumsum([0, *(1 << player for player in order)])
            gains.append({player: values[masks[i + 1]] - values[masks[i]] for i, player in enumerate(order)})
        value, error = shapley_of_orders([one[0] for one in gains])
        covered += abs(value - exact[0]) <= 2 * error
    assert covered > 270


def test_one_order_has_no_error():
    value, error = shapley_of_orders([0.3])
    assert value == 0.3
    assert math.isnan(error)


@pytest.mark.parametrize("values", [[], [1, 2, 3], [1, math.nan]])
def test_what_are_no_values_of_all_sets_is_refused(values):
    with pytest.raises(InvalidInput):
        shapley(values)


@pytest.mark.parametrize(
    ("beliefs", "error", "enough"),
    [
        ([0.1, 0.1, 0.9], 0, 2),
        ([0.1, 0.9, 0.9, 0.88], 0, 1),
        ([0.1, 0.9, 0.2, 0.9], 0, 3),
        ([0.9, 0.9], 0, 0),
        ([0.5], 0, 0),
        ([0.1, 0.7, 0.9], 0.1, 1),
        ([0.1, 0.5, 0.9], 0.1, 2),
    ],
)
def test_it_was_enough_when_the_belief_stays_within_its_error(beliefs, error, enough):
    assert enough_after(beliefs, [error] * len(beliefs)) == enough

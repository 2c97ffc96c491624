"""Likelihoods by hand, and what is refused."""

import math

import pytest

from ragguard.errors import InvalidInput
from ragguard.metrics import likelihood, likelihood_total, mean_logprob

HALVES = [math.log(0.5), math.log(0.5)]
QUARTER = [math.log(0.25)]


def test_likelihood_is_the_geometric_mean_over_tokens_of_the_best_reference():
    assert likelihood([HALVES]) == pytest.approx(0.5)
    assert likelihood([HALVES, QUARTER]) == pytest.approx(0.5)
    assert likelihood([[0.0]]) == 1.0


def test_total_is_the_sum_of_the_probabilities_of_whole_texts():
    assert likelihood_total([HALVES]) == pytest.approx(0.25)
    assert likelihood_total([HALVES, QUARTER]) == pytest.approx(0.5)
    assert likelihood_total([[0.0], [0.0]]) == 1.0


def test_mean_logprob_is_the_logarithm_of_the_likelihood():
    assert math.exp(mean_logprob([HALVES, QUARTER])) == pytest.approx(likelihood([HALVES, QUARTER]))


@pytest.mark.parametrize("function", [likelihood, likelihood_total, mean_logprob])
def test_no_reference_has_no_likelihood_and_wrong_numbers_are_refused(function):
    assert math.isnan(function([]))
    for wrong in ([[0.5]], [[]], [[math.nan]], [["a"]]):
        with pytest.raises(InvalidInput, match="logprobs"):
            function(wrong)

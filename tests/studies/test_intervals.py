"""Intervals over draws of questions."""

import math

import numpy as np
import pytest

from studies.intervals import of_mean, over_questions


def test_the_interval_of_a_mean_is_that_of_the_normal_law_for_many() -> None:
    values = np.random.default_rng(0).normal(2.0, 1.0, 400)
    low, high = of_mean(values, seed=0)
    error = 1.96 * values.std() / 20
    assert (low, high) == (
        pytest.approx(values.mean() - error, abs=0.02),
        pytest.approx(values.mean() + error, abs=0.02),
    )
    assert all(map(math.isnan, of_mean(np.array([]), seed=0)))


def test_rows_of_one_question_are_drawn_together() -> None:
    """Fifty equal rows of each of four questions say no more than four values."""
    values, owners = np.repeat([0.0, 1.0, 0.0, 1.0], 50), np.repeat(np.arange(4), 50)
    low, high = over_questions(lambda rows: float(values[rows].mean()), owners, seed=0)
    assert (low, high) == (0, 1)
    alone = over_questions(lambda rows: float(values[rows].mean()), np.arange(200), seed=0)
    assert 0.4 < alone[0] < 0.5 < alone[1] < 0.6


def test_a_number_that_no_draw_has_has_no_interval() -> None:
    found = over_questions(lambda rows: float("nan"), np.arange(3), seed=0)
    assert np.isnan(found).all()

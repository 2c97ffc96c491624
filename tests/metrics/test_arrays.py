"""Padding ragged lists, and the mean over queries."""

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ragguard import metrics as m
from ragguard.metrics.arrays import ranks

LISTS = st.lists(st.lists(st.floats(-5, 5), max_size=6), max_size=6)


@given(LISTS)
def test_padding_keeps_every_list(lists):
    values, mask = m.pad(lists, fill=-7)
    assert values.shape == mask.shape == (len(lists), max(map(len, lists), default=0))
    assert [row[real].tolist() for row, real in zip(values, mask, strict=True)] == lists
    assert (values[~mask] == -7).all()
    for real in mask:
        assert not (real[1:] & ~real[:-1]).any()


def test_padding_tables():
    values, mask = m.pad([np.ones((2, 3)), np.zeros((0, 3)), np.full((1, 3), 5)])
    assert values.shape == (3, 2, 3)
    assert mask.tolist() == [[True, True], [False, False], [True, False]]
    assert m.coverage(values, mask=mask).tolist() == pytest.approx([0, np.nan, 1], nan_ok=True)


def test_a_ragged_batch_as_a_user_writes_it():
    values, mask = m.pad([[0.9, -0.3], [], [0.5]])
    assert m.udcg(values, mask=mask) == pytest.approx(
        [m.udcg([0.9, -0.3]), np.nan, m.udcg([0.5])], nan_ok=True
    )


def test_the_mean_leaves_out_what_is_undefined_and_says_how_much():
    found = m.aggregate([1.0, np.nan, 2.0, 3.0])
    assert (found.mean, found.counted, found.skipped) == (2, 3, 1)
    assert found.stderr == pytest.approx(scipy.stats.sem([1, 2, 3]))
    alone = m.aggregate([1])
    assert (alone.mean, alone.counted) == (1, 1)
    assert np.isnan(alone.stderr)
    nothing = m.aggregate([np.nan])
    assert np.isnan(nothing.mean)
    assert (nothing.counted, nothing.skipped) == (0, 1)


@given(arrays(int, st.tuples(st.integers(1, 4), st.integers(0, 8)), elements=st.integers(0, 3)))
def test_ranks_equal_scipy(values):
    np.testing.assert_array_equal(ranks(values), scipy.stats.rankdata(values, axis=-1))

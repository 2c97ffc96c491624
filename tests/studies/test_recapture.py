"""Capture and recapture beside its definition, and beside populations whose size is known."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragguard.errors import InvalidInput
from studies.recapture import chapman, recapture


def by_hand(n1, n2, m):
    """Chapman's estimate and variance in exact fractions, from the page."""
    total = Fraction((n1 + 1) * (n2 + 1), m + 1) - 1
    variance = Fraction((n1 + 1) * (n2 + 1) * (n1 - m) * (n2 - m), (m + 1) ** 2 * (m + 2))
    return float(total), math.sqrt(variance)


counts = st.tuples(st.integers(0, 200), st.integers(0, 200), st.integers(0, 200)).map(
    lambda c: (c[0] + c[2], c[1] + c[2], c[2])
)


@given(counts)
def test_chapman_is_its_formula(sizes):
    found = chapman(*sizes)
    if not any(sizes):
        assert all(math.isnan(part) for part in found)
        return
    assert (found.total, found.stderr) == pytest.approx(by_hand(*sizes))
    seen = sizes[0] + sizes[1] - sizes[2]
    assert seen - 1e-9 <= found.low <= found.total + 1e-9
    assert found.total <= found.high + 1e-9


def test_chapman_is_unbiased_and_its_interval_holds_the_truth():
    shares = []
    for size in (6, 10, 12, 20, 30, 60):
        for share in (0.55, 0.7, 0.85):
            # Exact over the hypergeometric distribution of how many are found twice, n1 + n2 >= N.
            n1 = n2 = int(size * share)
            m = np.arange(max(0, n1 + n2 - size), n1 + 1)
            ways = np.array([math.comb(n1, both) * math.comb(size - n1, n2 - both) for both in m], float)
            p = ways / ways.sum()
            found = chapman(np.full_like(m, n1), np.full_like(m, n2), m)
            if n1 + n2 >= size:
                assert float(p @ found.total) == pytest.approx(size)
            shares.append(float(p @ ((found.low <= size) & (size <= found.high))))
    assert min(shares) >= 0.85
    assert np.mean(shares) >= 0.95


@pytest.mark.parametrize(
    ("arguments", "named"),
    [((3, 2, 3), "both"), ((-1, 2, 0), "first"), ((2, 2.5, 1), "second"), ((2, 2, 1, 1.5), "level"),
     ((math.nan, 1, 0), "first"), (("a", 1, 0), "first")],
)  # fmt: skip
def test_impossible_counts_are_refused(arguments, named):
    with pytest.raises(InvalidInput, match=named):
        chapman(*arguments)


def table(*lists):
    """Retrievals as rows over the passages a to j."""
    return [[letter in found for letter in "abcdefghij"] for found in lists]


ALL = [True] * 10


def test_two_retrievals_that_differ():
    assert recapture(table("abcd", "cdef"), ALL) == chapman(4, 4, 2)
    # Only relevant passages count.
    assert recapture(table("abcd", "cdef"), [letter in "acdj" for letter in "abcdefghij"]) == chapman(3, 2, 2)


@pytest.mark.parametrize("lists", [["abc"], ["abc", "abc"], ["abc", "ab"], ["ab", "abc", "bc"], []])
def test_a_retrieval_within_another_tells_nothing_of_what_is_missing(lists):
    assert all(math.isnan(part) for part in recapture(table(*lists) or np.zeros((0, 10)), ALL))

"""Means that were added up in other orders, compared."""

from dataclasses import replace

import pytest


def check_same_means(found, expected):
    """Asserts that both have the same runs with the same means, but for the rounding of a sum.

    SQLite and Python from 3.12 on carry what a sum rounds off, Arrow and Python 3.11 do not.
    """
    found, expected = list(found), list(expected)
    assert [replace(one, means={}) for one in found] == [replace(one, means={}) for one in expected]
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.means == pytest.approx(theirs.means, rel=1e-12)

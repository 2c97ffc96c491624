"""One thread a product while nano computes."""

from __future__ import annotations

import pytest

from ragguard.engines.llama import blas
from ragguard.engines.llama.blas import one_thread

pytestmark = pytest.mark.skipif(blas._controls() is None, reason="NumPy here stands on another library")


def threads() -> int:
    get, _ = blas._controls()
    return get()


@pytest.fixture
def four():
    """As if there were four cores."""
    get, put = blas._controls()
    before = get()
    put(4)
    yield 4
    put(before)


def test_the_threads_are_given_back_when_the_last_one_is_out(four):
    with one_thread():
        with one_thread():
            assert threads() == 1
        assert threads() == 1
    assert threads() == four

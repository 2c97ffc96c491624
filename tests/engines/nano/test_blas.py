"""One thread a product while nano computes, also across forks."""

from __future__ import annotations

import threading

import pytest
from support.child import in_child

from ragguard.engines.nano import blas
from ragguard.engines.nano.blas import one_thread

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


def test_a_child_has_its_threads_although_its_parent_was_computing(four):
    inside, leave = threading.Event(), threading.Event()

    def compute():
        with one_thread():
            inside.set()
            leave.wait(30)

    other = threading.Thread(target=compute)
    other.start()
    assert inside.wait(30)

    def child():
        before = threads()
        with one_thread():
            during = threads()
        return (before, during, threads()) == (four, 1, four)

    try:
        in_child(child)
    finally:
        leave.set()
        other.join()
    assert threads() == four


def test_a_child_does_not_wait_for_who_was_going_in_when_it_was_forked(four, monkeypatch):
    get, put = blas._controls()
    going_in, go_on = threading.Event(), threading.Event()

    def slow(count):
        going_in.set()
        go_on.wait(30)
        put(count)

    monkeypatch.setattr(blas, "_controls", lambda: (get, slow))
    other = threading.Thread(target=lambda: one_thread().__enter__())
    other.start()
    assert going_in.wait(30)
    threading.Timer(0.1, go_on.set).start()

    def child():
        entered = threading.Thread(target=lambda: one_thread().__enter__(), daemon=True)
        entered.start()
        entered.join(10)
        return not entered.is_alive()

    try:
        in_child(child)
    finally:
        other.join()
        monkeypatch.undo()
        blas._inside = 0

"""What belongs to one process: made once in each, and connections to files are closed before a fork."""

import os
import sqlite3
import threading

import pytest
from support.child import in_child

from ragguard.runtime import per_process
from ragguard.runtime.per_process import PerProcess, disconnect_before_forks

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


class Connected:
    """Holds a connection to a file, as a store does."""

    def __init__(self, path) -> None:
        self.lock = threading.RLock()
        self.db = sqlite3.connect(path, check_same_thread=False)
        disconnect_before_forks(self)

    def disconnect(self) -> None:
        if self.db is not None:
            self.db.close()
            self.db = None


def test_object_is_made_once_in_each_process_and_the_parents_stays_untouched():
    made = []
    here = PerProcess(lambda: made.append(os.getpid()) or [])
    assert here.made is None
    mine = here.get()
    mine.append("the parent's")
    in_child(lambda: here.made is None and here.get() == [] and here.get() is not mine and len(made) == 2)
    assert here.get() is mine is here.made
    assert made == [os.getpid()]


def test_child_forked_while_another_thread_makes_the_object_makes_its_own():
    making, go_on = threading.Event(), threading.Event()
    parent = os.getpid()

    def make():
        if os.getpid() == parent:
            making.set()
            go_on.wait(10)
        return os.getpid()

    here = PerProcess(make)
    thread = threading.Thread(target=here.get)
    thread.start()
    assert making.wait(10)
    in_child(lambda: here.get() == os.getpid())
    go_on.set()
    thread.join(10)
    assert here.get() == parent


def test_factory_that_fails_is_tried_again():
    answers = [LookupError("not yet"), "made"]

    def make():
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    here = PerProcess(make)
    with pytest.raises(LookupError):
        here.get()
    assert here.get() == "made"


def test_connection_is_closed_before_a_fork_and_its_lock_is_free_afterwards(tmp_path):
    owner = Connected(tmp_path / "a.db")
    in_child(lambda: owner.db is None and owner.lock.acquire(blocking=False))
    assert owner.db is None
    free = []
    thread = threading.Thread(target=lambda: free.append(owner.lock.acquire(blocking=False)))
    thread.start()
    thread.join()
    assert free == [True]


def test_fork_waits_no_longer_than_its_bound_for_a_connection_in_use(tmp_path, monkeypatch):
    monkeypatch.setattr(per_process, "FORK_WAIT", 0.01)
    owner = Connected(tmp_path / "a.db")
    held, done = threading.Event(), threading.Event()

    def use():
        with owner.lock:
            held.set()
            done.wait(10)

    thread = threading.Thread(target=use)
    thread.start()
    assert held.wait(10)
    in_child(lambda: owner.db is not None)
    done.set()
    thread.join(10)
    assert owner.db.execute("SELECT 1").fetchone() == (1,)
    owner.db.close()

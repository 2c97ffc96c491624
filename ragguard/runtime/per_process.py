"""Keeps what belongs to one process: locks, threads, connections and unfinished work, which a forked child makes again.

A child has a copy of its parent's memory, but only the one thread that forked: a lock that another thread held stays
locked there, and what that thread did is never finished. An object that a user holds keeps all of that in an inner half
behind `PerProcess`, which compares the process id each time that the object is entered.

SQLite alone needs more. It notes the locks that a process holds on a file in memory that a child copies, and does not
take them again for a connection that the child opens: the parent could then remove the log in which the child writes.
So connections to files are closed before each fork, and opened again at their next use.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")

_process = os.getpid()
"""The id of this process. Noted again in a child, since asking the system takes longer than the whole of `get`."""
FORK_WAIT = 5.0
"""The most seconds for which a fork waits until a transaction that is under way has ended."""


class PerProcess(Generic[T]):
    """Makes one object in each process, at its first use there; any thread may ask for it.

    The object of the parent process stays referenced in a child, so that it is never finalised there, and is not used.

    Args:
        make: Makes the object; an error that it raises reaches the caller, and the next call tries again.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: dict[int, T] = {}
        self._locks: dict[int, threading.RLock] = {}

    def get(self) -> T:
        """Returns the object of this process."""
        process = _process
        try:
            return self._made[process]
        except KeyError:
            pass
        with self._locks.setdefault(process, threading.RLock()):
            if process not in self._made:
                self._made[process] = self._make()
            return self._made[process]

    @property
    def made(self) -> T | None:
        """The object of this process; None where nothing has asked for it yet."""
        return self._made.get(_process)

    def forget(self) -> T | None:
        """Forgets the object of this process and returns it; the next call of `get` makes another one."""
        return self._made.pop(_process, None)


class ConnectionOwner(Protocol):
    """An object that holds an SQLite connection to a file."""

    @property
    def lock(self) -> threading.RLock:
        """The lock that is held while the connection is used."""
        ...

    def disconnect(self) -> None:
        """Closes the connection, which the next use opens again. The lock is held."""
        ...


def disconnect_before_forks(owner: ConnectionOwner) -> None:
    """Has the owner's connection closed before each fork of this process, as long as the owner lives."""
    _owners.add(owner)


def keep_for_ever(thing: object) -> None:
    """Keeps an object from being finalised, also at the end of the process.

    A connection that came across a fork must not be closed in the child: that could break the locks of the parent.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


_owners: weakref.WeakSet[ConnectionOwner] = weakref.WeakSet()
_forking = threading.RLock()
"""Held across a fork, so that two threads that fork at the same time do so one after the other."""
_locked: list[ConnectionOwner] = []
"""The owners whose locks the thread that forks holds."""


def _before_fork() -> None:
    _forking.acquire()
    for owner in list(_owners):
        if not owner.lock.acquire(timeout=FORK_WAIT):
            keep_for_ever(owner)  # the child must not close the connection, and never uses this owner
            continue
        _locked.append(owner)
        with suppress(Exception):  # a fork must succeed
            owner.disconnect()


def _after_fork() -> None:
    while _locked:
        _locked.pop().lock.release()
    _forking.release()


def _begin_in_child() -> None:
    global _process
    _process = os.getpid()
    _after_fork()


if hasattr(os, "register_at_fork"):  # missing on Windows
    os.register_at_fork(  # noqa: TID251 - the one place
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_begin_in_child
    )

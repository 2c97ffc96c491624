"""The fork registry calls an object's hooks when the process forks.

A child process has a copy of the memory of its parent, but only the one thread that forked: locks that other threads
held stay locked there, and what those threads did is never finished. An object that holds locks, threads, files or
unfinished work registers how it begins anew.
"""

from __future__ import annotations

import ctypes
import inspect
import itertools
import os
import weakref
from collections.abc import Callable, Iterable
from typing import TypeAlias

from ragguard.text.secret_filter import logger

_log = logger("ragguard")

Hook: TypeAlias = Callable[[], object]

FORK_WAIT = 5.0
"""The most seconds for which a hook holds a fork up until a transaction that is under way has ended."""


def at_fork(
    *, before: Hook | None = None, in_parent: Hook | None = None, in_child: Hook | None = None
) -> None:
    """Registers hooks that are called around each fork of this process.

    In the child and in the parent the hooks run in the order of registration, before the fork in the reverse order.
    A hook that raises is logged, and the others run. A method is registered as long as its object lives.
    """
    number = next(_numbers)

    def forget(_: object, registered: dict[int, _Hooks] = _registered) -> None:
        registered.pop(number, None)

    _registered[number] = (
        _reference(before, forget), _reference(in_parent, forget), _reference(in_child, forget),
    )  # fmt: skip


def keep_for_ever(connection: object) -> None:
    """Keeps a connection that must not be closed, not even by the garbage collector or at the end of the process.

    Closing a connection to a database that came across a fork could break the locks of the parent process.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


_Reference: TypeAlias = Callable[[], Hook | None]
_Hooks: TypeAlias = tuple[_Reference, _Reference, _Reference]
_registered: dict[int, _Hooks] = {}
_numbers = itertools.count()


def _reference(hook: Hook | None, forget: Callable[[object], None]) -> _Reference:
    if not inspect.ismethod(hook):
        return lambda: hook
    # weakref.WeakMethod prints an error where its object goes only after the interpreter has cleared the modules.
    owner, function = weakref.ref(hook.__self__, forget), hook.__func__

    def bound() -> Hook | None:
        alive = owner()
        return None if alive is None else function.__get__(alive)

    return bound


def _call(references: Iterable[_Reference]) -> None:
    for reference in references:
        hook = reference()
        try:
            if hook is not None:
                hook()
        except Exception as error:  # noqa: BLE001 - a fork must succeed
            _log.error("a part of ragguard could not follow a fork of the process: %r", error)


if hasattr(os, "register_at_fork"):  # missing on Windows
    os.register_at_fork(  # noqa: TID251 - the one place
        before=lambda: _call([hooks[0] for hooks in reversed(list(_registered.values()))]),
        after_in_parent=lambda: _call([hooks[1] for hooks in list(_registered.values())]),
        after_in_child=lambda: _call([hooks[2] for hooks in list(_registered.values())]),
    )

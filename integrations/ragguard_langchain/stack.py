"""Finds out from the caller's stack whether a retrieval is still under way, and whether a stream was given up.

LangChain says nothing when a retriever is cancelled or interrupted. A later call with the same query is then not inside
of that retrieval, though the retrieval is still open, and must not wait for its end.
"""

from __future__ import annotations

import sys
import threading
import weakref
from asyncio import Task
from typing import Any, TypeAlias
from uuid import UUID

from ragguard.capture.enclosing import current_task

Where: TypeAlias = tuple[int, weakref.ref[Task[Any]] | None]
"""The thread, and the task where there is one."""
_BATCHED = {"invoke": "Runnable.batch.<locals>.invoke", "ainvoke": "Runnable.abatch.<locals>.ainvoke"}
"""LangChain's functions that make a call of a batch; each has the settings of its batch in its variable `kwargs`."""
_FRAMES_OF_A_START = 8
"""The most frames between a handler and whoever makes the call that is starting."""
_STREAM = "Runnable._transform_stream_with_config"
"""The name of the generator with which LangChain streams synchronously. It takes a stream that its reader has given up
for one that has ended, and reports no error; the generator that it reads from is then not at its end."""
_FRAMES_OF_AN_END = 6
"""The most frames between a handler and the generator whose end is reported."""
_MANAGER = "run_manager"
"""The name under which LangChain's retrievers keep the object that knows the id of their call."""


class Batch:
    """A call of `batch` or `abatch`; an object of this class is equal to those of all calls in the same batch."""

    __slots__ = ("_settings",)

    def __init__(self, settings: object) -> None:
        self._settings = settings

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Batch) and other._settings is self._settings

    def __hash__(self) -> int:
        return id(self._settings)


def batch_around() -> Batch | None:
    """Returns the batch that makes the call which is starting; None where no batch makes it."""
    frame = sys._getframe(1).f_back
    for _ in range(_FRAMES_OF_A_START):
        if frame is None:
            return None
        code = frame.f_code
        if code.co_name in _BATCHED and code.co_qualname == _BATCHED[code.co_name]:
            return Batch(frame.f_locals.get("kwargs"))
        frame = frame.f_back
    return None


def is_abandoned_stream() -> bool:
    """True where the call that is ending is a synchronous stream which its reader has closed or dropped early."""
    frame = sys._getframe(1).f_back
    for _ in range(_FRAMES_OF_AN_END):
        if frame is None:
            return False
        if frame.f_code.co_qualname == _STREAM:
            return getattr(frame.f_locals.get("iterator"), "gi_frame", None) is not None
        frame = frame.f_back
    return False


def here() -> Where:
    """Returns the thread and the task of the caller."""
    return threading.get_ident(), current_task()


def given_up(id: UUID, began_in: Where | None) -> bool:
    """True for a call that is not under way any more: its task is over or being cancelled, or it began in the
    current thread and task and the caller is not inside of it.

    Whether a call in another thread is under way cannot be seen.
    """
    if began_in is None:
        return False
    if began_in != here():
        reference = began_in[1]
        task = None if reference is None else reference()
        return reference is not None and (task is None or task.done() or task.cancelling() > 0)
    frame = sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
        manager = frame.f_locals.get(_MANAGER) if _MANAGER in frame.f_code.co_varnames else None
        if getattr(manager, "run_id", None) == id:
            return False
    return True

"""The surroundings of the code at hand: a pause of capture, a retrieval, a generator.

Everything here is a context variable, so it goes where Python copies the context: into asyncio tasks,
`asyncio.to_thread` and LangChain's `ContextThreadPoolExecutor`, and not into a plain thread or thread pool.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import weakref
from contextvars import ContextVar
from types import FrameType
from typing import Any, NamedTuple

_KEEP_OPEN = frozenset(("contextlib", "_pytest", "pytest_asyncio", "anyio"))
"""Callers that suspend a generator for as long as the code inside of it works: context managers and fixtures."""


class GeneratorFrame:
    """The generator in which a context variable was set.

    A generator shares the context of whoever iterates it, so a variable that it set is also seen by its caller while it
    is suspended.
    """

    __slots__ = ("_frame", "_task")

    def __init__(self, frame: FrameType) -> None:
        self._frame = frame
        self._task = current_task()

    @classmethod
    def of(cls, frame: FrameType | None) -> GeneratorFrame | None:
        """Wraps a generator's frame; None for any other, and for a generator that is a context manager."""
        if frame is None or not frame.f_code.co_flags & (inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR):
            return None
        caller = frame.f_back
        name = "" if caller is None else str(caller.f_globals.get("__name__", ""))
        return None if name.partition(".")[0] in _KEEP_OPEN else cls(frame)

    @property
    def suspended(self) -> bool:
        """True where the generator waits to be iterated again, and so the code at hand is not inside of it."""
        if self._frame.f_back is not None:
            return False  # the generator is running
        if self._frame.f_code.co_flags & inspect.CO_GENERATOR:
            return True
        # An async generator also stands still while it awaits, which another task or thread cannot tell apart.
        task = current_task()
        return (task and task()) is (self._task and self._task())


def current_task() -> weakref.ref[asyncio.Task[Any]] | None:
    """Returns a weak reference to the asyncio task at work; None outside a loop."""
    if asyncio.events._get_running_loop() is None:
        return None
    task = asyncio.current_task()
    return None if task is None else weakref.ref(task)


class paused:  # noqa: N801 - reads as a word in a with statement
    """Pauses capture inside `with ragguard.paused():`, in sync and async code, in plain code and in frameworks.

    A run that is open stays open; what it retrieves meanwhile is not recorded.
    """

    __slots__ = ("_frame", "_outer", "over")

    def __init__(self) -> None:
        self._frame: GeneratorFrame | None = None
        self._outer: paused | None = None
        self.over = True

    def __enter__(self) -> paused:
        self.over, self._outer = False, _pause.get()
        self._frame = GeneratorFrame.of(sys._getframe(1))
        _pause.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.over = True
        if _pause.get() is self:
            _pause.set(self._outer)

    @property
    def holds(self) -> bool:
        """True where the calling code is inside of this pause, or of a pause around this one."""
        pause: paused | None = self
        while pause is not None:
            if not pause.over and (pause._frame is None or not pause._frame.suspended):
                return True
            pause = pause._outer
        return False


_pause: ContextVar[paused | None] = ContextVar("ragguard_paused", default=None)


def is_paused() -> bool:
    """True inside `with ragguard.paused()`."""
    pause = _pause.get()
    return pause is not None and pause.holds


class EnclosingStep(NamedTuple):
    """An open retrieval that was begun by `@ragguard.retrieval`; retrievals inside of it are parts of it."""

    recorder: object
    run_id: str
    step_id: str

    def of(self, recorder: object, run_id: str) -> bool:
        """True where the retrieval belongs to the run of this id."""
        return self.recorder is recorder and self.run_id == run_id


enclosing_step: ContextVar[EnclosingStep | None] = ContextVar("ragguard_step", default=None)

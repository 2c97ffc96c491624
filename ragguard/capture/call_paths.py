"""The places of calls in the tree of a run's calls, by which it is known what is near to what."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence
from contextvars import ContextVar
from typing import TypeAlias

CallPath: TypeAlias = tuple[Hashable, ...]
"""The calls that a call is in, from the outermost to the innermost."""
_task: ContextVar[tuple[int, CallPath]] = ContextVar("ragguard_task", default=(0, ()))


def task_path() -> CallPath:
    """Returns the asyncio tasks that the caller is in, as far as they have called this; what a task starts is inside
    of it. It is the beginning of the path of a framework's outermost call."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None  # no event loop runs here
    known, path = _task.get()
    if task is not None and known != id(task):
        path = (*path, object())
        _task.set((id(task), path))
    return path


def shared_depth(path: Sequence[Hashable], other: Sequence[Hashable]) -> int:
    """Returns the number of calls that two calls are both in."""
    depth = 0
    for one, its_other in zip(path, other, strict=False):
        if one != its_other:
            break
        depth += 1
    return depth

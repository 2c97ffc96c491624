"""The run that the code at hand belongs to, so that a framework inside `with rg.run(...)` joins it."""

from __future__ import annotations

import asyncio
import weakref
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ragguard.capture.handle import RunHandle
    from ragguard.capture.recorder import Recorder

current_handle: ContextVar[RunHandle | None] = ContextVar("ragguard_run", default=None)


def current_run(recorder: Recorder) -> RunHandle | None:
    """The innermost open `with rg.run(...)` of that recorder around the caller."""
    handle = current_handle.get()
    while handle is not None and (handle.recorder is not recorder or handle.closed):
        handle = handle.outer
    return handle


def current_task() -> weakref.ref[asyncio.Task[Any]] | None:
    """The asyncio task at work, weakly; None outside a loop."""
    if asyncio.events._get_running_loop() is None:
        return None
    task = asyncio.current_task()
    return None if task is None else weakref.ref(task)

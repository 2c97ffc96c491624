"""Whether a retrieval that was begun is still under way, told by the caller's stack.

LangChain says nothing when a retriever is cancelled or interrupted. Who then asks the same again is not
inside of that retrieval, though it is open, and nothing of it may wait for its end.
"""

from __future__ import annotations

import sys
import threading
import weakref
from asyncio import Task
from typing import Any, TypeAlias
from uuid import UUID

from ragguard.capture.context import current_task

Where: TypeAlias = tuple[int, weakref.ref[Task[Any]] | None]
"""The thread, and the task where there is one."""
_MANAGER = "run_manager"
"""By this name LangChain's retrievers keep what knows the id of their call."""


def here() -> Where:
    """Where the caller is at work."""
    return threading.get_ident(), current_task()


def given_up(id: UUID, began_in: Where | None) -> bool:
    """True for a call that began in the thread and task at work, and that the caller is not inside of any more.

    What began elsewhere is not to be seen from here.
    """
    if began_in != here():
        return False
    frame = sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
        manager = frame.f_locals.get(_MANAGER) if _MANAGER in frame.f_code.co_varnames else None
        if getattr(manager, "run_id", None) == id:
            return False
    return True

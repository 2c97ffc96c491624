"""Finds steps of plain code that tasks of one event loop make at the same time, although none of them ever waits.

`asyncio.gather` starts its tasks in one round of the loop. Where their retrievers never wait, each begins and ends
before the next one begins, so that no two overlap. All that begins before the loop's next round is one burst; its tasks
are branches that run in parallel.
"""

from __future__ import annotations

import asyncio
import threading

from ragguard.capture.turns import TurnKey


class _Burst(threading.local):
    """The burst of the loop that runs in a thread; None once its round is over."""

    current: object | None = None

    def end(self) -> None:
        """Ends the burst."""
        self.current = None


_BURST = _Burst()


def burst_key() -> TurnKey | None:
    """Returns the burst and the task of the caller, as the key of its step's turn; None outside of a task."""
    try:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
    except RuntimeError:
        return None
    if task is None:
        return None
    if _BURST.current is None:
        _BURST.current = object()
        loop.call_soon(_BURST.end)
    return _BURST.current, id(task)

"""The end of the process: what is running is drained before OpenTelemetry's providers shut down.

Those shut down in `atexit` functions. Ours runs earlier, when the interpreter waits for its threads,
and before the thread pools that engines use are closed: such functions run last registered first,
and importing `concurrent.futures.thread` registers the pools'.
"""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401 - registers its own end, which must come after ours
import os
import threading
from collections.abc import Callable

from ragguard.secrets import logger

_log = logger("ragguard")

_closers: dict[int, Callable[[], object]] = {}


def at_exit(owner: object, close: Callable[[], object]) -> None:
    """Has `close` called when the process ends."""
    _closers[id(owner)] = close


def forget(owner: object) -> None:
    """It is closed already."""
    _closers.pop(id(owner), None)


def _close_all() -> None:
    while _closers:
        _, close = _closers.popitem()
        try:
            close()
        except Exception:  # noqa: BLE001 - the others are closed all the same
            _log.exception("closing at exit failed")


try:
    threading._register_atexit(_close_all)  # type: ignore[attr-defined]
except (AttributeError, RuntimeError):  # not there in some future Python, or the process is ending already
    atexit.register(_close_all)
os.register_at_fork(after_in_child=_closers.clear)

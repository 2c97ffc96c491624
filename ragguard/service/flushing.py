"""The end of the process: what was captured is scored and sent before OpenTelemetry's providers shut down.

Python ends in this order: `main()` returns; the functions of `threading._register_atexit` run, and the standard thread
pools close; the threads that are no daemons are waited for; the functions of `atexit` run, last registered first, among
them the providers' own. Where no thread is left when `main()` returns, everything is closed at once, while users' pools
still work. Where some threads still run, capture goes on: the captured runs are scored and stored, and services are
closed in an `atexit` function that is registered only then, so that it runs before the providers'.
"""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401 - registers its own end, which must come after ours
import threading
import time
from collections.abc import Callable
from concurrent.futures import wait
from typing import NamedTuple

from ragguard.runtime.deadline import seconds_left
from ragguard.runtime.per_process import PerProcess
from ragguard.runtime.threads import DaemonThreads

SLACK = 1.5
"""Seconds beyond its own timeout after which the process no longer waits for a service to close."""


class Ending(NamedTuple):
    """The functions that end a service; each takes the most seconds that it may take."""

    flush: Callable[[float], object]
    """Does the work that is left."""
    close: Callable[[float], object]
    """Does the work that is left and releases everything."""
    seconds: float
    """The most seconds that the end of the service may take."""


_endings: PerProcess[dict[int, Ending]] = PerProcess(dict)


def at_exit(service: object, ending: Ending) -> None:
    """Registers how a service is flushed and closed when the process ends."""
    _endings.get()[id(service)] = ending


def forget(service: object) -> None:
    """Unregisters a service that was closed."""
    _endings.get().pop(id(service), None)


def _main_has_ended() -> None:
    here = (threading.current_thread(), threading.main_thread())
    if not any(not thread.daemon and thread not in here for thread in threading.enumerate()):
        _close_all()
        return
    atexit.register(_close_all)
    _each([(ending.seconds, ending.flush) for ending in _endings.get().values()])


def _close_all() -> None:
    endings = list(_endings.get().values())
    _endings.get().clear()
    _each([(ending.seconds, ending.close) for ending in endings])


def _each(endings: list[tuple[float, Callable[[float], object]]]) -> None:
    """Ends all services at the same time, so that the longest timeout is the bound, and not the sum."""
    began, threads = time.monotonic(), DaemonThreads(len(endings) or 1, "ragguard-exit")
    # Python 3.12 starts no thread so late: each has ended before the next one is submitted, with the time left.
    done = [(timeout, threads.submit(end, seconds_left(began + timeout))) for timeout, end in endings]
    for timeout, ended in done:
        wait([ended], seconds_left(began + timeout + SLACK))


try:
    threading._register_atexit(_main_has_ended)  # type: ignore[attr-defined]  # private: no stub has it
except (AttributeError, RuntimeError):  # missing in a future Python, or the process is ending already
    atexit.register(_close_all)

"""The report that `flush` and `close` return, and the end of the process: what was captured is scored and sent before
OpenTelemetry's providers shut down.

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
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from ragguard.runtime.deadline import seconds_left
from ragguard.runtime.per_process import PerProcess
from ragguard.service.delivery import Undelivered
from ragguard.text.secret_filter import logger

_log = logger("ragguard")

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
_spent = 0.0
"""Seconds that flushing took when `main()` returned; they count towards the end."""


def at_exit(service: object, ending: Ending) -> None:
    """Registers how a service is flushed and closed when the process ends."""
    _endings.get()[id(service)] = ending


def forget(service: object) -> None:
    """Unregisters a service that was closed."""
    _endings.get().pop(id(service), None)


def _main_has_ended() -> None:
    global _spent
    here = (threading.current_thread(), threading.main_thread())
    if not any(not thread.daemon and thread not in here for thread in threading.enumerate()):
        _close_all()
        return
    atexit.register(_close_all)
    began = time.monotonic()
    _each([(ending.seconds, ending.flush) for ending in _endings.get().values()])
    _spent = time.monotonic() - began


def _close_all() -> None:
    endings = list(_endings.get().values())
    _endings.get().clear()
    _each([(max(0.0, ending.seconds - _spent), ending.close) for ending in endings])


def _each(endings: list[tuple[float, Callable[[float], object]]]) -> None:
    """Ends all services at the same time, so that the longest timeout is the bound, and not the sum."""
    began = time.monotonic()
    threads = []
    for timeout, end in endings:
        thread = threading.Thread(target=_guarded, args=(end, timeout), name="ragguard-exit", daemon=True)
        try:
            thread.start()
            threads.append((began + timeout + SLACK, thread))
        except RuntimeError:  # Python 3.12 starts none so late: services end one by one, in the time left
            _guarded(end, seconds_left(began + timeout))
    for until, thread in threads:
        thread.join(seconds_left(until))


def _guarded(end: Callable[[float], object], timeout: float) -> None:
    try:
        end(timeout)
    except Exception:  # noqa: BLE001 - the others end all the same
        with suppress(Exception):
            _log.exception("closing at exit failed")


try:
    threading._register_atexit(_main_has_ended)  # type: ignore[attr-defined]  # private: no stub has it
except (AttributeError, RuntimeError):  # missing in a future Python, or the process is ending already
    atexit.register(_close_all)


_UNSCORED = "not everything is scored"


@dataclass(frozen=True, slots=True)
class Report:
    """The state of all that was captured; true if all is scored, stored and delivered, or failed for good, and nothing
    was dropped or lost."""

    complete: bool
    captured: int = 0
    """Runs that ended, since this RagGuard was made; one that goes on, once for each part."""
    steps: int = 0
    scored: int = 0
    """Runs whose scores could all be computed."""
    failed: int = 0
    """Runs of which a score could not be computed, and is not tried again."""
    pending: int = 0
    """Runs that have ended and are still to be scored, those that wait for another attempt included."""
    open: int = 0
    """Runs that have not ended; they are scored at their ends."""
    dropped: int = 0
    """Runs that were dropped unscored, as too many waited in memory and there is no store."""
    lost: int = 0
    """Events that never reached the store."""
    degraded: bool = False
    """True while the disk takes nothing, and what is captured waits in memory."""
    seconds: float = 0.0
    retrying: int = 0
    """Runs among the pending ones that failed for now and are tried again."""
    unscored: int = 0
    """Runs that were stored, and of which no score was asked for, or none exists."""
    unsampled: int = 0
    """Runs that were not captured, because of `sample_rate`."""
    undelivered: tuple[Undelivered, ...] = ()
    """The losses on the way to sinks."""
    delivered: int = 0
    """Runs that a sink has taken, also those of earlier processes; one that was sent once more counts again."""
    delivering: int = 0
    """Runs whose scoring is done and which are still to be delivered to a sink."""
    sent_to: str = ""
    """The address of the service that scores, where this RagGuard captures alone and sends."""
    cause_failed: str = ""
    """The latest failure that is not tried again."""
    cause_pending: str = ""
    """The error of a call to an engine that is being repeated."""
    cause_retrying: str = ""
    """The latest failure that is tried again."""
    no_capture_reason: str = ""
    """The calls that were seen in place of retrievals where none was captured, and what to do."""
    late: int = 0
    """Retrievals and answers that came after the end of their runs, and so are not recorded."""
    cut_short: int = 0
    """Runs that ended as `abandoned` since more than `max_open_runs` were open, and that have not ended since."""

    def __bool__(self) -> bool:
        return self.complete

    def __str__(self) -> str:
        parts = "; ".join(self._parts())
        return f"{self._verdict()}{': ' if parts else ''}{parts} ({self.seconds:.1f} s)"

    def _verdict(self) -> str:
        if self.lost or self.late or self.cut_short or self.degraded:
            return "not everything is stored"
        if self.pending or self.dropped or not (self.complete or self.undelivered or self.delivering):
            return "not everything is sent" if self.sent_to else _UNSCORED
        if self.undelivered or self.delivering:
            return "not everything was delivered"
        if self.failed:
            return "done, but not everything could be scored"
        if not (self.captured or self.scored or self.unscored):
            if self.delivered:
                return "everything is delivered"
            return "no run has ended" if self.open else "nothing was captured by this RagGuard"
        if self.sent_to:
            return "everything is stored and sent"
        return "everything is stored" if self.unscored else "everything is scored and stored"

    def _parts(self) -> Iterator[str]:
        done = self.captured or self.scored or self.unscored
        sent = f"sent to {self.sent_to}, which scores them"
        cut_short = (
            "runs ended as abandoned, as more were open than max_open_runs allows; what they retrieve later is not "
            "recorded, and their answers are"
        )
        kind = "runs" if self.sent_to else "scored runs"
        for number, what, cause in (
            (self.scored, "scored", ""),
            (0 if self.sent_to else self.unscored, "kept without a score", ""),
            (self.delivered if self.sent_to else 0, sent, ""),
            (0 if self.sent_to or done else self.delivered, "of an earlier process", ""),
            (self.failed, "with scores that failed for good", self.cause_failed),
            (self.pending, "pending", "" if self.retrying else self.cause_pending),
            (self.retrying, "of them failed for now and tried again", self.cause_retrying),
            (self.open, "open", ""),
            (self.dropped, "let go unscored, as more waited than queue_size allows without a store", ""),
            (self.lost, "events or runs lost", ""),
            (self.late, "retrievals or answers came after the end of their runs and are not recorded", ""),
            (self.cut_short, cut_short, ""),
            (self.delivering, f"{kind} not yet delivered", ""),
            (self.unsampled, "not captured, as sample_rate wants it", ""),
        ):
            if number:
                yield f"{number:,} {what}{f' ({cause})' if cause else ''}"
        if self.degraded:
            yield "the disk takes nothing now, and what was captured waits in memory"
        yield from map(str, self.undelivered)
        lost = self.lost or self.late or self.undelivered
        if not (self.complete or self.captured or self.pending or self.open or self.delivering or lost):
            yield (
                "what was captured waits for the thread that writes: for the disk, or for a `__str__`, a splitter or a "
                "redaction of yours that takes long"
            )
        elif self._verdict() == _UNSCORED and not (self.pending or self.dropped):
            yield "how much is left was not known in time"
        if self.no_capture_reason:
            yield self.no_capture_reason

"""The service behind one RagGuard: makes, starts and ends its intake, store, worker and sinks, and reports their state.
ARCHITECTURE.md draws who calls whom.

Starts nothing until it is needed, keeps working in a forked child, and ends with the process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Set
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

from ragguard.capture.events import Event
from ragguard.capture.open_runs import GivesAdvice
from ragguard.capture.recorder import Recorder, no_adviser
from ragguard.capture.retrievals import WholeRun
from ragguard.errors import RagguardError
from ragguard.runtime.arguments import LONGEST_WAIT, seconds_to_wait
from ragguard.runtime.deadline import now_ns, seconds_left
from ragguard.runtime.faults import Faults, describe
from ragguard.runtime.per_process import PerProcess
from ragguard.runtime.threads import BackgroundLoop, LoopSignal, check_threads
from ragguard.service.awaited_store import AwaitedStore
from ragguard.service.configuration import LONGEST, Configuration
from ragguard.service.delivery import Delivery
from ragguard.service.flushing import Ending, at_exit, forget
from ragguard.service.intake import Intake
from ragguard.service.live_scoring import LiveScoring
from ragguard.service.run_scoring import RunScoring, ScoringTools
from ragguard.service.scoring_worker import ScoringWorker
from ragguard.storage.preparation import Redactor
from ragguard.storage.sqlite.ledger import Left
from ragguard.storage.sqlite.store import Store
from ragguard.text.secret_filter import logger

T = TypeVar("T")

_log = logger("ragguard")

SCORER = BackgroundLoop("ragguard-scorer")
"""The event loop on which all RagGuards of a process score."""
_GRACE = 0.5
_SILENT = 1.0  # seconds for which a call waits for the disk without a word
_RECENT_SECONDS = 30.0
"""The seconds for which a failed call to an engine counts as the reason why runs are pending."""
_CAPTURED = ("steps_captured", "runs_scored", "runs_unscored", "runs_failed")
"""The counters that show that something was captured, or given to be scored."""
_UNSCORED = "not everything is scored"


@dataclass(frozen=True, slots=True)
class Report:
    """The state of all captured runs; true if each is scored, stored and delivered, or failed and is not tried again,
    and nothing was dropped or lost."""

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
    undelivered: tuple[str, ...] = ()
    """The losses on the way to sinks, each with its number and its cause."""
    delivered: int = 0
    """Runs that a sink has taken, also those of earlier processes; one that was sent once more counts again."""
    delivering: int = 0
    """Runs whose scoring is done and which are still to be delivered to a sink."""
    sent_to: str = ""
    """The address of the service that scores, where this RagGuard captures alone and sends."""
    cause_failed: str = ""
    """The latest failure that is not tried again."""
    cause_pending: str = ""
    """The latest failure that is tried again, else the error of a call to an engine that is being repeated."""
    no_capture_reason: str = ""
    """The calls that were seen instead of retrievals where none was captured, and what to do."""
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
            (self.failed, "with scores that failed and are not tried again", self.cause_failed),
            (self.pending, "pending", "" if self.retrying else self.cause_pending),
            (self.retrying, "of them failed and will be tried again", self.cause_pending),
            (self.open, "open", ""),
            (
                self.dropped,
                "dropped without scores, because more waited than queue_size allows without a store",
                "",
            ),
            (self.lost, "events or runs lost", ""),
            (self.late, "retrievals or answers came after the end of their runs and are not recorded", ""),
            (self.cut_short, cut_short, ""),
            (self.delivering, f"{kind} not yet delivered", ""),
            (self.unsampled, "not captured, because of sample_rate", ""),
        ):
            if number:
                yield f"{number:,} {what}{f' ({cause})' if cause else ''}"
        if self.degraded:
            yield "the disk cannot be written now, so captured events wait in memory"
        yield from self.undelivered
        lost = self.lost or self.late or self.undelivered
        if not (self.complete or self.captured or self.pending or self.open or self.delivering or lost):
            yield (
                "captured events wait for the thread that writes: for the disk, or for a slow `__str__`, splitter "
                "or redaction of yours"
            )
        elif self._verdict() == _UNSCORED and not (self.pending or self.dropped):
            yield "the number that is left was not known in time"
        if self.no_capture_reason:
            yield self.no_capture_reason


class Service:
    """Runs the service of one RagGuard: takes events, has ended runs scored, and reports the state."""

    def __init__(self, settings: Configuration, recorder: Recorder, make_adviser: MakeAdviser) -> None:
        check_threads()
        self.settings, self.recorder, self.faults = settings, recorder, Faults()
        self._adviser = PerProcess(lambda: make_adviser(self))
        self.pipeline = PerProcess(settings.scoring.build)
        self.pipeline.get()  # wrong settings are an error before a file is made
        self.store = Store(
            settings.store,
            durability=settings.durability,
            most_waiting=settings.queue_size,
            scored=settings.scored,
        )
        self.redactor = redactor = Redactor(settings.redact, self.faults)
        self.intake = Intake(
            settings, self.store, faults=self.faults, redactor=redactor,
            started=self._started, stored=self._stored, tick=self._tick, ended=self._close_store,
        )  # fmt: skip
        self.delivery = Delivery(settings, self.store, self.faults)
        stored = AwaitedStore(self.store, self.intake)
        tools = ScoringTools(
            settings=settings, store=stored, pipeline=self.pipeline, delivery=self.delivery, redactor=redactor,
        )  # fmt: skip
        self._due = LoopSignal()
        self.scoring = RunScoring(tools, loop=SCORER, due=self._due)
        self._live = LiveScoring(tools)
        self._worker = ScoringWorker(
            settings, stored, scoring=self.scoring, live=self._live, loop=SCORER, due=self._due,
            faults=self.faults,
        )  # fmt: skip
        self._examining: Future[None] | None = None
        """The short examination of engines that nobody examined before."""
        self._complete_at_end: bool | None = None
        """True where everything was done when the service was closed; None before."""
        self._flushed: int | None = None
        """How many runs had been captured when a flush last waited in vain; None before."""
        self._ending = threading.RLock()
        self._left = Left(0, 0, None)

    @property
    def adviser(self) -> GivesAdvice:
        """The adviser of this process, made when somebody asks for advice."""
        return self._adviser.get()

    def wait_until_written(self, timeout: float = 1.0) -> None:
        """Waits until what was captured so far is in the store, so that a reader sees it."""
        if self.intake.depth and not self._is_own_thread():
            with suppress(TimeoutError, RagguardError):
                self.intake.do(lambda: None).result(timeout)

    def flush(self, timeout: float) -> Report:
        """Waits until everything captured so far is scored, stored and delivered; the report says whether it is."""
        began, timeout = time.monotonic(), seconds_to_wait(timeout)
        if self._complete_at_end is not None:
            return self._report(self._complete_at_end, began)
        if self._is_own_thread():
            _log.warning("flush() was called on ragguard's own thread, where it cannot wait")
            return self._report(False, began)
        try:
            self._from_writer(lambda: None, timeout)  # what was captured so far is due, or open
            complete = self._wait(began + timeout)
            if self.delivery.buffers:  # what has not arrived by then counts as not delivered
                SCORER.run(self.delivery.flush(), seconds_left(began + timeout) + _GRACE)
        except (TimeoutError, RagguardError):
            complete = False
        self._flushed = None if complete else self.store.counts["runs_captured"]
        return self._report(complete, began)

    def _wait(self, deadline: float) -> bool:
        until = now_ns()
        while True:
            remaining = seconds_left(deadline)
            left = self._left = self._from_writer(lambda: self.store.left(until), remaining + _GRACE)
            if not left.pending:
                return True
            if not remaining:
                return False
            if left.next_ns is not None and (left.next_ns - now_ns()) / 1e9 > remaining:
                return False  # the next attempt comes after the timeout
            with self.scoring.progress:
                self.scoring.progress.wait(min(remaining, 0.2))

    def _from_writer(self, work: Callable[[], T], seconds: float) -> T:
        """Returns what a function gives behind all that was captured before; says so if it waits for the disk."""
        result = self.intake.do(work)
        try:
            return result.result(min(seconds, _SILENT))
        except TimeoutError:
            if self.store.outage and seconds > _SILENT:
                _log.warning("flush waits for the disk, at most %g s: %s", seconds, self.store.outage)
            return result.result(max(0.0, seconds - _SILENT))

    def _report(self, complete: bool, began: float) -> Report:
        counts, left, here = self.store.counts, self._left, self.recorder.here
        here.calls.warn_of_uncalled()
        error = self.scoring.failure_since(time.monotonic() - _RECENT_SECONDS)
        report = Report(
            complete,
            captured=counts["runs_captured"],
            steps=counts["steps_captured"],
            scored=counts["runs_scored"],
            failed=counts["runs_failed"],
            pending=left.pending - left.undelivered,
            open=left.open,
            dropped=counts["runs_dropped"],
            lost=counts["events_lost"] + counts["events_refused"],
            late=counts["events_late"],
            degraded=bool(self.store.outage),
            seconds=time.monotonic() - began,
            retrying=left.retrying,
            unscored=counts["runs_unscored" if self.settings.scored else "runs_captured"],
            unsampled=here.counts["unsampled"],
            cut_short=here.counts["cut_short"],
            undelivered=self.delivery.undelivered(),
            delivered=self.delivery.delivered,
            delivering=left.undelivered,
            sent_to=self.delivery.sent_to,
            cause_failed=self.scoring.cause_failed,
            cause_pending=self.scoring.cause_retrying if left.retrying or error is None else describe(error),
        )
        lost = report.lost or report.late
        whole = not (lost or report.dropped or report.cut_short or report.degraded)
        under_way = left.pending or (here.counts["runs"] and not complete) or report.degraded
        seen = here.counts["unsampled"] or self.delivery.delivered or any(counts[name] for name in _CAPTURED)
        why_nothing = "" if lost or under_way or seen else here.calls.what_to_do()
        complete = complete and whole and not report.undelivered
        return replace(report, complete=complete, no_capture_reason=why_nothing)

    def close(self, timeout: float) -> Report:
        """Flushes within `timeout`, then closes; what is not scored stays in the store. Safe to call twice: the second
        call waits for the first."""
        began, timeout = time.monotonic(), seconds_to_wait(timeout)
        with self._ending:
            if self._complete_at_end is not None:
                return self._report(self._complete_at_end, began)
            self.recorder.here.sweep(0.0)  # what is open now, nothing will end
            # An engine that answers nothing is waited for once, by a flush or here.
            in_vain = self._flushed == self.store.counts["runs_captured"] and self.scoring.open_circuits()
            seconds = 0.0 if in_vain else timeout
            report = self.flush(seconds) if self.intake.started else self._report(True, began)
            if self._end(began + timeout) and self.intake.started:
                report = self._report(not self._left.pending, began)
            self._complete_at_end = report.complete
        forget(self)
        if not report:
            kept = f"unfinished work is in {self.store.path} and continues when it is opened again"
            if why := self.store.outage or ("" if self.store.path else "there is no store"):
                kept = f"{why}, so unfinished work is lost"
            _log.warning("closed, but %s; %s", report, kept)
        return report

    def _end(self, deadline: float) -> bool:
        """Ends scoring, sinks, engines and the store; returns False where the writer did not end in time."""
        if SCORER.started:
            if self._examining is not None:
                self._examining.cancel()
            seconds = max(_GRACE, seconds_left(deadline))
            try:
                SCORER.run(self._end_scoring(seconds), seconds)
            except TimeoutError:
                pass  # what hangs is left behind
            except Exception as error:  # noqa: BLE001 - an engine or a sink that cannot end must not stop the rest
                self.faults.note("closing", error)
        if not self.intake.close(max(_GRACE, seconds_left(deadline))):
            _log.error("the store's writer did not end in time; what it still holds may be lost")
            return False
        return True

    async def _end_scoring(self, seconds: float) -> None:
        await self._worker.stop()
        await self.delivery.aclose(seconds)
        if (pipeline := self.pipeline.made) is not None:
            await pipeline.aclose()

    def _close_store(self) -> None:
        """Counts what is left and closes the store; runs on the writer's thread, since a disk may hang."""
        if self.intake.started:
            with suppress(RagguardError):  # the disk cannot be read; the last known counts stand
                self._left = self.store.left()
        self.store.close()

    def _is_own_thread(self) -> bool:
        return SCORER.is_current() or self.intake.is_current()

    def _started(self) -> None:
        at_exit(self, Ending(self.flush, self.close, min(self.settings.exit_timeout, LONGEST_WAIT)))
        if self.settings.scored:
            self._worker.start()
            if isinstance(self.settings.scoring.engine, str) and self.settings.scoring.scorers != ():
                self._examining = SCORER.submit(self.pipeline.get().examine_unknown())

    def _stored(self, changed: Set[str], ended: bool) -> None:
        live = bool(changed) and self.settings.live
        if live:
            self._live.note(changed)
        if live or ended:
            self._due.set()

    def _tick(self) -> None:
        self.recorder.here.sweep()
        run_ttl = min(self.settings.run_ttl, LONGEST)
        self.store.housekeep(
            run_ttl=run_ttl,
            retention=self.settings.kept_seconds,
            engine_answers=self._worker.engine_answers,
        )
        self._due.set()


MakeAdviser: TypeAlias = Callable[[Service], GivesAdvice]


def in_each_process(
    settings: Configuration, make_adviser: MakeAdviser = lambda _: no_adviser()
) -> PerProcess[Service]:
    """Returns the service of each process; all of them share one recorder, which hooks hold."""

    def take(event: Event | WholeRun) -> None:
        services.get().intake(event)

    recorder = Recorder(
        take,
        sample_rate=settings.sample_rate,
        ttl=settings.run_ttl,
        max_open=settings.max_open_runs,
        count_late=lambda: services.get().store.count("events_late"),
        adviser=lambda: services.get().adviser,
    )
    services = PerProcess(lambda: Service(settings, recorder, make_adviser))
    return services

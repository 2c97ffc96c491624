"""The service behind one RagGuard: starts and ends its intake, store, worker and sinks.

Starts nothing until it is needed, keeps working in a forked child, and ends with the process.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

from ragguard.errors import RagguardError
from ragguard.recordcheck import checked_run
from ragguard.records import Failure, Run, ScoredRun
from ragguard.runtime.clock import now_ns
from ragguard.runtime.faults import Faults
from ragguard.runtime.fork import at_fork
from ragguard.runtime.retry import RetrySchedule
from ragguard.scorers.plan import Plan
from ragguard.secrets import logger
from ragguard.service import exits
from ragguard.service.backlog import ScoringBacklog
from ragguard.service.checked import seconds
from ragguard.service.delivery import Delivery
from ragguard.service.failures import FailureTally
from ragguard.service.intake import Intake
from ragguard.service.loop import BackgroundLoop
from ragguard.service.queue import QueueBounds
from ragguard.service.redaction import Redactor
from ragguard.service.report import Captured, Report
from ragguard.service.scoring import Pipeline, References, Scoring
from ragguard.service.stream import bounded
from ragguard.service.worker import ScoringWorker
from ragguard.sinks.base import Sink
from ragguard.store.ledger import Left
from ragguard.store.store import Store

_log = logger("ragguard")

SCORER = BackgroundLoop("ragguard-scorer")
"""The event loop on which all RagGuards of a process score."""
DIRECT_PRIORITY = 5
"""The priority of scoring that a caller waits for: above background scoring, below every guard."""
_GRACE = 0.5


@dataclass(frozen=True, slots=True)
class Settings:
    """The numbers and switches of a service."""

    full: bool = False
    bounds: QueueBounds = QueueBounds()  # noqa: RUF009 - frozen
    queue_size: int = 1024
    """Without a store: how many runs may wait to be scored."""
    block: float | None = None
    """Without a store: how long a run's end may wait for room."""
    concurrency: int = 8
    retry: RetrySchedule = RetrySchedule()  # noqa: RUF009 - frozen
    score_rate: float = 1.0
    run_ttl: float = 3600.0
    retention: float | None = None
    exit_timeout: float = 10.0
    tick_seconds: float = 5.0
    scores: bool = True
    """False to capture only: no scorer runs, and no run waits for one."""


class Service:
    """Takes events, has ended runs scored, and reports what was done."""

    def __init__(
        self,
        store: Store,
        pipeline: Callable[[], Pipeline],
        sinks: Iterable[Sink] = (),
        *,
        late_sink: Callable[[], Sink | None] | None = None,
        settings: Settings = Settings(),
        references: References | None = None,
        redactor: Redactor | None = None,
        faults: Faults | None = None,
        sweep: Callable[[], object] = lambda: None,
        release: Callable[[], Awaitable[None]] | None = None,
        capture: Callable[[], Captured] = Captured,
    ) -> None:
        """`pipeline` makes one, on the scorer's thread, once a process; `sweep` is called now and then on the
        writer's thread; `release` lets the engines go at the end; `capture` says what the report tells of capture."""
        self.store, self.faults, self._settings, self._redactor = (
            store,
            faults or Faults(),
            settings,
            redactor,
        )
        self._make_pipeline, self._sweep, self._release, self._capture = pipeline, sweep, release, capture
        self._tally = FailureTally()
        self._backlog = (
            None
            if settings.block is None
            else ScoringBacklog(settings.queue_size, settings.block, lambda: store.left().pending)
        )
        self.intake = Intake(
            store, self.faults, full=settings.full, bounds=settings.bounds, backlog=self._backlog,
            redactor=redactor, started=self._started, ended=self._ended, tick=self._tick,
            tick_seconds=settings.tick_seconds,
        )  # fmt: skip
        self.delivery = Delivery(sinks, self.faults, store.count, late_sink)
        self._scoring = Scoring(
            store, self.intake.do, self.pipeline, self.delivery, references=references, redactor=redactor,
            retry=settings.retry, settled=self._settled, tally=self._tally,
            score_rate=settings.score_rate,
        )  # fmt: skip
        self._worker = ScoringWorker(
            SCORER, store, self.intake.do, self._scoring, self.faults, concurrency=settings.concurrency,
            retry=settings.retry,
        )  # fmt: skip
        self._closing: Report | None = None
        self._begin()
        at_fork(in_child=self._begin_in_child)

    def _begin(self) -> None:
        self._pipeline: Pipeline | None = None
        self._progress = threading.Condition()
        self._making, self._ending = threading.Lock(), threading.RLock()
        self._left = Left(0, 0, None)

    def _begin_in_child(self) -> None:
        self._begin()
        self.intake.begin()
        self.delivery.begin()
        self._scoring.begin()
        self._worker.begin()
        self.faults.renew()

    def pipeline(self) -> Pipeline:
        """Returns the scoring pipeline, made on the first call."""
        with self._making:
            if self._pipeline is None:
                self._pipeline = self._make_pipeline()
            return self._pipeline

    # Scoring on demand

    async def score(self, run: Run) -> ScoredRun:
        """Scores a run now, ahead of the background."""
        self.intake.start()
        return await SCORER.within(self._scoring.score(self._redacted(run), DIRECT_PRIORITY))

    async def score_captured(self, run_id: Callable[[], str], otherwise: Callable[[], Run]) -> ScoredRun:
        """Scores a captured run as it is stored, or as `otherwise` gives it where the store does not have it."""
        self.intake.start()

        async def find() -> ScoredRun:
            run = await self._scoring.captured(lambda: self.stored_id(run_id()))
            return await self._scoring.score(
                self._redacted(otherwise()) if run is None else run, DIRECT_PRIORITY
            )

        return await SCORER.within(find())

    async def sketch(self, run: Run) -> ScoredRun:
        """Scores a run that has not ended, without storing anything."""
        return await SCORER.within(self._scoring.sketch(self._redacted(run), DIRECT_PRIORITY))

    async def plan(self, run: Run) -> Plan:
        """Returns what scoring the run would ask, without asking."""
        return await SCORER.within(self._scoring.plan(self._redacted(run)))

    async def score_all(
        self, runs: Iterable[Run] | AsyncIterable[Run], concurrency: int
    ) -> AsyncGenerator[ScoredRun, None]:
        """Scores runs, at most `concurrency` at once, and yields each as soon as it is done."""

        async def one(run: Run) -> ScoredRun:
            try:
                return await self.score(run)
            except RagguardError as error:
                named = run if isinstance(run, Run) else Run()
                return ScoredRun(
                    named, [], [Failure("run", type(error).__name__, str(error), run_id=named.id)]
                )

        async for scored in bounded(runs, one, concurrency):
            yield scored

    def stored_id(self, run_id: str) -> str:
        """The id under which a run is kept: redaction may have changed it."""
        return run_id if self._redactor is None else self._redactor.id(run_id)

    def _redacted(self, run: Run) -> Run:
        run = checked_run(run)
        return run if self._redactor is None else self._redactor.run(run)

    # What was done

    def settle(self, timeout: float = 1.0) -> None:
        """Waits until what was captured so far is in the store, so that a reader sees it."""
        if self.intake.depth and not self._is_own_thread():
            with suppress(TimeoutError, RagguardError):
                self.intake.do(lambda: None).result(timeout)

    def flush(self, timeout: float) -> Report:
        """Waits until everything captured so far is scored and stored; says whether it is."""
        began, timeout = time.monotonic(), seconds("timeout", timeout)
        if self._closing is not None:
            return self._closing
        if self._is_own_thread():
            _log.warning("flush() was called on ragguard's own thread, where it cannot wait")
            return self._report(False, began)
        try:
            self.intake.do(self.store.recover).result(timeout)
            complete = self._wait(began + timeout)
            self._flush_sinks(began + timeout)
        except (TimeoutError, RagguardError):
            complete = False
        return self._report(complete, began)

    def _flush_sinks(self, deadline: float) -> None:
        """Has the sinks send what they hold; what has not arrived by the deadline counts as not delivered."""
        if not self.delivery.buffers:
            return
        flushing = SCORER.submit(self.delivery.flush())
        try:
            flushing.result(max(0.0, deadline - time.monotonic()) + _GRACE)
        except TimeoutError:
            flushing.cancel()

    def _wait(self, deadline: float) -> bool:
        until = now_ns()
        while True:
            remaining = max(0.0, deadline - time.monotonic())
            left = self._left = self.intake.do(lambda: self.store.left(until)).result(remaining + _GRACE)
            if not left.pending:
                return True
            if not remaining:
                return False
            if left.next_ns is not None and (left.next_ns - now_ns()) / 1e9 > remaining:
                return False  # all that is left waits for another attempt, later than the caller will
            with self._progress:
                self._progress.wait(min(remaining, 0.2))

    def _report(self, complete: bool, began: float) -> Report:
        counts, left, capture = self.store.counts, self._left, self._capture()
        lost = counts["events_lost"] + counts["events_refused"] + counts["runs_lost"]
        undelivered = self.delivery.undelivered()
        return Report(
            complete=complete
            and not lost
            and not counts["files_lost"]
            and not self.store.degraded
            and not undelivered,
            captured=counts["runs_captured"],
            steps=counts["steps_captured"],
            scored=counts["runs_scored"],
            failed=counts["runs_failed"],
            pending=left.pending,
            open=left.open,
            dropped=counts["runs_dropped"],
            lost=lost,
            files_lost=counts["files_lost"],
            degraded=self.store.degraded,
            seconds=time.monotonic() - began,
            retrying=left.retrying,
            unscored=counts["runs_unscored" if self._settings.scores else "runs_captured"],
            unsampled=capture.unsampled,
            undelivered=undelivered,
            cause_failed=self._tally.for_good,
            cause_pending=capture.engine,
            cause_retrying=self._tally.for_now,
            nothing_because=""
            if counts["steps_captured"] or counts["runs_scored"] or counts["runs_unscored"] or lost
            else capture.calls,
        )

    def close(self, timeout: float) -> Report:
        """Flushes within `timeout`, then ends; what is not scored stays in the store. Safe to call twice."""
        began, timeout = time.monotonic(), seconds("timeout", timeout)
        if not self._ending.acquire(timeout=timeout + _GRACE):  # another thread closes it, and has more time
            return self._report(False, began)
        try:
            if self._closing is not None:
                return self._closing
            report = self.flush(timeout) if self.intake.started else self._report(True, began)
            if self._end(began + timeout) and self.intake.started:
                report = self._report(not self._left.pending, began)
            self._closing = report
        finally:
            self._ending.release()
        exits.forget(self)
        self._tell_what_is_left(report)
        return report

    def _end(self, deadline: float) -> bool:
        """Ends scoring, sinks, engines and the store; False where the writer did not end in time."""
        if SCORER.started:
            self._end_scoring(max(_GRACE, deadline - time.monotonic()))
        if not self.intake.close(max(_GRACE, deadline - time.monotonic()), self._close_store):
            _log.error("the store's writer did not end in time; what it still holds may be lost")
            return False
        return True

    def _end_scoring(self, timeout: float) -> None:
        async def end() -> None:
            await self._worker.stop()
            await self.delivery.aclose(timeout)
            if self._release is not None:
                await self._release()

        ending = SCORER.submit(end())
        try:
            ending.result(timeout)
        except TimeoutError:
            ending.cancel()
        except Exception as error:  # noqa: BLE001 - an engine or a sink that cannot end must not stop the rest
            self.faults.note("closing", error)

    def _close_store(self) -> None:
        """Counts what is left and closes the store; runs on the writer's thread, since a disk may hang."""
        if self.intake.started:
            with suppress(RagguardError):  # the disk cannot be read; the last known counts stand
                self._left = self.store.left()
        self.store.close()

    def _tell_what_is_left(self, report: Report) -> None:
        if report.pending + report.open == 0:
            return
        if self.store.path is None:
            _log.warning(
                "%d runs were not scored and are lost: there is no store", report.pending + report.open
            )
        elif not self.store.degraded:
            _log.info(
                "%d runs are still to be scored; they are in %s and go on when it is opened again",
                report.pending + report.open, self.store.path,
            )  # fmt: skip

    # Threads

    def _is_own_thread(self) -> bool:
        return SCORER.is_current() or self.intake.is_current()

    def _started(self) -> None:
        exits.at_exit(self, exits.Ending(self._settings.exit_timeout, self.flush, self.close))
        if self._settings.scores:
            self._worker.start()

    def _ended(self) -> None:
        """Wakes the worker; the writer calls it after runs became due."""
        self._worker.wake()

    def _settled(self) -> None:
        """Wakes callers that wait for progress; the scorer calls it after each run."""
        self._update_backlog()
        with self._progress:
            self._progress.notify_all()

    def _update_backlog(self) -> None:
        if self._backlog is not None:
            self._backlog.update()

    def _tick(self) -> None:
        """Sweeps and keeps house; the writer calls it every `tick_seconds`."""
        self._sweep()
        ttl = self._settings.run_ttl
        self.store.housekeep(run_ttl=ttl if ttl < math.inf else None, retention=self._settings.retention)
        self._update_backlog()
        self._ended()

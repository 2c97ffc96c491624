"""The worker claims runs that are due, a few at a time, and has each scored, kept unscored or delivered.

While the engine does not answer at all, the worker tries one run at a time, with growing pauses; all others stay due in
the store and lose no attempt. Open runs get the slots that no ended run needs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial

from ragguard.errors import Closed
from ragguard.records import ScoredRun
from ragguard.runtime.circuit_breaker import Attempt, CircuitBreaker
from ragguard.runtime.deadline import now_ns
from ragguard.runtime.faults import Faults, is_cancelled, result_or_error
from ragguard.runtime.threads import BackgroundLoop
from ragguard.scorers.models import SCORING
from ragguard.service.configuration import Configuration
from ragguard.service.delivery import Delivery
from ragguard.service.intake import Intake
from ragguard.service.live import LiveScoring, Work
from ragguard.service.run_scoring import RunScoring
from ragguard.storage.sqlite.ledger import Claim
from ragguard.storage.sqlite.store import Store

_LONGEST_SLEEP = 60.0
_DELIVERED_SECONDS = 0.25
"""The seconds between two looks at a run that is due again and still being delivered."""


class ScoringWorker:
    """The task on the background loop that works on due runs."""

    def __init__(
        self,
        settings: Configuration,
        store: Store,
        writer: Intake,
        *,
        loop: BackgroundLoop,
        scoring: RunScoring,
        live: LiveScoring,
        delivery: Delivery,
        faults: Faults,
    ) -> None:
        self._settings, self._store, self._writer = settings, store, writer
        self._loop, self._scoring, self._delivery, self._faults = loop, scoring, delivery, faults
        self._live = live
        self._main: Future[None] | None = None
        self._waker: Callable[[], object] = lambda: None
        self._tasks: set[asyncio.Task[None]] = set()
        self._more = False
        """True where the end of a task leaves something to look for in the store."""
        self._circuit = CircuitBreaker(1, self._settings.retry)

    def start(self) -> None:
        """Starts the task, once."""
        if self._main is None:
            self._main = self._loop.submit(self._run())

    def wake(self) -> None:
        """Makes the task look for work; may be called from any thread."""
        self._waker()

    async def stop(self) -> None:
        """Cancels the task and the scoring in progress; the runs stay due in the store."""
        main, self._main = self._main, None
        if main is not None:
            main.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self) -> None:
        awake = asyncio.Event()
        here = asyncio.get_running_loop()
        self._waker = lambda: here.call_soon_threadsafe(awake.set)
        failures = 0
        while True:
            awake.clear()
            try:
                sleep, failures = await self._take(), 0
            except Closed:
                return
            except (Exception, asyncio.CancelledError, SystemExit, KeyboardInterrupt) as error:
                if is_cancelled(error):
                    raise
                # The worker goes on whatever happens.
                self._faults.note("the scorer", error)
                failures += 1
                sleep = self._settings.retry.wait(failures)
            try:
                async with asyncio.timeout(sleep):
                    await awake.wait()
            except TimeoutError:
                continue

    async def _take(self) -> float:
        """Starts scoring due runs, up to the limit; returns the seconds until another run is due."""
        if (pause := self._circuit.pause) > 0:
            return pause
        free = (1 if self._circuit.is_open else self._settings.concurrency) - len(self._tasks)
        if free <= 0:
            self._more = True
            return _LONGEST_SLEEP  # a task that ends wakes this one
        # Looking for work does not wake the writer, which would then commit small batches and slow hooks down.
        attempt, claims, work = self._circuit.enter(), list[Claim](), list[Work]()
        self._more = False
        try:
            claims, next_ns = await asyncio.wrap_future(
                self._writer.do(lambda: self._store.claim_next(free), wake=self._live.next_in() == 0.0)
            )
            self._more |= len(claims) >= free or next_ns == 0
            work = [
                *(partial(self._work_off, claim) for claim in claims),
                *self._live.take(free - len(claims)),
            ]
        finally:
            if not work:
                self._circuit.left(attempt)
        for one in work:
            task = asyncio.get_running_loop().create_task(self._work(one, attempt))
            self._tasks.add(task)
            task.add_done_callback(self._done)
        return max(0.01, min(_LONGEST_SLEEP, *self._waits(next_ns)))

    def _waits(self, next_ns: int | None) -> Iterator[float]:
        """Yields the seconds until another run is due; a task that ends wakes the worker earlier."""
        yield _LONGEST_SLEEP
        if next_ns is not None and (wait := (next_ns - now_ns()) / 1e9) > 0:
            yield wait
        elif next_ns is not None and not self._tasks:
            yield _DELIVERED_SECONDS
        if (live := self._live.next_in()) is not None:
            yield live

    async def _work(self, work: Work, attempt: Attempt) -> None:
        """Does one piece of work, and notes in the circuit breaker whether an engine answered."""
        answered = await result_or_error(work)
        if isinstance(answered, Closed):  # meanwhile; the run stays due in the store, as close() has said
            self._circuit.left(attempt)
            return
        if isinstance(answered, BaseException):  # the run is tried again after a pause
            self._more = True
            self._faults.note("scoring", answered)
        if answered is True:
            self._circuit.succeeded()
        else:
            self._circuit.failed(attempt, "no engine answered", self)

    async def _work_off(self, claim: Claim) -> bool:
        """Scores or delivers a claimed run; returns False where no engine answered."""
        run, due = claim.run, claim.due
        if (busy := self._scoring.in_progress(run.id)) is not None:
            await busy.wait()  # a caller is scoring the same run; work that is still due is claimed again
            self._more = True
            return True
        with self._scoring.exclusively(run.id):
            if not due.score:
                await self._scoring.deliver(ScoredRun(run, claim.unsent, []))
            elif due.attempts or self._settings.chooses(run.id):
                attempt = await self._scoring.attempt(run, due, SCORING)
                self._more |= attempt.again
                return attempt.answered
            else:
                await self._keep_unscored(claim)
            return True

    async def _keep_unscored(self, claim: Claim) -> None:
        """Leaves a captured run unscored; sinks still get the run, and it may be scored later."""

        def keep() -> None:
            self._store.keep_unscored(claim.due, emit=bool(self._delivery))
            self._store.count("runs_unscored")

        await self._scoring.written(keep)
        if self._delivery:
            await self._scoring.deliver(ScoredRun(claim.run, [], []))

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._more or self._live.next_in() is not None:
            self._waker()

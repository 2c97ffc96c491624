"""The worker, which claims runs that are due, a few at a time, and has each scored, kept unscored or delivered.

While the engine does not answer at all, the worker tries one run at a time, with pauses; all others stay due in the
store and lose no attempt. Whether it answers is known by the circuit breaker around each engine
(`engines/layers/retry.py`); for engines without one by the worker's own, which opens when runs of several rounds in a
row failed. Once an engine answers again, runs that had failed are tried again at once: their own pauses may have become
long.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Future
from dataclasses import replace
from functools import partial

from ragguard.runtime.circuit_breaker import Attempt, CircuitBreaker
from ragguard.runtime.deadline import now_ns
from ragguard.runtime.faults import Faults, is_cancelled, result_or_error
from ragguard.runtime.threads import BackgroundLoop, LoopSignal
from ragguard.service.awaited_store import AwaitedStore
from ragguard.service.configuration import Configuration
from ragguard.service.live_scoring import LiveScoring, Work
from ragguard.service.run_scoring import RunScoring
from ragguard.storage.sqlite.ledger import Claim

_LONGEST_SLEEP = 60.0
_ROUNDS = 2
"""The worker's circuit opens after this many rounds in a row in which no engine answered; one run alone may fail at a
server that answers most requests."""
_LONGEST_PAUSE = 15.0
"""The most seconds between two attempts at an engine that does not answer."""
_RETRIES_APART = 10.0
"""The least seconds between two times at which the runs that failed for now are made due at once."""
_DELIVERED_SECONDS = 0.25
"""The seconds between two looks at a run that is due again and still being delivered."""


class ScoringWorker:
    """The task on the background loop that works on due runs."""

    def __init__(
        self,
        settings: Configuration,
        store: AwaitedStore,
        *,
        scoring: RunScoring,
        live: LiveScoring,
        loop: BackgroundLoop,
        due: LoopSignal,
        faults: Faults,
    ) -> None:
        """Looks for work whenever `due` is set."""
        self._settings, self._store, self._scoring, self._live = settings, store, scoring, live
        self._loop, self._due, self._faults = loop, due, faults
        self._main: Future[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._more = False
        """True where the end of a task leaves something to look for in the store."""
        pauses = replace(settings.retry, longest=min(_LONGEST_PAUSE, settings.retry.longest))
        self._circuit = CircuitBreaker(_ROUNDS, pauses)
        self._has_failed = False
        """True once a run failed for now, until the runs that wait for another attempt are made due."""
        self._retried = 0.0
        """The time at which these were made due last, on the monotonic clock."""

    def start(self) -> None:
        """Starts the task, once."""
        if self._main is None:
            self._main = self._loop.submit(self._run())

    async def stop(self) -> None:
        """Cancels the task and the scoring in progress; the runs stay due in the store."""
        if self._main is not None:
            self._main.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self) -> None:
        self._due.bind()
        failures = 0
        while True:
            self._due.clear()
            try:
                sleep, failures = await self._take(), 0
            except (Exception, asyncio.CancelledError, SystemExit, KeyboardInterrupt) as error:
                if is_cancelled(error):
                    raise
                # The worker goes on whatever happens.
                self._faults.note("the scorer", error)
                failures += 1
                sleep = self._settings.retry.wait(failures)
            await self._due.wait(sleep)

    @property
    def engine_answers(self) -> bool:
        """False while the worker tries one run at a time, as an engine does not answer."""
        return not any(circuit.is_open for circuit in self._circuits())

    def _circuits(self) -> list[CircuitBreaker]:
        return [self._circuit, *self._scoring.open_circuits()]

    async def _take(self) -> float:
        """Starts scoring due runs, up to the limit; returns the seconds until another run is due."""
        if (pause := max(circuit.pause for circuit in self._circuits())) > 0:
            return pause
        free = (self._settings.concurrency if self.engine_answers else 1) - len(self._tasks)
        if free <= 0:
            self._more = True
            return _LONGEST_SLEEP  # a task that ends wakes this one
        attempt, work = self._circuit.enter(), list[Work]()
        self._more = False
        try:
            claims, next_ns = await self._store.claim(free, at_once=self._live.next_in() == 0.0)
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
        waits = [_LONGEST_SLEEP]
        if next_ns is not None and (wait := (next_ns - now_ns()) / 1e9) > 0:
            waits.append(wait)
        elif next_ns is not None and not self._tasks:
            waits.append(_DELIVERED_SECONDS)
        if (live := self._live.next_in()) is not None:
            waits.append(live)
        return max(0.01, min(waits))

    async def _work(self, work: Work, attempt: Attempt) -> None:
        """Does one piece of work, and notes in the circuit breaker whether an engine answered."""
        has_answered = await result_or_error(work)
        if isinstance(has_answered, BaseException):  # the run is tried again after a pause
            self._more = True
            self._faults.note("scoring", has_answered)
        if has_answered is True:
            self._circuit.succeeded()
            if self._has_failed and time.monotonic() - self._retried > _RETRIES_APART:
                self._has_failed, self._retried = False, time.monotonic()
                await result_or_error(self._store.retry_now)
                self._more = True
        else:
            self._circuit.failed(attempt, "no engine answered", self)

    async def _work_off(self, claim: Claim) -> bool:
        """Scores or delivers a claimed run; returns False where no engine answered."""
        done = await self._scoring.work_off(claim)
        self._more |= done.due_again
        self._has_failed |= done.due_again or not done.answered
        return done.answered

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._more or self._live.next_in() is not None:
            self._due.set()

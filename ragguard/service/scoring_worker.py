"""The worker claims runs that are due, a few at a time, and has each scored, kept unscored or delivered.

While the engine does not answer at all, the worker tries one run at a time, with growing pauses; all others stay due in
the store and lose no attempt.

Open runs are scored as their steps end, with what is known so far. These scores are stored as provisional. At its end a
run gets final scores, which replace them. Live scoring is never due: no caller waits for it, and a run that ends before
its turn, or about which no engine answers, is scored at its end alone. It uses the worker's slots that no ended run
needs, at most half of all.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Set
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from ragguard.records import Failure, Run, ScoredRun
from ragguard.runtime.circuit_breaker import Attempt, CircuitBreaker
from ragguard.runtime.deadline import now_ns
from ragguard.runtime.faults import NOTICES, Faults, is_cancelled, result_or_error
from ragguard.runtime.threads import BackgroundLoop
from ragguard.scorers.asker import SCORING
from ragguard.scorers.pipeline import evaluate
from ragguard.scorers.scorer import Live
from ragguard.service.run_scoring import RunScoring, answered
from ragguard.storage.sqlite.ledger import Claim

Work: TypeAlias = Callable[[], Awaitable[bool]]
"""Scores or delivers one run; returns False where no engine answered."""
STEP_WAITS = 0.2
"""The seconds that a step which has ended waits for others that are parallel, so that one wave asks about all."""


def is_chosen(run_id: str, share: float) -> bool:
    """Returns True for a share of the runs, which is scored without being asked for: always the same runs."""
    # Not the hash that sampling uses: of the runs that it lets through, the same share is chosen.
    digest = hashlib.sha256(run_id.encode("utf-8", "replace")).digest()
    return int.from_bytes(digest[:4], "big") < share * 2**32


class LiveScoring:
    """Scores open runs: first what asks about the last step alone, then what looks at all steps so far."""

    def __init__(self, scoring: RunScoring) -> None:
        self._scoring, self._store, self._pipeline = scoring, scoring.store, scoring.pipeline
        self._most = max(1, scoring.settings.concurrency // 2)
        self._waiting: dict[str, float] = {}
        """The open runs of which a step has ended since they were last scored, each with the time from which it may be
        scored, on the monotonic clock. The writer adds to it; whoever iterates over it takes a copy."""
        self._running: set[str] = set()

    def note(self, changed: Set[str]) -> None:
        """Notes the ids of open runs whose steps ended or changed; from any thread."""
        if not self._pipeline.get().remembers:
            NOTICES.warn(
                "live scoring without a cache",
                "steps are not scored as they end, since the engine has no cache and would be asked the same again at "
                "each step: give RagGuard an engine that `ragguard.connect` made, or one with the layer Cache, or say "
                "when='run'",
            )
            return
        now = time.monotonic()
        for run_id in changed:
            if is_chosen(run_id, self._scoring.settings.score_rate):
                self._waiting.setdefault(run_id, now + STEP_WAITS)

    def take(self, slots: int) -> list[Work]:
        """Returns work on open runs for at most so many slots, those that wait longest first."""
        free = max(0, min(slots, self._most - len(self._running)))
        now = time.monotonic()
        due = [one for one, at in self._ready() if at <= now][:free]
        for run_id in due:
            del self._waiting[run_id]
        self._running.update(due)
        return [partial(self._score, run_id) for run_id in due]

    def next_in(self) -> float | None:
        """Returns the seconds until there is work; None where there is none, or no slot for it."""
        if len(self._running) >= self._most:
            return None
        due = [at for _, at in self._ready()]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _ready(self) -> list[tuple[str, float]]:
        """Returns the runs that wait and are not being scored."""
        return [(one, at) for one, at in list(self._waiting.items()) if one not in self._running]

    async def _score(self, run_id: str) -> bool:
        """Scores an open run as it stands; returns False where no engine answered.

        The run may end meanwhile, and its final scoring may run at the same time: equal questions are asked once, and
        the provisional results are then not stored.
        """
        try:
            self._waiting.pop(run_id, None)  # whatever has ended until now is in the store
            run = await self._scoring.written(lambda: self._store.run(run_id))
            return run is None or run.status != "open" or await self._attempt(run)
        finally:
            self._running.discard(run_id)

    async def _attempt(self, run: Run) -> bool:
        found, _ = await self._scoring.find_references(run)  # its failures are told at the run's end
        if found:
            run = replace(run, references=found)
        failures: list[Failure] = []
        # Without a known question of the run, only scorers about the steps' queries can be asked.
        kinds: tuple[Live, ...] = ("at once", "so far") if run.question.strip() else ("at once",)
        for kind in kinds:
            # Scorers about a step that has ended meanwhile come before those about all steps.
            if not self._pipeline.get().live_scorers(kind) or run.id in self._waiting:
                continue
            scored = await evaluate(run, self._pipeline.get().results_so_far(run, kind))
            failures += self._scoring.redactor.failures(scored.failures)
            new = await self._scoring.written(
                partial(self._store.store_provisional, run.id, scored.scores, failures, found)
            )
            if new and self._scoring.delivery:
                await self._scoring.delivery.start(replace(scored, scores=new, failures=[]))
            if new is None or not answered(scored):  # the run has ended, or the engine is away
                return new is None
        return True


_LONGEST_SLEEP = 60.0
_DELIVERED_SECONDS = 0.25
"""The seconds between two looks at a run that is due again and still being delivered."""


class ScoringWorker:
    """The task on the background loop that works on due runs."""

    def __init__(self, scoring: RunScoring, loop: BackgroundLoop, faults: Faults) -> None:
        self._scoring, self._loop, self._faults = scoring, loop, faults
        self.live = LiveScoring(scoring)
        self._settings, self._store = scoring.settings, scoring.store
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
        if self._main is not None:
            self._main.cancel()
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
            except (Exception, asyncio.CancelledError, SystemExit, KeyboardInterrupt) as error:
                if is_cancelled(error):
                    raise
                # The worker goes on whatever happens.
                self._faults.note("the scorer", error)
                failures += 1
                sleep = self._settings.retry.wait(failures)
            with suppress(TimeoutError):
                async with asyncio.timeout(sleep):
                    await awake.wait()

    async def _take(self) -> float:
        """Starts scoring due runs, up to the limit; returns the seconds until another run is due."""
        if (pause := self._circuit.pause) > 0:
            return pause
        free = (1 if self._circuit.is_open else self._settings.concurrency) - len(self._tasks)
        if free <= 0:
            self._more = True
            return _LONGEST_SLEEP  # a task that ends wakes this one
        # Looking for work does not wake the writer, which would then commit small batches and slow hooks down.
        attempt, work = self._circuit.enter(), list[Work]()
        self._more = False
        try:
            claims, next_ns = await asyncio.wrap_future(
                self._scoring.writer.do(lambda: self._store.claim(free), wake=self.live.next_in() == 0.0)
            )
            self._more |= len(claims) >= free or next_ns == 0
            work = [
                *(partial(self._work_off, claim) for claim in claims),
                *self.live.take(free - len(claims)),
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
        if (live := self.live.next_in()) is not None:
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
        else:
            self._circuit.failed(attempt, "no engine answered", self)

    async def _work_off(self, claim: Claim) -> bool:
        """Scores or delivers a claimed run; returns False where no engine answered."""
        run = claim.run
        if (busy := self._scoring.busy.get(run.id)) is not None:
            await busy.wait()  # a caller is scoring the same run; work that is still due is claimed again
            self._more = True
            return True
        with self._scoring.exclusively(run.id):
            if not claim.score:
                await self._scoring.deliver(ScoredRun(run, claim.unsent, []))
            elif claim.attempts or is_chosen(run.id, self._settings.score_rate):
                scored = await self._scoring.attempt(claim, SCORING)
                self._more |= any(one.will_retry for one in scored.failures)
                return answered(scored)
            else:
                await self._keep_unscored(claim)
            return True

    async def _keep_unscored(self, claim: Claim) -> None:
        """Leaves a captured run unscored; sinks still get the run, and it may be scored later."""
        emit = bool(self._scoring.delivery)
        await self._scoring.written(lambda: self._store.keep_unscored(claim, emit=emit))
        if self._scoring.delivery:
            await self._scoring.deliver(ScoredRun(claim.run, [], []))

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._more or self.live.next_in() is not None:
            self._waker()

"""The worker claims runs that are due, a few at a time, and has each scored, kept unscored or delivered.

While the engine does not answer at all, the worker tries one run at a time, with growing pauses; all others stay due in
the store and lose no attempt.

Open runs are scored as their steps end, with what is known so far. These scores are stored as provisional. At its end a
run gets final scores, which replace them. Live scoring is never due: no caller waits for it, and a run that ends before
its turn is scored at its end alone. It uses the worker's slots that no ended run needs, at most half of all.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Container, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from ragguard.errors import Closed
from ragguard.records import Failure, Run, ScoredRun
from ragguard.runtime.circuit_breaker import Attempt, CircuitBreaker
from ragguard.runtime.deadline import now_ns
from ragguard.runtime.faults import NOTICES, Faults, is_cancelled, result_or_error
from ragguard.runtime.per_process import PerProcess
from ragguard.runtime.threads import BackgroundLoop
from ragguard.scorers.evaluation import evaluate
from ragguard.scorers.models import SCORING
from ragguard.scorers.pipeline import ScoringPipeline
from ragguard.scorers.scorer import Live
from ragguard.service.batches import Redactor
from ragguard.service.configuration import Configuration
from ragguard.service.delivery import Delivery
from ragguard.service.intake import Intake
from ragguard.service.run_scoring import RunScoring
from ragguard.storage.sqlite.ledger import Claim
from ragguard.storage.sqlite.store import Store

Work: TypeAlias = Callable[[], Awaitable[bool]]
"""Scores or delivers one run; returns False where no engine answered."""
TURN_SECONDS = 1.0
"""The seconds that a step which has ended waits for the other steps of its turn, so that one wave asks about all."""
KEPT = 4096
"""The most open runs that wait, or that are known to have no references."""


@dataclass(slots=True)
class _WaitingRun:
    """An open run of which a step has ended since it was last scored."""

    due: float
    """The time from which it may be scored, on the monotonic clock."""
    attempts: int = 0
    """The number of attempts since the run's last step to which no engine answered."""


class WaitingRuns:
    """The open runs that are to be scored, each once however many of its steps have ended. Any thread may add some."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: OrderedDict[str, _WaitingRun] = OrderedDict()

    def __contains__(self, run_id: object) -> bool:
        return run_id in self._waiting

    def add(self, changed: Mapping[str, bool]) -> None:
        """Adds runs of which a step has ended or changed; True for a run that has other open steps in that turn."""
        now = self._clock()
        with self._lock:
            for run_id, turn_open in changed.items():
                self._waiting.pop(run_id, None)
                self._waiting[run_id] = _WaitingRun(now + TURN_SECONDS if turn_open else now)
            while len(self._waiting) > KEPT:  # other runs are scored at their ends
                self._waiting.popitem(last=False)

    def add_again(self, run_id: str, attempts: int, wait: float) -> None:
        """Adds a run that no engine answered about, unless a step of it has ended since."""
        with self._lock:
            self._waiting.setdefault(run_id, _WaitingRun(self._clock() + wait, attempts))

    def discard(self, run_id: str) -> None:
        """Removes a run, since all its changes so far are scored."""
        with self._lock:
            self._waiting.pop(run_id, None)

    def take(self, most: int, busy: Container[str]) -> list[tuple[str, int]]:
        """Removes and returns runs that may be scored now and are not `busy`, at most so many, the longest waiting
        first; each with its failed attempts."""
        now = self._clock()
        with self._lock:
            found = [run_id for run_id, one in self._waiting.items() if one.due <= now and run_id not in busy]
            return [(run_id, self._waiting.pop(run_id).attempts) for run_id in found[:most]]

    def next_in(self, busy: Container[str]) -> float | None:
        """Returns the seconds until a run that is not `busy` may be scored; None where there is none."""
        with self._lock:
            due = [one.due for run_id, one in self._waiting.items() if run_id not in busy]
        return max(0.0, min(due) - self._clock()) if due else None


class LiveScoring:
    """Scores open runs: first what asks about the last step alone, then what looks at all steps so far."""

    def __init__(
        self,
        settings: Configuration,
        store: Store,
        *,
        pipeline: PerProcess[ScoringPipeline],
        scoring: RunScoring,
        delivery: Delivery,
        redactor: Redactor | None,
    ) -> None:
        self._settings, self._store, self._pipeline = settings, store, pipeline
        self._scoring, self._delivery, self._redactor = scoring, delivery, redactor
        self._most = max(1, settings.concurrency // 2)
        self._waiting = WaitingRuns()
        self._unreferenced: OrderedDict[str, str] = OrderedDict()
        """The question to which the user's function knows no answer, by the run's id."""
        self._running: set[str] = set()

    def note(self, changed: Mapping[str, bool]) -> None:
        """Notes open runs whose steps ended or changed, each with whether its turn has open steps; from any thread."""
        if not self._pipeline.get().remembers:
            NOTICES.warn(
                "live scoring without a cache",
                "steps are not scored as they end, since the engine has no cache and would be asked the same again at "
                "each step: give RagGuard an engine that `ragguard.connect` made, or one with the layer Cache, or say "
                "when='run'",
            )
            return
        self._waiting.add(
            {run_id: open for run_id, open in changed.items() if self._settings.chooses(run_id)}
        )

    def take(self, slots: int) -> list[Work]:
        """Returns work on open runs for at most so many slots."""
        free = min(slots, self._most - len(self._running))
        found = self._waiting.take(free, self._running) if free > 0 else []
        self._running.update(run_id for run_id, _ in found)
        return [partial(self._score, run_id, attempts) for run_id, attempts in found]

    def next_in(self) -> float | None:
        """Returns the seconds until there is work; None where there is none, or no slot for it."""
        return self._waiting.next_in(self._running) if len(self._running) < self._most else None

    @property
    def idle(self) -> bool:
        """True while steps are scored as they end and none is being scored."""
        return self._settings.live and not self._running

    async def _score(self, run_id: str, attempts: int) -> bool:
        """Scores an open run as it stands; returns False where no engine answered.

        The run may end meanwhile, and its final scoring may run at the same time: equal questions are asked once, and
        the provisional results are then not stored.
        """
        try:
            answered, whole = await self._attempt(run_id)
        finally:
            self._running.discard(run_id)
        if not whole and (wait := self._settings.retry.after(attempts + 1)) is not None:
            self._waiting.add_again(run_id, attempts + 1, wait)
        return answered

    async def _attempt(self, run_id: str) -> tuple[bool, bool]:
        """Scores an open run; returns whether an engine answered, and whether there is nothing to be tried again."""
        self._waiting.discard(run_id)  # whatever has ended until now is in the store
        run = await self._scoring.written(lambda: self._store.open_run(run_id))
        if run is None:
            return True, True
        found = await self._references(run)
        if found:
            run = replace(run, references=found)
        failures: dict[object, Failure] = {}
        given = False
        # Without a known question of the run, only scorers about the steps' queries can be asked.
        kinds: tuple[Live, ...] = ("at once", "so far") if run.question.strip() else ("at once",)
        for kind in kinds:
            scorers = self._pipeline.get().live_scorers(kind)
            if not scorers:
                continue
            if run_id in self._waiting:
                break  # scorers about a step that has ended meanwhile come first
            scored = await evaluate(run, self._pipeline.get().results_so_far(run, scorers))
            failures |= {(one.scorer, one.error, one.step_id): one for one in self._kept(scored.failures)}
            given = given or bool(scored.scores)
            new = await self._scoring.written(
                partial(self._store.store_provisional, run_id, scored.scores, [*failures.values()], found)
            )
            if new is None:
                return True, True
            if new and self._delivery:
                await self._delivery.start(replace(scored, scores=new, failures=[]))
            if not given and failures:
                break
        again = any(one.will_retry for one in failures.values())
        return given or not failures or not all(one.will_retry for one in failures.values()), not again

    def _kept(self, failures: Sequence[Failure]) -> Sequence[Failure]:
        return failures if self._redactor is None else self._redactor.failures(failures)

    async def _references(self, run: Run) -> list[str] | None:
        """Returns references for a run without its own; the user's function is called once for each question."""
        if self._unreferenced.get(run.id) == run.question:
            return None
        found, failures = await self._scoring.find_references(run)
        if not found and not failures:
            self._unreferenced[run.id] = run.question
            if len(self._unreferenced) > KEPT:
                self._unreferenced.popitem(last=False)
        return found


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
                self._writer.do(lambda: self._store.claim(free), wake=self._live.next_in() == 0.0)
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

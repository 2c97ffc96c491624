"""Scores one part: its runs go through a pipeline without a store, and its results are written whole or not at all.

This is the work of one process or actor, whatever started it: `await PartScorer(job).answer(part)` for each part. The
processes of this machine are run with the standard library alone. They are started anew (spawned), so a script that
scores on processes guards its start with `if __name__ == "__main__":`.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing, suppress
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from operator import itemgetter
from typing import TypeVar

from ragguard.errors import (
    EngineError,
    EngineTimeout,
    EngineUnreachable,
    RagguardError,
    RunFormatError,
    StoreError,
    WorkerLost,
)
from ragguard.records import Run, ScoredRun
from ragguard.runtime.arguments import whole_number
from ragguard.runtime.circuit_breaker import RetrySchedule
from ragguard.runtime.faults import NOTICES, describe
from ragguard.runtime.limiter import bounded
from ragguard.scale.job import PartJob, identity_digest
from ragguard.scale.part import Part, read_part
from ragguard.scorers.pipeline import ScoringPipeline, engine_answered, evaluate
from ragguard.scorers.references import ReferenceTable
from ragguard.scorers.scorer import worth_repeating
from ragguard.storage.files.partfolder import MOST_REASONS, PartCounts, totals_of

ATTEMPTS = 3
"""How often a run that is not answered is asked, while the engine answers other questions."""
_PAUSES = RetrySchedule(first=1.0, longest=30.0)
_WAITS = "an engine does not answer: {}. It is waited for up to {:.0f} s; what is complete stays"
_PROBE_SECONDS = 60.0
_CLOSE_SECONDS = 5.0
_OWN_ID = "an id of its own; an earlier line of this part has it"

T = TypeVar("T")


class PartScorer:
    """Scores the parts of a job in this process, one after the other.

    Args:
        job: The settings.
    """

    def __init__(self, job: PartJob) -> None:
        self._job = job
        self._pipeline: ScoringPipeline | None = None
        self._identity = ""
        self._loads = job.loads("vllm", "hf")
        """True where this process has loaded an engine, so that one that is gone stays gone here."""

    async def answer(self, part: Part) -> PartCounts | RagguardError:
        """Scores a part and returns its counts, or the error in place of raising it: as one that can be pickled, which
        errors with arguments of their own cannot."""
        try:
            return await self.attempt(part)
        except Exception as error:  # noqa: BLE001 - it is raised in the driver
            kinds = (WorkerLost, EngineError, StoreError, RagguardError)
            found = next((kind for kind in kinds if isinstance(error, kind)), None)
            return found(str(error)) if found else RagguardError(f"a process failed: {describe(error)}")

    async def attempt(self, part: Part) -> PartCounts:
        """Scores a part, writes its results and returns its counts.

        A fault of a scorer, or of an engine that answers other runs, is a failure of its run. An engine that answers
        nothing is waited for, and after that ends the job with an EngineError; where this process has loaded it,
        WorkerLost says that another process is needed. Raises StoreError where the file cannot be read or the results
        cannot be written.
        """
        pipeline = self._pipeline = self._pipeline or self._job.scoring.build()
        # Without a deadline: a model that this process loads takes as long as it takes.
        self._identity = self._identity or await self._waited_for(partial(identity_digest, pipeline))
        rejected: list[str] = []
        score = partial(self._score, pipeline)
        async with aclosing(bounded(self._runs(part, rejected), score, self._job.concurrency)) as stream:
            scored = [one async for one in stream]
        in_order = [result for _, result in sorted(scored, key=itemgetter(0))]
        if in_order and not any(map(engine_answered, in_order)):
            failure = in_order[0].failures[0]
            raise self._silence(f"no run of a part was answered: {failure.error}: {failure.message}")
        totals = totals_of(in_order)
        totals.bytes, totals.rejected = part.end - part.start, len(rejected)
        counts = PartCounts(
            key=part.key(self._job.digest), source=part.source, start=part.start, end=part.end, totals=totals,
            identity=self._identity, rejected_lines=rejected[:MOST_REASONS],
        )  # fmt: skip
        await asyncio.to_thread(self._job.folder.write, counts, in_order)
        return counts

    async def aclose(self) -> None:
        """Closes the engines."""
        if self._pipeline is not None:
            await self._pipeline.aclose()

    async def _score(self, pipeline: ScoringPipeline, placed: tuple[int, Run]) -> tuple[int, ScoredRun]:
        """Scores the run of a line; what may be answered later is asked again once the models answer."""
        place, run = placed
        result = await evaluate(run, pipeline.results(run))
        for _ in range(ATTEMPTS - 1):
            if not any(failure.will_retry for failure in result.failures):
                break
            await self._waited_for(partial(_probe, pipeline))
            result = await evaluate(run, pipeline.results(run))
        return place, result

    async def _waited_for(self, question: Callable[[], Awaitable[T]]) -> T:
        """Returns the models' answer to a question; waits while they do not answer, and raises where that takes too
        long."""
        until = time.monotonic() + self._job.patience_s
        failures = 0
        while True:
            try:
                return await question()
            except EngineError as error:
                if not worth_repeating(error):
                    raise
                failures += 1
                wait = _PAUSES.wait(failures)
                gone = self._loads and not isinstance(error, EngineTimeout)
                if gone or time.monotonic() + wait > until:
                    raise self._silence(str(error)) from error
                NOTICES.warn("parts", _WAITS.format(error, self._job.patience_s))
            await asyncio.sleep(wait)

    def _silence(self, why: str) -> RagguardError:
        return WorkerLost(f"has an engine that is gone: {why}") if self._loads else EngineUnreachable(why)

    def _runs(self, part: Part, rejected: list[str]) -> Iterator[tuple[int, Run]]:
        """Yields the runs of a part, each id once, with the byte at which its line begins; adds what is wrong with
        other lines to `rejected`."""
        references = ReferenceTable(self._job.references)
        ids: set[str] = set()
        for line in read_part(part):
            if line.run is None:
                rejected.append(f"{part.source}: {line.problem}")
            elif line.run.id in ids:
                problem = RunFormatError(line.number, "id", line.run.id, _OWN_ID, unit="byte")
                rejected.append(f"{part.source}: {problem}")
            else:
                ids.add(line.run.id)
                yield line.number, references.given_to(line.run)


async def _probe(pipeline: ScoringPipeline) -> None:
    """Returns once all models have answered a new question, or have refused it."""
    try:
        await pipeline.probe(deadline=time.monotonic() + _PROBE_SECONDS)
    except Exception as error:
        if worth_repeating(error):
            raise


class Processes:
    """An executor of several processes on this machine.

    Args:
        workers: How many processes, 1 or more. Each sees all GPUs of the machine.
    """

    def __init__(self, workers: int) -> None:
        self.workers = whole_number("workers", workers, 1)
        self._started: list[ScoringProcess] | None = None
        self._lock = threading.Lock()

    def worker(self, job: PartJob) -> ScoringProcess:
        """Starts a process."""
        with self._lock:
            if self._started is None:
                raise WorkerLost("was to start after the end of its job")
            self._started.append(ScoringProcess(job))
            return self._started[-1]

    def __enter__(self) -> Processes:
        self._started = []
        return self

    def __exit__(self, *_: object) -> None:
        """Ends all processes, and waits until they have ended."""
        with self._lock:
            started, self._started = self._started or [], None
        for process in started:
            process.stop()
        for process in started:
            process.join()


class ScoringProcess:
    """A process that scores one part at a time; called from any thread, by one at a time."""

    def __init__(self, job: PartJob) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), name="ragguard-parts")
        # Ctrl-C reaches every process of the terminal; this one ends the others. A process that is interrupted while
        # it starts prints a traceback, so SIGINT is blocked in it: it inherits the signal mask of this thread. Starting
        # the resource tracker changes that mask, so the tracker is started before.
        resource_tracker.ensure_running()
        heard = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, heard)
        theirs.close()
        # Sent with the first part: `__call__` notices a process that has ended. With a job larger than a pipe,
        # `Process.start` would wait for ever for a process that ends before it has read the job.
        self._job: PartJob | None = job
        self._busy = False

    def __call__(self, part: Part) -> PartCounts:
        """Scores a part; raises WorkerLost where the process has ended."""
        self._busy = True
        try:
            if self._job is not None:
                self._connection.send(self._job)
                self._job = None
            self._connection.send(part)
            answer = self._connection.recv()
        except (EOFError, OSError):
            self._process.join(_CLOSE_SECONDS)
            raise WorkerLost(f"ended with exit code {self._process.exitcode}") from None
        self._busy = False
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, PartCounts)
        return answer

    def stop(self) -> None:
        """Ends the process at once, unless it waits for a part and can close its engine."""
        if self._busy:
            self._process.terminate()
        else:
            self._connection.close()

    def join(self) -> None:
        """Waits until the process has ended, and kills it where that takes too long."""
        self._process.join(_CLOSE_SECONDS)
        self._process.kill()
        self._process.join()


def _serve(connection: Connection) -> None:
    """Scores the parts that come through the connection; the body of a process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, name="ragguard-parent", daemon=True).start()
    asyncio.run(_work(connection))


async def _work(connection: Connection) -> None:
    """Takes the job, then parts, until the parent closes the connection."""
    with suppress(EOFError):
        async with aclosing(PartScorer(await asyncio.to_thread(connection.recv))) as scorer:
            while True:
                answer = await scorer.answer(await asyncio.to_thread(connection.recv))
                connection.send(answer)
                if isinstance(answer, WorkerLost):
                    os._exit(1)  # what is left of its engine may never end


def _end_with_parent() -> None:
    """Ends this process when its parent has ended, however that was."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)

"""Scores one part: its runs through a pipeline alone, without a store, and its results written whole or not at all.

This is the work of one process or actor, whatever started it:

    scorer = PartScorer(job)
    await scorer.start()                    # waits for the engine; raises what keeps it from working
    counts = await scorer.attempt(part)     # raises PartUnanswered: end this process, so that another one tries
    await scorer.aclose()
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import aclosing

from ragguard.errors import (
    EngineError,
    EngineUnreachable,
    PartUnanswered,
    RagguardError,
    RunFormatError,
    StoreError,
)
from ragguard.parts.part import Part, digest_of, read_part
from ragguard.parts.part_job import PartJob
from ragguard.records import Failure, Run, ScoredRun
from ragguard.runtime.circuit_breaker import RetrySchedule
from ragguard.runtime.faults import NOTICES, describe
from ragguard.runtime.limiter import bounded
from ragguard.scorers.evaluation import ReferenceTable, evaluate, with_references
from ragguard.scorers.pipeline import ScoringPipeline
from ragguard.scorers.scorer import worth_repeating
from ragguard.storage.files.partfolder import MOST_REASONS, PartCounts, PartTotals, totals_of

GIVE_UP_AFTER = 24
"""The number of runs in a row without an answer after which the engine is asked whether it is gone."""
_BEFORE_START = RetrySchedule(attempts=10_000, first=1.0, longest=30.0)
_AFTER_LOSS = RetrySchedule(attempts=4, first=5.0, longest=20.0)
_BETWEEN_PASSES = RetrySchedule(attempts=5, first=1.0, longest=30.0)
_WAITS = "an engine does not answer: {}. It is waited for up to {:.0f} s; what is complete stays"
_PROBE_SECONDS = 60.0
_OWN_ID = "an id of its own; an earlier line of this part has it"
LOST = "PartLost"
"""The error of runs whose part was begun as often as allowed, without a result."""


class PartScorer:
    """Scores the parts of a job in this process, one at a time or a few together.

    Args:
        job: The settings.
        waits: The waits between two passes over those runs of a part that were not answered, and between two questions
            that find out whether the engine answers anything.
    """

    def __init__(self, job: PartJob, *, waits: RetrySchedule = _BETWEEN_PASSES) -> None:
        self._job, self._waits = job, waits
        self._folder = job.folder
        self._pipeline = job.scoring.build()
        self._identity = ""

    async def start(self, *, after_loss: bool = False) -> None:
        """Loads or reaches the engine; waits up to `patience_s` for one that does not answer, and then raises.

        Args:
            after_loss: True where this process replaces a lost one. What that one held of a GPU is given back a little
                later, so that an engine which cannot be loaded is tried a few times.
        """
        until = time.monotonic() + self._job.patience_s
        for attempt in itertools.count(1):
            try:
                self._identity = await identity_digest(self._pipeline)
                return
            except EngineError as error:
                again = worth_repeating(error)
                wait = _BEFORE_START.wait(attempt) if again else _AFTER_LOSS.after(attempt)
                if wait is None or time.monotonic() + wait > until or not (again or after_loss):
                    raise
                NOTICES.warn("parts", _WAITS.format(error, self._job.patience_s))
            await asyncio.sleep(wait)

    async def attempt(self, part: Part, causes: Sequence[str] = ()) -> PartCounts:
        """Scores a part, writes its results and returns its counts.

        A fault of a scorer or an engine is a failure of its run. Where the part was begun too often, all its runs
        are failures, unless the engine answers nothing else either: then EngineUnreachable ends the job. A part that
        is complete already, and is scored again for its failures, then keeps its earlier result. Raises
        PartUnanswered where no run was answered any more: the process should end then. Raises StoreError where the
        file cannot be read or the results cannot be written.

        Args:
            part: The part.
            causes: Why the earlier attempts at the part ended, one text for each.
        """
        job, key = self._job, part.key(self._job.digest)
        started = time.monotonic()
        results = _Results(part)
        if len(causes) < job.attempts:
            await self._score(part, results)
        else:
            if (error := await self._silence()) is not None:
                raise EngineUnreachable(
                    f"the engine answers nothing, after {job.attempts} attempts at a part: {error}"
                )
            if (earlier := await asyncio.to_thread(self._folder.complete, key)) is not None:
                return earlier
            await asyncio.to_thread(self._give_up, part, causes[-1], results)
        counts = PartCounts(
            key=key, source=part.source, start=part.start, end=part.end, totals=results.totals,
            seconds=time.monotonic() - started, attempts=min(1 + len(causes), job.attempts), identity=self._identity,
            rejected_lines=results.rejected_lines,
        )  # fmt: skip
        return await asyncio.to_thread(self._folder.write, counts, results.in_order)

    async def aclose(self) -> None:
        """Closes the engines."""
        await self._pipeline.aclose()

    async def _score(self, part: Part, results: _Results) -> None:
        """Scores all runs, and those that were not answered again, as often as `waits` allows.

        Before runs become failures, the engine has to answer another question: one that was gone until then may be
        back, so that they are asked again.
        """

        left = await self._pass(_runs(part, self._job, results), results)
        for number in itertools.count(1):
            if not left:
                break
            wait = self._waits.after(number)
            if wait is None:
                await self._must_be_alive(results, left[-1][1])
            else:
                await asyncio.sleep(wait)
            left = await self._pass([(place, scored.run) for place, scored in left], results)
            if wait is None:
                if left:
                    await self._must_be_alive(results, left[-1][1])
                break
        for place, scored in left:
            results.scored[place] = scored

    async def _pass(self, runs: Iterable[tuple[int, Run]], results: _Results) -> list[tuple[int, ScoredRun]]:
        """Scores runs once; returns those with something that may be answered later."""
        left: list[tuple[int, ScoredRun]] = []
        in_a_row = 0

        async def score_run(item: tuple[int, Run]) -> tuple[int, ScoredRun]:
            place, run = item
            return place, await evaluate(run, self._pipeline.results(run))

        async with aclosing(bounded(runs, score_run, self._job.concurrency)) as stream:
            async for place, scored in stream:
                for_now = any(failure.will_retry for failure in scored.failures)
                if for_now:
                    left.append((place, scored))
                else:
                    results.scored[place] = scored
                answered = bool(scored.scores) or not for_now
                results.answered = results.answered or answered
                in_a_row = 0 if answered else in_a_row + 1
                if in_a_row >= GIVE_UP_AFTER:
                    await self._must_be_alive(results, scored)
                    in_a_row = 0
        return left

    async def _must_be_alive(self, results: _Results, unanswered: ScoredRun) -> None:
        """Raises PartUnanswered where no run of the part was answered so far, or a model answers no other question."""
        failure = next(failure for failure in unanswered.failures if failure.will_retry)
        cause = f"{failure.error}: {failure.message}"
        if not results.answered:
            raise PartUnanswered(f"no run of the part was answered: {cause}")
        if (error := await self._silence()) is not None:
            raise PartUnanswered(f"runs were not answered ({cause}), and nothing else is: {error}")

    async def _silence(self) -> EngineError | None:
        """Returns the error of a model that answers no question at all, for a while; None where all models answer."""
        for number in itertools.count(1):
            try:
                await self._pipeline.probe(deadline=time.monotonic() + _PROBE_SECONDS)
                return None
            except EngineError as error:
                wait = self._waits.after(number)
                if not worth_repeating(error):
                    return None
                if wait is None:
                    return error
            await asyncio.sleep(wait)
        return None

    def _give_up(self, part: Part, cause: str, results: _Results) -> None:
        """Records every run of a part as a failure, with the cause of the last attempt."""
        message = f"its part was begun {self._job.attempts} times without a result; the last time: {cause}"
        for place, run in _runs(part, self._job, results):
            failure = Failure("part", LOST, message, run_id=run.id, attempts=self._job.attempts)
            results.scored[place] = ScoredRun(run, [], [failure])


class _Results:
    """Collects what one attempt at a part has given: scored runs, and lines that cannot be read."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.scored: dict[int, ScoredRun] = {}
        """The runs that are done, by the byte at which each begins."""
        self.answered = False
        """True once a run was answered, with scores or with failures that stay."""
        self.rejected = 0
        self.rejected_lines: list[str] = []

    @property
    def in_order(self) -> list[ScoredRun]:
        """The runs that are done, in the order of their lines, whichever was scored first."""
        return [self.scored[place] for place in sorted(self.scored)]

    @property
    def totals(self) -> PartTotals:
        """The counts of the part."""
        totals = totals_of(self.scored.values())
        totals.bytes, totals.rejected = self.part.bytes, self.rejected
        return totals

    def reject(self, problem: Exception) -> None:
        """Counts a line that is not scored."""
        self.rejected += 1
        if len(self.rejected_lines) < MOST_REASONS:
            self.rejected_lines.append(f"{self.part.source}: {problem}")


def _runs(part: Part, job: PartJob, results: _Results) -> Iterator[tuple[int, Run]]:
    """Yields the runs of a part, each id once, with the bytes at which they begin; rejects the other lines."""
    references = ReferenceTable(job.references)
    ids: set[str] = set()
    for line in read_part(part):
        if line.problem is not None:
            results.reject(line.problem)
        elif line.run is not None and line.run.id in ids:
            results.reject(RunFormatError(line.number, "id", line.run.id, _OWN_ID, unit="byte"))
        elif line.run is not None:
            ids.add(line.run.id)
            yield line.number, with_references(line.run, references)


async def identity_digest(pipeline: ScoringPipeline) -> str:
    """Returns a digest of engine, judge, prompts and scorers; raises where a model cannot be reached."""
    return digest_of(dataclasses.asdict(await pipeline.identity()))


def portable(error: Exception) -> RagguardError:
    """Returns an error that can be pickled, which those with arguments of their own cannot; its class says whether the
    part is tried again, the engine is at fault, or something else ends the job."""
    for kind in (PartUnanswered, EngineError, StoreError, RagguardError):
        if isinstance(error, kind):
            return kind(str(error))
    return RagguardError(f"a process failed: {describe(error)}")

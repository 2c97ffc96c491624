"""Scoring that a caller waits for: ahead of the background, on the scorer's event loop, of redacted runs alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from ragguard.capture.handle import RunHandle
from ragguard.engines.layers.retry import failure_since
from ragguard.errors import EngineError, InvalidInput, RagguardError
from ragguard.records import FEEDBACK, Failure, Run, ScoredRun
from ragguard.runtime.faults import NOTICES
from ragguard.runtime.limiter import bounded
from ragguard.runtime.per_process import PerProcess
from ragguard.runtime.threads import BackgroundLoop
from ragguard.schema import checked_run
from ragguard.scorers.evaluation import evaluate
from ragguard.scorers.models import DEMANDED
from ragguard.scorers.pipeline import Inquiry, ScoringPipeline
from ragguard.scorers.plan import Plan
from ragguard.scorers.view import View
from ragguard.service.batches import Redactor
from ragguard.service.intake import Intake
from ragguard.service.run_scoring import RunScoring
from ragguard.storage.sqlite.store import Store

_REDACTED = (
    "advice is judged from what redact= leaves of questions, queries and passages, and not from what the model reads: "
    "where it takes out what was asked for, passages answer nothing, and the advice is to search on. (Logged once a "
    "process)"
)


class ScoringOnDemand:
    """Scores the runs that a caller names."""

    def __init__(
        self,
        store: Store,
        intake: Intake,
        *,
        loop: BackgroundLoop,
        pipeline: PerProcess[ScoringPipeline],
        scoring: RunScoring,
        redactor: Redactor | None,
        send_again: Callable[[], None] | None,
    ) -> None:
        """Takes `send_again`, which has runs sent once more of which something was said after their end; None where no
        service is to know of it."""
        self._store, self._intake, self._loop, self._send_again = store, intake, loop, send_again
        self._pipeline, self._scoring, self._redactor = pipeline, scoring, redactor

    async def evaluate_record(self, run: Run) -> ScoredRun:
        """Scores a run and stores the result."""
        self._intake.start()
        return await self._loop.within(self._scoring.bring_up_to_date(self._redacted(run), DEMANDED))

    async def add(self, runs: Iterable[Run]) -> dict[str, InvalidInput]:
        """Stores runs, which are due afterwards; returns the errors of those that were refused, by their ids."""
        self._intake.start()
        good: list[Run] = []
        refused: dict[str, InvalidInput] = {}
        for run in runs:
            try:
                good.append(self._redacted(run))
            except InvalidInput as error:
                refused[str(run.id)] = error
        written = await asyncio.wrap_future(self._intake.do(lambda: self._store.add_due(good)))
        return {**refused, **written}

    def feedback(self, run_id: Callable[[], str], thumb: str, note: str) -> Future[bool]:
        """Keeps what somebody says of a run, behind all that was captured before; the future says whether the run is
        there."""
        if thumb not in ("up", "down"):
            raise InvalidInput("thumb", thumb, "'up' or 'down'")
        if not isinstance(note, str):
            raise InvalidInput("note", note, "a text")
        kept = [note] if self._redactor is None else self._redactor.texts([note])
        said = {FEEDBACK: {"thumb": thumb, "note": "".join(kept or ())}}

        def keep() -> bool:
            if self._send_again is None:
                return self._store.add_metadata(self.stored_id(run_id()), said)
            known = self._store.add_metadata(self.stored_id(run_id()), said, due=True)
            self._send_again()
            return known

        return self._intake.do(keep)

    async def evaluate_captured(self, captured: RunHandle) -> ScoredRun:
        """Scores a captured run as it is stored, or as it was captured where the store does not have it."""
        self._intake.start()

        async def find() -> ScoredRun:
            run = await self._scoring.written(lambda: self._store.run(self.stored_id(captured.id)))
            return await self._scoring.bring_up_to_date(
                self._redacted(captured.record()) if run is None else run, DEMANDED
            )

        return await self._loop.within(find())

    async def evaluate_open(self, captured: RunHandle) -> ScoredRun:
        """Scores a run that has not ended, without storing anything."""
        known = captured.record()

        async def find() -> ScoredRun:
            run = await self.captured_run(captured.id, known) if captured.names.resumes else None
            run = self._redacted(known) if run is None else run
            return await evaluate(run, self._pipeline.get().results(run, priority=DEMANDED))

        return await self._loop.within(find())

    async def captured_run(self, run_id: str, known: Run | None) -> Run | None:
        """Returns a run as it was captured so far, redacted, open or not, with what is `known` of it where the store
        lacks that; None where nothing of it is kept or known."""
        self._intake.start()
        run = await self._scoring.written(lambda: self._store.run(self.stored_id(run_id)))
        if known is None:
            return run
        known = self._redacted(known)
        if run is None:
            return known
        return replace(
            run,
            question=run.question or known.question,
            sub_questions=run.sub_questions if known.sub_questions is None else known.sub_questions,
            references=run.references if known.references is None else known.references,
            answer=known.answer or run.answer,
        )

    def ask_about(
        self,
        run: Run,
        inquiries: Sequence[Inquiry],
        *,
        priority: int,
        deadline: float | None = None,
        redacted: bool = False,
    ) -> Coroutine[Any, Any, View]:
        """Returns a coroutine in which inquiries ask the models about a run, for the scorer's event loop; nothing is
        stored. With `redacted` the run comes from `captured_run`, and is not redacted again."""

        if self._redactor is not None:
            NOTICES.once("advice on redacted texts", _REDACTED)

        async def ask() -> View:
            about = run if redacted else self._redacted(run)
            return await self._pipeline.get().inquire(about, inquiries, priority=priority, deadline=deadline)

        return ask()

    def failure_since(self, since: float) -> EngineError | None:
        """Returns the error of the latest attempt since then (on the monotonic clock) that is being repeated, of a call
        to any of the models; None where there is none."""
        built = self._pipeline.made
        failed = [failure_since(engine, since) for engine in (built.engines if built is not None else ())]
        return next((error for error in failed if error is not None), None)

    async def evaluate_each(
        self, runs: Iterable[Run] | AsyncIterable[Run], concurrency: int
    ) -> AsyncGenerator[ScoredRun, None]:
        """Scores runs, at most `concurrency` at once, and yields each as soon as it is done."""

        async def one(run: Run) -> ScoredRun:
            try:
                return await self.evaluate_record(run)
            except RagguardError as error:
                named = run if isinstance(run, Run) else Run()
                return ScoredRun(
                    named, [], [Failure("run", type(error).__name__, str(error), run_id=named.id)]
                )

        async for scored in bounded(runs, one, concurrency):
            yield scored

    async def plan(self, run: Run) -> Plan:
        """Returns the plan of scoring the run, without asking any model."""
        return await self._loop.within(self._pipeline.get().plan(self._redacted(run)))

    async def plan_captured(self, captured: RunHandle) -> Plan:
        """Returns the plan of scoring a captured run, open or not, with the steps before those of this process."""
        known = captured.record()

        async def find() -> Plan:
            run = await self.captured_run(captured.id, known)
            return await self._pipeline.get().plan(self._redacted(known) if run is None else run)

        return await self._loop.within(find())

    def stored_id(self, run_id: str) -> str:
        """Returns the id under which a run is kept: redaction may have changed it."""
        return run_id if self._redactor is None else self._redactor.id(run_id)

    def _redacted(self, run: Run) -> Run:
        run = checked_run(run)
        return run if self._redactor is None else self._redactor.run(run)

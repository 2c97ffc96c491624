"""Scoring that a caller waits for: ahead of the background, on the scorer's event loop, of redacted runs alone."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from ragguard.capture.handle import RunHandle
from ragguard.errors import EngineError, InvalidInput, RagguardError
from ragguard.records import FEEDBACK, Failure, Run, ScoredRun
from ragguard.runtime.limiter import bounded
from ragguard.runtime.threads import BackgroundLoop
from ragguard.schema import checked_run
from ragguard.scorers.evaluation import evaluate
from ragguard.scorers.models import DEMANDED
from ragguard.scorers.pipeline import Inquiry
from ragguard.scorers.plan import Plan
from ragguard.scorers.view import View
from ragguard.service.run_scoring import RunScoring


class ScoringOnDemand:
    """Scores the runs that a caller names."""

    def __init__(
        self, scoring: RunScoring, loop: BackgroundLoop, send_again: Callable[[], None] | None
    ) -> None:
        """Takes `send_again`, which has runs sent once more of which something was said after their end; None where no
        service is to know of it."""
        self._scoring, self._loop, self._send_again = scoring, loop, send_again
        self._store, self._redactor = scoring.store, scoring.redactor

    async def evaluate(self, run: Run | RunHandle) -> ScoredRun:
        """Scores a run and stores the result; of a captured run that is open, what is known so far, without storing
        anything."""
        known = self._record(run)

        async def work() -> ScoredRun:
            if not isinstance(run, RunHandle):
                return await self._scoring.bring_up_to_date(known, DEMANDED)
            about = await self._captured(run.id, known)
            if run.closed:
                return await self._scoring.bring_up_to_date(about, DEMANDED)
            return await evaluate(about, self._scoring.pipeline.get().results(about, priority=DEMANDED))

        return await self._loop.within(work())

    async def plan(self, run: Run | RunHandle) -> Plan:
        """Returns the plan of scoring the run as it stands, without asking any model."""
        known = self._record(run)

        async def work() -> Plan:
            about = await self._captured(run.id, known) if isinstance(run, RunHandle) else known
            return await self._scoring.pipeline.get().plan(about)

        return await self._loop.within(work())

    async def evaluate_each(
        self, runs: Iterable[Run] | AsyncIterable[Run], concurrency: int
    ) -> AsyncGenerator[ScoredRun, None]:
        """Scores runs, at most `concurrency` at once, and yields each as soon as it is done."""

        async def one(run: Run) -> ScoredRun:
            try:
                return await self.evaluate(run)
            except RagguardError as error:
                named = run if isinstance(run, Run) else Run()
                return ScoredRun(
                    named, [], [Failure("run", type(error).__name__, str(error), run_id=named.id)]
                )

        async for scored in bounded(runs, one, concurrency):
            yield scored

    async def add(self, runs: Iterable[Run]) -> dict[str, InvalidInput]:
        """Stores runs, which are due afterwards; returns the errors of those that were refused, by their ids."""
        good: list[Run] = []
        refused: dict[str, InvalidInput] = {}
        for run in runs:
            try:
                good.append(self._redacted(run))
            except InvalidInput as error:
                refused[str(run.id)] = error
        return {**refused, **await self._scoring.written(lambda: self._store.add_due(good))}

    def feedback(self, run_id: Callable[[], str], thumb: str, note: str) -> Future[bool]:
        """Keeps what somebody says of a run, behind all that was captured before; the future says whether the run is
        there."""
        if thumb not in ("up", "down"):
            raise InvalidInput("thumb", thumb, "'up' or 'down'")
        if not isinstance(note, str):
            raise InvalidInput("note", note, "a text")
        said = {FEEDBACK: {"thumb": thumb, "note": "".join(self._redactor.texts([note]) or ())}}

        def keep() -> bool:
            again = self._send_again
            known = self._store.add_metadata(self.stored_id(run_id()), said, due=again is not None)
            if again is not None:
                again()
            return known

        return self._scoring.writer.do(keep)

    async def captured_run(self, run_id: str, known: Run | None) -> Run | None:
        """Returns a run as it was captured so far, redacted, open or not, with what is `known` of it where the store
        lacks that; None where nothing of it is kept or known."""
        if known is not None:
            return await self._captured(run_id, self._redacted(known))
        return await self._scoring.written(lambda: self._store.run(self.stored_id(run_id)))

    async def _captured(self, run_id: str, known: Run) -> Run:
        run = await self._scoring.written(lambda: self._store.run(self.stored_id(run_id)))
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
        about = run if redacted else self._redacted(run)
        return self._scoring.pipeline.get().inquire(about, inquiries, priority=priority, deadline=deadline)

    def failure_since(self, since: float) -> EngineError | None:
        """Returns what `RunScoring.failure_since` does."""
        return self._scoring.failure_since(since)

    def stored_id(self, run_id: str) -> str:
        """Returns the id under which a run is kept: redaction may have changed it."""
        return self._redactor.id(run_id)

    def _record(self, run: Run | RunHandle) -> Run:
        return self._redacted(run.record() if isinstance(run, RunHandle) else run)

    def _redacted(self, run: Run) -> Run:
        return self._redactor.run(checked_run(run))

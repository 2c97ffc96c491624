"""Scores one run: finds references, asks the scorers, stores the results and delivers them to sinks.

Failures are data: whatever goes wrong with an engine, a scorer or a user's function ends as a record,
with another attempt where that may help.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple, TypeVar

from ragguard.errors import EngineError, PromptTooLong
from ragguard.records import Failure, Run, Score, ScoredRun
from ragguard.runtime.deadline import now_ns
from ragguard.runtime.faults import NOTICES, describe
from ragguard.runtime.per_process import PerProcess
from ragguard.scorers.evaluation import evaluate, find_references
from ragguard.scorers.pipeline import Identity, ScoringPipeline
from ragguard.service.batches import Redactor
from ragguard.service.configuration import Configuration
from ragguard.service.delivery import Delivery
from ragguard.service.intake import Intake
from ragguard.storage.sqlite.ledger import Due, ScoringOutcome
from ragguard.storage.sqlite.store import Store
from ragguard.text.secret_filter import logger

T = TypeVar("T")

_log = logger("ragguard")

_CAUSE_CHARACTERS = 240


class ScoringAttempt(NamedTuple):
    """The result of one attempt at scoring a run."""

    scored: ScoredRun
    answered: bool
    """False where no engine answered."""
    again: bool
    """True where the run is to be scored again."""


class RunScoring:
    """Scores runs, any number at once, and each run by one task at a time."""

    def __init__(
        self,
        settings: Configuration,
        store: Store,
        writer: Intake,
        *,
        pipeline: PerProcess[ScoringPipeline],
        delivery: Delivery,
        progress: threading.Condition,
        redactor: Redactor | None,
    ) -> None:
        self._references, self._retry = settings.find_references, settings.retry
        self._store, self._writer, self._redactor = store, writer, redactor
        self._pipeline, self._delivery, self._progress = pipeline, delivery, progress
        self.tally = FailureTally()
        self._busy: dict[str, asyncio.Event] = {}
        self._delivering: dict[str, asyncio.Task[None]] = {}
        """The task that delivers a run on which a scoring task still works."""

    def in_progress(self, run_id: str) -> asyncio.Event | None:
        """Returns the event that is set once the task which works on the run is done; None where no task does."""
        return self._busy.get(run_id)

    @contextmanager
    def exclusively(self, run_id: str) -> Iterator[None]:
        """Keeps other tasks from a run until the block has worked on it and the sinks have taken what it delivers, and
        gives back its claim afterwards."""
        self._busy[run_id] = done = asyncio.Event()
        try:
            yield
        finally:
            delivering = self._delivering.pop(run_id, None)
            if delivering is None:
                self._let_go(run_id, done)
            else:
                delivering.add_done_callback(lambda _: self._let_go(run_id, done))

    def _let_go(self, run_id: str, done: asyncio.Event) -> None:
        self._busy.pop(run_id, None)
        done.set()
        self._store.release(run_id)
        with self._progress:
            self._progress.notify_all()

    async def bring_up_to_date(self, run: Run, priority: int) -> ScoredRun:
        """Scores a run unless the same settings have scored it already; returns all its scores and failures."""
        while (busy := self._busy.get(run.id)) is not None:
            await busy.wait()
        # From here on a caller that asks for the same run waits, and then finds its scores in the store.
        with self.exclusively(run.id):
            identity = await self._identity()
            mark = _mark(identity)
            submission = await self.written(lambda: self._store.submit(run, mark))
            if identity is None or not submission.scored:
                return (await self.attempt(run, submission.due, priority, identity)).scored
            scores = await self.written(lambda: self._store.scores(run.id))
            failures = await self.written(lambda: self._store.failures(run.id))
            return ScoredRun(run, _latest(scores, identity), failures)

    async def attempt(
        self, run: Run, due: Due, priority: int, identity: Identity | None = None
    ) -> ScoringAttempt:
        """Scores a run, stores the result and starts to deliver it. The run must be held by `exclusively`."""
        identity = identity or await self._identity()
        found, unfound = await self.find_references(run)
        if found:
            run = replace(run, references=found)
        scored = await evaluate(run, self._pipeline.get().results(run, priority=priority))
        if scored.scores or not all(failure.will_retry for failure in scored.failures):
            identity = identity or await self._identity()
        uncertain = {(one.scorer, one.step_id) for one in scored.failures if one.will_retry}
        attempts = due.attempts + 1
        wait = self._retry.after(attempts) if any(failure.will_retry for failure in scored.failures) else None
        failures = [
            replace(one, attempts=attempts, will_retry=one.will_retry and wait is not None, run_id=run.id)
            for one in (*unfound, *scored.failures)
        ]
        if self._redactor is not None:
            failures = self._redactor.failures(failures)
        self.tally.note(failures)
        scored = replace(scored, failures=failures)
        outcome = ScoringOutcome(
            run.id, _mark(identity), due.revision, scores=scored.scores, failures=failures,
            retry_ns=None if wait is None else now_ns() + int(wait * 1e9), emit=bool(self._delivery),
            attempts=attempts, references=found, uncertain=uncertain,
        )  # fmt: skip
        empty = not any(step.candidates or step.passages for step in run.steps)
        new = await self.written(lambda: self._store_outcome(outcome, empty=empty))
        if self._delivery and (new or outcome.says_something):
            await self.deliver(replace(scored, scores=new))
        answered = bool(scored.scores) or not failures or not all(one.will_retry for one in failures)
        return ScoringAttempt(scored, answered, wait is not None)

    async def deliver(self, scored: ScoredRun) -> None:
        """Starts to deliver a scored run to the sinks; once they have taken it, that is noted. The run must be held by
        `exclusively`."""
        run_id = scored.run.id
        self._delivering[run_id] = await self._delivery.start(
            scored, lambda: self.written(lambda: self._store.emitted(run_id))
        )

    async def written(self, work: Callable[[], T]) -> T:
        """Calls a function on the writer's thread and returns its result."""
        return await asyncio.wrap_future(self._writer.do(work))

    def _store_outcome(self, outcome: ScoringOutcome, *, empty: bool) -> list[Score]:
        """Stores and counts an outcome, on the writer's thread, so that `flush` sees both or neither."""
        new = self._store.store_outcome(outcome)
        if outcome.retry_ns is None:
            said = "runs_scored" if outcome.scores else "runs_unscored"
            self._store.count("runs_failed" if outcome.failures else said)
            if empty:
                self._store.count("runs_empty")
        return new

    async def _identity(self) -> Identity | None:
        """Returns the identity of the settings; None where an engine cannot be reached."""
        try:
            return await self._pipeline.get().identity()
        except Exception as error:  # noqa: BLE001 - scoring records the same error as a failure
            _log.debug("no identity yet: %s", describe(error))
            return None

    async def find_references(self, run: Run) -> tuple[list[str] | None, list[Failure]]:
        """Returns the redacted references of a run that has none of its own, and the failures of finding them."""
        if self._references is None:
            return None, []
        found, failures = await find_references(self._references, run)
        if found and self._redactor is not None:
            found = self._redactor.texts(found)
        return found, failures


def _mark(identity: Identity | None) -> str:
    """Returns a digest of the settings; '' where they are not known."""
    return "" if identity is None else hashlib.sha256(repr(identity).encode("utf-8")).hexdigest()[:16]


def _latest(scores: Sequence[Score], identity: Identity) -> list[Score]:
    """Returns the latest score of each kind that these settings gave: with the references that are known now."""
    ours = {(one.scorer, one.version) for one in identity.scorers}
    latest = {score.key[:-1]: score for score in scores if (score.scorer, score.version) in ours}
    return list(latest.values())


def _names(kind: type[EngineError]) -> Iterable[str]:
    yield kind.__name__
    for special in kind.__subclasses__():
        yield from _names(special)


def _is_of_engine(failure: Failure) -> bool:
    """Returns True where an engine failed, and not one prompt, one reply or one passage."""
    return failure.error in {*_names(EngineError)} - {PromptTooLong.__name__}


class FailureTally:
    """The latest failure that is tried again, and the latest one that is not."""

    def __init__(self) -> None:
        self.for_now = self.for_good = ""

    def note(self, failures: Sequence[Failure]) -> None:
        """Takes the failures of one attempt at one run; warns where an engine failed, each kind once a minute."""
        for failure in failures:
            cause = f"{failure.scorer}, {failure.error}: {failure.message}"
            if len(cause) > _CAUSE_CHARACTERS:
                cause = cause[: _CAUSE_CHARACTERS - 3] + "..."
            if failure.will_retry:
                self.for_now = cause
            else:
                self.for_good = cause
            if _is_of_engine(failure):
                _warn(failure)


def _warn(failure: Failure) -> None:
    goes_on = (
        "it is tried again, and waits until then"
        if failure.will_retry
        else (
            "it is not tried again by itself: `ragguard score STORE --store STORE` asks for what is missing"
        )
    )
    NOTICES.warn(
        f"scoring: {failure.error}, {failure.will_retry}",
        f"the run {failure.run_id!r} could not be scored by {failure.scorer}; {goes_on}. {failure.error}: "
        f"{failure.message}",
    )

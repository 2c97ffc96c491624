"""Scores one run, for the worker or for a caller that waits: finds references, asks the scorers, stores the results and
delivers them to sinks. A caller's run is redacted first and comes ahead of the background.

Failures are data: whatever goes wrong with an engine, a scorer or a user's function ends as a record, with another
attempt where that may help.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from textwrap import shorten
from typing import Any, NamedTuple, TypeVar

from ragguard.capture.handle import RunHandle
from ragguard.engines.layers.retry import failure_since, open_circuits
from ragguard.errors import EngineError, InvalidInput, PromptTooLong, RagguardError, UnfitText
from ragguard.records import FEEDBACK, Failure, Run, ScoredRun
from ragguard.runtime.circuit_breaker import CircuitBreaker
from ragguard.runtime.deadline import now_ns
from ragguard.runtime.faults import NOTICES, describe
from ragguard.runtime.limiter import bounded
from ragguard.runtime.per_process import PerProcess
from ragguard.runtime.threads import BackgroundLoop, LoopSignal
from ragguard.schema import checked_run
from ragguard.scorers.asker import DEMANDED, SCORING
from ragguard.scorers.pipeline import Identity, ScoringPipeline, engine_answered, evaluate
from ragguard.scorers.plan import Plan
from ragguard.scorers.question import Ask
from ragguard.scorers.references import find_references
from ragguard.scorers.view import View
from ragguard.service.awaited_store import AwaitedStore
from ragguard.service.configuration import Configuration
from ragguard.service.delivery import Delivery
from ragguard.storage.preparation import Redactor
from ragguard.storage.sqlite.ledger import Claim, ScoringOutcome
from ragguard.text.plain import counted
from ragguard.text.secret_filter import logger

T = TypeVar("T")

_log = logger("ragguard")

_CAUSE_CHARACTERS = 240
_LOOK_SECONDS = 0.5
"""The seconds between two looks at a run that another process scores."""
_OF_ENGINE = {kind.__name__ for kind in EngineError.__subclasses__()} - {PromptTooLong.__name__}
"""The errors by which an engine failed, and not one prompt, one reply or one passage."""
_MAY_PASS = _OF_ENGINE - {UnfitText.__name__}
"""Errors after which the same question may be answered another time."""


def is_chosen(run_id: str, share: float) -> bool:
    """Returns True for a share of the runs, which is scored without being asked for: always the same runs."""
    # Not the hash that sampling uses: of the runs that it lets through, the same share is chosen.
    digest = hashlib.sha256(run_id.encode("utf-8", "replace")).digest()
    return int.from_bytes(digest[:4], "big") < share * 2**32


@dataclass(frozen=True, slots=True)
class ScoringTools:
    """The objects that scoring uses, of open runs and of those that have ended."""

    settings: Configuration
    store: AwaitedStore
    pipeline: PerProcess[ScoringPipeline]
    delivery: Delivery
    redactor: Redactor

    async def references_of(self, run: Run) -> tuple[list[str] | None, list[Failure]]:
        """Returns the redacted references of a run that has none of its own, and the failures of finding them."""
        if (find := self.settings.find_references) is None:
            return None, []
        references, failures = await find_references(find, run)
        return self.redactor.texts(references), failures


class WorkedOff(NamedTuple):
    """The result of working off a claimed run."""

    answered: bool = True
    """False where no engine answered."""
    due_again: bool = False
    """True where the run is due again, or may be."""


class RunScoring:
    """Scores runs, any number at once, and each run by one task at a time."""

    def __init__(self, tools: ScoringTools, *, loop: BackgroundLoop, due: LoopSignal) -> None:
        """Sets `due` when runs were stored that the worker has to score."""
        self._settings, self._store, self._references_of = tools.settings, tools.store, tools.references_of
        self._pipeline, self._delivery, self._redactor = tools.pipeline, tools.delivery, tools.redactor
        self._loop, self._due = loop, due
        self.progress = threading.Condition()
        """Notified when a run was scored or released."""
        self.cause_retrying = self.cause_failed = ""
        """The latest failure that is tried again, and the latest one that is not."""
        self._busy: dict[str, asyncio.Event] = {}
        """The runs that a task works on, each with the event that is set once it is done."""
        self._scored_by_worker: dict[str, int] | None = None
        """The time at which the worker began with each run that it scored while a caller has runs scored; None if no
        caller has."""
        self._delivering: dict[str, asyncio.Task[None]] = {}
        """The task that delivers a run on which a scoring task still works."""

    @contextmanager
    def _exclusively(self, run_id: str) -> Iterator[None]:
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
        with self.progress:
            self.progress.notify_all()

    async def evaluate(self, run: Run | RunHandle) -> ScoredRun:
        """Scores a run and stores the result; of a captured run that is open, what is known so far, without storing
        anything."""
        known = self._record(run)

        async def work() -> ScoredRun:
            about = await self._captured(run.id, known) if isinstance(run, RunHandle) else known
            if not run.closed if isinstance(run, RunHandle) else run.status == "open":
                return await evaluate(about, self._pipeline.get().results(about, priority=DEMANDED))
            return await self._bring_up_to_date(about)

        return await self._loop.within(work())

    async def plan(self, run: Run | RunHandle) -> Plan:
        """Returns the plan of scoring the run as it stands, without asking any model."""
        known = self._record(run)

        async def work() -> Plan:
            about = await self._captured(run.id, known) if isinstance(run, RunHandle) else known
            return await self._pipeline.get().plan(about)

        return await self._loop.within(work())

    async def evaluate_each(
        self, runs: Iterable[Run] | AsyncIterable[Run], concurrency: int
    ) -> AsyncGenerator[ScoredRun, None]:
        """Scores runs, at most `concurrency` at once, and yields each as soon as it is done. A run that an earlier
        process left and the worker scores meanwhile counts as scored now."""
        self._scored_by_worker = {}

        async def one(run: Run) -> ScoredRun:
            try:
                return await self.evaluate(run)
            except RagguardError as error:
                named = run if isinstance(run, Run) else Run()
                failure = Failure("run", type(error).__name__, str(error), run_id=named.id)
                return ScoredRun(named, [], [failure])

        try:
            async for scored in bounded(runs, one, concurrency):
                yield scored
        finally:
            self._scored_by_worker = None

    async def add(self, runs: Iterable[Run], *, amend: bool = False) -> dict[str, InvalidInput]:
        """Stores runs that were captured elsewhere, which are due afterwards; returns the errors of those that were
        refused, by their ids."""
        good: list[Run] = []
        refused: dict[str, InvalidInput] = {}
        for run in runs:
            try:
                good.append(self._record(run))
            except InvalidInput as error:
                refused[str(run.id)] = error
        refused |= await self._store.add_due(good, amend=amend)
        self._due.set()
        return refused

    def feedback(self, run_id: Callable[[], str], thumb: str, note: str) -> Future[bool]:
        """Keeps what somebody says of a run, behind all that was captured before, and has the run sent once more where
        it goes to a service; the future says whether the run is there."""
        if thumb not in ("up", "down"):
            raise InvalidInput("thumb", thumb, "'up' or 'down'")
        if not isinstance(note, str):
            raise InvalidInput("note", note, "a text")
        said = {FEEDBACK: {"thumb": thumb, "note": "".join(self._redactor.texts([note]) or ())}}
        forwards = self._settings.forwards
        kept = self._store.add_metadata(lambda: self._redactor.id(run_id()), said, due=forwards)
        if forwards:
            kept.add_done_callback(lambda _: self._due.set())
        return kept

    async def captured_run(self, run_id: str, known: Run | None) -> Run | None:
        """Returns a run as it was captured so far, redacted, open or not, with what is `known` of it where the store
        lacks that; None where nothing of it is kept or known."""
        if known is not None:
            return await self._captured(run_id, self._record(known))
        return await self._store.run(self._redactor.id(run_id))

    async def _captured(self, run_id: str, known: Run) -> Run:
        run = await self._store.run(self._redactor.id(run_id))
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
        inquiry: Callable[[View, Ask], Coroutine[Any, Any, T]],
        *,
        priority: int,
        deadline: float | None = None,
        redacted: bool = False,
    ) -> Coroutine[Any, Any, T]:
        """Returns a coroutine in which a function asks the models about a run, for the scorer's event loop; nothing is
        stored. With `redacted` the run comes from `captured_run`, and is not redacted again."""
        about = run if redacted else self._record(run)
        return self._pipeline.get().inquire(about, inquiry, priority=priority, deadline=deadline)

    def _record(self, run: Run | RunHandle) -> Run:
        return self._redactor.run(checked_run(run.record() if isinstance(run, RunHandle) else run))

    async def _bring_up_to_date(self, run: Run) -> ScoredRun:
        """Scores a run unless the same settings have scored it already; returns all its scores and failures."""
        while (busy := self._busy.get(run.id)) is not None:
            await busy.wait()
        # From here on a caller that asks for the same run waits, and then finds its scores in the store.
        with self._exclusively(run.id):
            identity = await self._identity()
            while other := (claim := await self._store.submit(run, _mark(identity))).elsewhere:
                NOTICES.warn(
                    f"scored by {other.name}",
                    f"{counted(other.runs, 'run', ('is', 'are'))} being scored by another process (pid {other.name}): "
                    "left to it, and waited for",
                )
                await asyncio.sleep(_LOOK_SECONDS)
            if identity is None or claim.score:
                return await self._attempt(claim, DEMANDED)
            scores, failures = await self._store.results(run.id)
            ours = {(one.scorer, one.version) for one in identity.scorers}
            # The latest of each kind: with the references that are known now.
            latest = {one.key[:-1]: one for one in scores if (one.scorer, one.version) in ours}
            began = (self._scored_by_worker or {}).pop(run.id, 0)
            return ScoredRun(run, [*latest.values()], failures, began)

    async def work_off(self, claim: Claim) -> WorkedOff:
        """Scores or delivers a run that the worker has claimed, or leaves it unscored."""
        run = claim.run
        if (busy := self._busy.get(run.id)) is not None:
            await busy.wait()  # a caller is scoring the same run; work that is still due is claimed again
            return WorkedOff(due_again=True)
        with self._exclusively(run.id):
            if not claim.score:
                await self._deliver(ScoredRun(run, claim.unsent, []))
            elif claim.attempts or is_chosen(run.id, self._settings.score_rate):
                scored = await self._attempt(claim, SCORING)
                if self._scored_by_worker is not None:
                    self._scored_by_worker[run.id] = scored.started_ns
                return WorkedOff(engine_answered(scored), any(one.will_retry for one in scored.failures))
            else:
                await self._keep_unscored(claim)
        return WorkedOff()

    async def _keep_unscored(self, claim: Claim) -> None:
        """Leaves a captured run unscored; sinks still get the run, and it may be scored later."""
        emit = bool(self._delivery)
        await self._store.keep_unscored(claim, emit=emit)
        if self._delivery:
            await self._deliver(ScoredRun(claim.run, [], []))

    async def _attempt(self, claim: Claim, priority: int) -> ScoredRun:
        """Scores a run, stores the result and starts to deliver it. The run must be held by `_exclusively`."""
        run = claim.run
        references, not_found = await self._references_of(run)
        if references:
            run = replace(run, references=references)
        scored = await evaluate(run, self._pipeline.get().results(run, priority=priority))
        identity = await self._identity() if engine_answered(scored) else None
        uncertain = {(one.scorer, one.step_id) for one in scored.failures if one.will_retry}
        attempts = claim.attempts + 1
        wait = self._settings.retry.after(attempts) if uncertain else None
        failures = self._redactor.failures(
            replace(one, attempts=attempts, will_retry=one.will_retry and wait is not None, run_id=run.id)
            for one in (*not_found, *scored.failures)
        )
        self._note(failures)
        scored = replace(scored, failures=failures)
        outcome = ScoringOutcome(
            run.id, _mark(identity), claim.revision, scores=scored.scores, failures=failures,
            retry_ns=None if wait is None else now_ns() + int(wait * 1e9), emit=bool(self._delivery),
            attempts=attempts, references=references, uncertain=uncertain,
            finished=not any(one.error in _MAY_PASS for one in failures),
        )  # fmt: skip
        new = await self._store.store_outcome(outcome)
        if self._delivery and (new or outcome.says_something):
            await self._deliver(replace(scored, scores=new))
        return scored

    async def _deliver(self, scored: ScoredRun) -> None:
        """Starts to deliver a scored run to the sinks; once they have taken it, that is noted. The run must be held by
        `_exclusively`."""
        run_id = scored.run.id
        self._delivering[run_id] = await self._delivery.start(scored, lambda: self._store.emitted(run_id))

    def open_circuits(self) -> list[CircuitBreaker]:
        """Returns the circuit breakers that are open around any of the models."""
        built = self._pipeline.made
        return [] if built is None else open_circuits(built.engines)

    def failure_since(self, since: float) -> EngineError | None:
        """Returns the error of the latest attempt since then (on the monotonic clock) that is being repeated, of a call
        to any of the models; None where there is none."""
        built = self._pipeline.made
        failed = [failure_since(engine, since) for engine in (built.engines if built is not None else ())]
        return next((error for error in failed if error is not None), None)

    async def _identity(self) -> Identity | None:
        """Returns the identity of the settings; None where an engine cannot be reached."""
        try:
            return await self._pipeline.get().identity()
        except Exception as error:  # noqa: BLE001 - scoring records the same error as a failure
            _log.debug("no identity yet: %s", describe(error))
            return None

    def _note(self, failures: Sequence[Failure]) -> None:
        """Keeps the latest causes; warns where an engine failed, each kind once a minute."""
        for failure in failures:
            cause = shorten(f"{failure.scorer}, {failure.error}: {failure.message}", _CAUSE_CHARACTERS)
            goes_on = "it will be tried again, and waits until then"
            if failure.will_retry:
                self.cause_retrying = cause
            else:
                self.cause_failed = cause
                goes_on = (
                    "it is not tried again by itself: `ragguard score STORE --store STORE` asks once more"
                )
                if failure.error not in _MAY_PASS:
                    goes_on = "it is not tried again: another model may judge these texts"
            if failure.error in _OF_ENGINE:
                NOTICES.warn(
                    f"scoring: {failure.error}, {failure.will_retry}",
                    f"the run {failure.run_id!r} could not be scored by {failure.scorer}; {goes_on}. "
                    f"{failure.error}: {failure.message}",
                )


def _mark(identity: Identity | None) -> str:
    """Returns a digest of the settings; '' where they are not known."""
    return "" if identity is None else hashlib.sha256(repr(identity).encode("utf-8")).hexdigest()[:16]

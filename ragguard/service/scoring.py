"""Scores one run at a time from the store and writes back: references, scores, failures, and delivery to sinks.

Failures are data: whatever goes wrong with an engine, a scorer or a user's function ends as a record,
with another attempt where that may help.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import math
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol, TypeAlias, TypeVar

from ragguard.capture.handle import references_of
from ragguard.errors import InvalidInput, RagguardError
from ragguard.records import Failure, Run, Score, ScoredRun
from ragguard.runtime.clock import now_ns
from ragguard.runtime.faults import describe
from ragguard.runtime.retry import RetrySchedule
from ragguard.scorers.pipeline import Identity
from ragguard.scorers.plan import Plan
from ragguard.secrets import logger, without_secrets
from ragguard.service.delivery import Delivery
from ragguard.service.failures import FailureTally
from ragguard.service.redaction import Redactor
from ragguard.store.claims import Claim
from ragguard.store.ledger import Due, ScoringOutcome
from ragguard.store.store import Store

T = TypeVar("T")
Found: TypeAlias = str | Sequence[str] | None
References: TypeAlias = Callable[[str], Found | Awaitable[Found]]
"""Returns the answers to a question that are known to be right."""

_log = logger("ragguard")


class Pipeline(Protocol):
    """Scores a run, as `scorers.pipeline.ScoringPipeline` does."""

    async def score(self, run: Run, *, priority: int = 10) -> Sequence[Score | Failure]:
        """Returns all scores of a run, and a failure for each that could not be computed."""
        ...

    async def plan(self, run: Run) -> Plan:
        """Returns what scoring the run would ask the engines."""
        ...

    async def identity(self) -> Identity:
        """Returns what is equal for settings that give equal scores; raises where an engine cannot be reached."""
        ...


class Do(Protocol):
    """Has a function called on the store's writer thread."""

    def __call__(self, work: Callable[[], T], /, *, hurry: bool = True) -> Future[T]: ...


class Scoring:
    """Scores runs, any number concurrently, each of them in one place at a time."""

    def __init__(
        self,
        store: Store,
        do: Do,
        pipeline: Callable[[], Pipeline],
        delivery: Delivery,
        *,
        references: References | None = None,
        redactor: Redactor | None = None,
        retry: RetrySchedule | None = None,
        settled: Callable[[], None] = lambda: None,
        tally: FailureTally | None = None,
        score_rate: float = 1.0,
    ) -> None:
        """`score_rate` is the share of the captured runs that are scored without being asked for."""
        self._score_rate = score_rate
        self._tally = tally or FailureTally()
        self._store, self._do, self._pipeline, self._delivery = store, do, pipeline, delivery
        self._references, self._redactor, self._retry = references, redactor, retry or RetrySchedule()
        self._settled = settled
        self.begin()

    def begin(self) -> None:
        """Starts with nothing in progress: at first, and in a forked child."""
        self._busy: dict[str, asyncio.Event] = {}

    async def work(self, claim: Claim, priority: int) -> bool:
        """Scores or delivers a claimed run, whichever is due, and releases it; False where no engine answered."""
        if (busy := self._busy.get(claim.run.id)) is not None:
            await busy.wait()  # a caller has just asked for the same run; what is still due is claimed again
            return True
        with self._under_way(claim.run.id):
            if claim.due.score and not claim.due.attempts and not self.chooses(claim.run.id):
                await self._keep_unscored(claim)
                return True
            if claim.due.score:
                _, answered = await self._score(claim.run, claim.due, priority, await self._identity())
                return answered
            await self._deliver(ScoredRun(claim.run, claim.unsent, []))
            return True

    def chooses(self, run_id: str) -> bool:
        """Whether a captured run is scored without being asked for: always the same for the same id."""
        if self._score_rate >= 1.0:
            return True
        # Not the hash that sampling uses: of the runs that it lets through, the same share is chosen.
        digest = hashlib.sha256(run_id.encode("utf-8", "replace")).digest()
        return int.from_bytes(digest[:4], "big") < self._score_rate * 2**32

    async def _keep_unscored(self, claim: Claim) -> None:
        """Leaves a captured run unscored; sinks hear of it, and it may be scored later."""

        def keep() -> None:
            self._store.keep_unscored(claim.due, emit=bool(self._delivery))
            self._store.count("runs_unscored")

        await self._done(keep)
        if self._delivery:
            await self._deliver(ScoredRun(claim.run, [], []))

    async def score(self, run: Run, priority: int) -> ScoredRun:
        """Scores a run now, unless it is scored with the same settings already; returns all that is known of it."""
        while (busy := self._busy.get(run.id)) is not None:
            await busy.wait()
        # From here on a caller that asks for the same run waits, and then finds its scores in the store.
        with self._under_way(run.id):
            identity = await self._identity()
            mark = _mark(identity)
            submission = await self._done(lambda: self._store.submit(run, mark))
            if identity is None or not submission.settled:
                scored, _ = await self._score(run, submission.due, priority, identity)
                return scored
            scores = await self._done(lambda: self._store.scores(run.id))
            failures = await self._done(lambda: self._store.failures(run.id))
            return ScoredRun(run, _latest(scores, identity), failures)

    async def captured(self, run_id: Callable[[], str]) -> Run | None:
        """The run as it stands in the store; its id is asked for once everything captured before is written."""
        return await self._done(lambda: self._store.run(run_id()))

    async def sketch(self, run: Run, priority: int) -> ScoredRun:
        """Scores a run that has not ended, without storing anything."""
        scores, failures = await self._ask(run, priority)
        return ScoredRun(run, scores, failures)

    async def plan(self, run: Run) -> Plan:
        """Returns what scoring the run would ask the engines."""
        return await self._pipeline().plan(run)

    async def _score(
        self, run: Run, due: Due, priority: int, identity: Identity | None
    ) -> tuple[ScoredRun, bool]:
        started = time.time_ns()
        found, unfound = await self._find_references(run)
        if found:
            run = replace(run, references=found)
        scores, failures = await self._ask(run, priority)
        if scores or not all(failure.will_retry for failure in failures):
            identity = identity or await self._identity()
        attempts = due.attempts + 1
        wait = self._retry.after(attempts) if any(failure.will_retry for failure in failures) else None
        failures = [
            replace(one, attempts=attempts, will_retry=one.will_retry and wait is not None, run_id=run.id)
            for one in (*unfound, *failures)
        ]
        if self._redactor is not None:
            failures = self._redactor.failures(failures)
        self._tally.note(failures)
        ended = time.time_ns()
        outcome = ScoringOutcome(
            run.id, _mark(identity), due.revision, scores, failures,
            None if wait is None else now_ns() + int(wait * 1e9), bool(self._delivery), attempts, found,
        )  # fmt: skip
        new = await self._done(lambda: self._settle(outcome))
        if self._delivery and (new or outcome.says_something):
            await self._deliver(ScoredRun(run, new, failures, started, ended))
        answered = bool(scores) or not failures or not all(one.will_retry for one in failures)
        return ScoredRun(run, scores, failures, started, ended), answered

    def _settle(self, outcome: ScoringOutcome) -> list[Score]:
        """Stores and counts an outcome, on the writer's thread, so that `flush` sees both or neither."""
        new = self._store.settle(outcome)
        if outcome.retry_ns is None:
            said = "runs_scored" if outcome.scores else "runs_unscored"
            self._store.count("runs_failed" if outcome.failures else said)
        return new

    async def _ask(self, run: Run, priority: int) -> tuple[list[Score], list[Failure]]:
        try:
            results = await self._pipeline().score(run, priority=priority)
        except Exception as error:  # noqa: BLE001 - a fault of a scorer is a record as well
            if not isinstance(error, RagguardError):
                _log.error("scoring run %s failed: %s", run.id, describe(error), exc_info=error)
            retryable = bool(getattr(error, "retryable", False))
            return [], [
                Failure("scorers", type(error).__name__, without_secrets(str(error)), retryable, run.id)
            ]
        scores = [one for one in results if isinstance(one, Score) and math.isfinite(one.value)]
        failures = [one for one in results if isinstance(one, Failure)]
        failures += [
            Failure(
                one.scorer,
                "NotFinite",
                f"{one.name} came out as {one.value}",
                run_id=run.id,
                step_id=one.step_id,
            )
            for one in results
            if isinstance(one, Score) and not math.isfinite(one.value)
        ]
        return scores, failures

    async def _identity(self) -> Identity | None:
        """Returns the identity of the settings; None where an engine cannot be reached."""
        try:
            return await self._pipeline().identity()
        except Exception as error:  # noqa: BLE001 - scoring records the same error as a failure
            _log.debug("no identity yet: %s", describe(error))
            return None

    @contextmanager
    def _under_way(self, run_id: str) -> Iterator[None]:
        self._busy[run_id] = done = asyncio.Event()
        try:
            yield
        finally:
            self._busy.pop(run_id, None)
            done.set()
            self._store.release(run_id)
            self._settled()

    async def _find_references(self, run: Run) -> tuple[list[str] | None, list[Failure]]:
        """Asks the user's `references` function about a run that has no references of its own."""
        if self._references is None or run.references or not run.question:
            return None, []
        try:
            references = references_of(await _call(self._references, run.question))
            asked = run.metadata.get("original_question")
            if references is None and isinstance(asked, str) and asked:
                references = references_of(await _call(self._references, asked))
        except Exception as error:  # noqa: BLE001 - the user's function
            message = f"references= failed for this question: {describe(error)}"
            return None, [Failure("references", type(error).__name__, message, run_id=run.id)]
        if references and self._redactor is not None:
            references = self._redactor.texts(references)
        return references, []

    async def _deliver(self, scored: ScoredRun) -> None:
        await self._delivery.submit(scored)
        await self._done(lambda: self._store.emitted(scored.run.id))

    async def _done(self, work: Callable[[], T]) -> T:
        return await asyncio.wrap_future(self._do(work))


def reference_table(table: Mapping[str, str | Sequence[str]]) -> References:
    """A function that looks questions up in a table, whatever their spaces and capitals."""
    known = {_spelled(question): references_of(answers) for question, answers in table.items()}
    return lambda question: known.get(_spelled(question))


def _spelled(question: object) -> str:
    if not isinstance(question, str):
        raise InvalidInput("references", question, "a question that is a text, for each key")
    return " ".join(question.split()).casefold()


def _mark(identity: Identity | None) -> str:
    """Returns a digest of the settings; '' where they are not known."""
    return "" if identity is None else hashlib.sha256(repr(identity).encode("utf-8")).hexdigest()[:16]


def _latest(scores: Sequence[Score], identity: Identity) -> list[Score]:
    """Returns the latest score of each kind that these settings gave: with the references that are known now."""
    ours = {(one.scorer, one.version) for one in identity.scorers}
    latest = {score.key[:-1]: score for score in scores if (score.scorer, score.version) in ours}
    return list(latest.values())


async def _call(function: Callable[[str], Any], question: str) -> Found:
    """Calls a user's function, a synchronous one in a thread, since it may block."""
    if inspect.iscoroutinefunction(function):
        found: Found = await function(question)
        return found
    found = await asyncio.to_thread(function, question)
    return await found if inspect.isawaitable(found) else found

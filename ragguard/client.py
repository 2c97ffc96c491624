"""RagGuard: an engine, a store and sinks, put together and watched over.

    rg = RagGuard(engine="http://localhost:8000/v1")
    with rg.run("who founded the firm based in Oslo?") as run:
        run.retrieved("firm based in Oslo", passages)
        run.answered("Ada Berg")
    rg.flush(timeout=10)

Nothing is started before it is needed. What cannot be right is said here, at once; afterwards nothing
that goes wrong with an engine, a disk or a sink reaches the application.
"""

from __future__ import annotations

import asyncio
import math
import re
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, overload
from uuid import UUID

from ragguard.arguments import whole_number
from ragguard.capture.calls import what_to_do
from ragguard.capture.faults import Faults, describe
from ragguard.capture.handle import RunHandle
from ragguard.capture.recorder import Recorder
from ragguard.engines.account import Account, Limits
from ragguard.engines.base import Engine
from ragguard.engines.connect import connect
from ragguard.engines.entailment.base import Entailer
from ragguard.engines.entailment.connect import connect_entailer
from ragguard.engines.layers.retry import failure_since
from ragguard.engines.prompts import PromptSet
from ragguard.errors import Closed, InvalidInput
from ragguard.records import Failure, Passage, Run, Score
from ragguard.runtime.event_loop import running_loop
from ragguard.scorers.pipeline import ScoringPipeline
from ragguard.scorers.plan import Plan
from ragguard.scorers.scorer import Scorer
from ragguard.scorers.view import Caps
from ragguard.service.queue import QueueBounds
from ragguard.service.redaction import Redact, Redactor
from ragguard.service.report import Captured, Report
from ragguard.service.scoring import References, reference_table
from ragguard.service.service import Service, Settings
from ragguard.sinks.base import ScoredRun, Sink, SpanSink
from ragguard.store.bounds import Bound
from ragguard.store.runs import Runs
from ragguard.store.store import Durability, Store

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from ragguard.sinks.otel import OtelSink

_BLOCK = re.compile(r"block(?:\((\d+(?:\.\d+)?)\))?")
_BLOCK_SECONDS = 1.0
_RECENT_SECONDS = 30.0
_EVENTS_A_RUN = 64


class Scores(list[Score]):
    """What was said of a run; `failures` is what could not be said."""

    def __init__(self, scores: Iterable[Score], failures: Iterable[Failure] = ()) -> None:
        super().__init__(scores)
        self.failures = list(failures)


class RagGuard:
    """Captures runs, scores them off the critical path, keeps what was said of them and sends it on."""

    def __init__(
        self,
        engine: str | Engine = "nano",
        *,
        entailer: str | Entailer | None = None,
        scorers: Sequence[str | Scorer] = ("belief", "utility", "coverage"),
        store: str | Path | None = "ragguard.db",
        sample_rate: float = 1.0,
        score_rate: float = 1.0,
        judge: str | Engine | None = None,
        prompts: str | Path | PromptSet | None = None,
        references: References | Mapping[str, str | Sequence[str]] | None = None,
        durability: Durability = "fast",
        redact: Redact | None = None,
        budget: Account | Limits | None = None,
        sinks: Sequence[Sink] = (),
        tracer_provider: TracerProvider | None = None,
        otlp: str | None = None,
        queue_size: int = 1024,
        queue_bytes: int = 64 * 2**20,
        on_overflow: str = "drop_oldest",
        capture_content: bool | str | None = None,
        caps: Caps | None = None,
        concurrency: int = 8,
        retention: timedelta | float | None = None,
        run_ttl: float = 3600.0,
        exit_timeout: float = 10.0,
    ) -> None:
        """Times are in seconds. `sample_rate` is the share of runs that are captured, `score_rate` the share of those
        that are scored without being asked for: the others are kept, and `rg.score(run)` scores them later. Both
        decide by the run's id. `queue_size` is how many runs may wait: with a store for the disk (a run is taken for
        64 events), without one to be scored; `queue_bytes` is how much captured data may wait. Beyond that
        `on_overflow` applies: `drop_oldest`, `drop_newest`, or `block(SECONDS)`, with which a hook on a thread waits
        so long first, and the end of an `async with rg.run(...)`; a hook on an event loop never does. `entailer`
        compares answers in place of the judge: the address of a vLLM server of an NLI model, `hf:MODEL`, or an
        Entailer."""
        drop, block = _overflow(on_overflow)
        numbers = {"queue_size": queue_size, "queue_bytes": queue_bytes, "concurrency": concurrency}
        for name, number in numbers.items():
            whole_number(name, number, 1)
        if not isinstance(score_rate, int | float) or not 0.0 <= score_rate <= 1.0:
            raise InvalidInput("score_rate", score_rate, "a share between 0 and 1")
        if not isinstance(exit_timeout, int | float) or not exit_timeout >= 0:
            raise InvalidInput("exit_timeout", exit_timeout, "a number of seconds, 0 or more")
        if not isinstance(run_ttl, int | float) or not run_ttl > 0:
            raise InvalidInput("run_ttl", run_ttl, "a number of seconds over 0")
        if isinstance(scorers, str):
            raise InvalidInput("scorers", scorers, f"a list, such as ({scorers!r},)")
        if not isinstance(scorers, list | tuple):
            raise InvalidInput("scorers", scorers, "a list of names and Scorers")
        if not isinstance(caps, Caps | None):
            raise InvalidInput("caps", caps, "Caps(...), or None for the usual ones")
        if not isinstance(sinks, list | tuple):
            raise InvalidInput("sinks", sinks, "a list of sinks")
        for sink in sinks:
            if not isinstance(sink, Sink):
                raise InvalidInput("sinks", sink, "something with `async def submit(scored)` and `aclose()`")
        if isinstance(references, Mapping):
            references = reference_table(references)
        for name, function in (("references", references), ("redact", redact)):
            if function is not None and not callable(function):
                raise InvalidInput(name, function, "a function of one text")
        self._given = (engine, judge, entailer, tuple(scorers), prompts, caps, Account.of(budget))
        self._engines: list[Engine] = []
        self._entailer: Entailer | None = None
        self._telemetry = (tracer_provider, otlp, capture_content)
        asked = tracer_provider is not None or otlp is not None
        writing = [sink for sink in sinks if isinstance(sink, SpanSink)]
        for sink in writing:
            sink.watch(self._depth, self._service_counts)
        faults = Faults()
        scored = bool(scorers) or asked or bool(sinks)  # sinks hear of runs that nobody scores as well
        self._service = Service(
            Store(store, durability=durability, bound=Bound(queue_size, drop), scored=scored),
            self._pipeline,
            [*sinks, self._otel_sink()] if asked else sinks,
            late_sink=None if asked or writing else self._applications_own,
            settings=Settings(
                full=durability == "full", queue_size=queue_size, block=block if store is None else None,
                bounds=QueueBounds(_EVENTS_A_RUN * queue_size, queue_bytes, drop, block or 0.0),
                concurrency=concurrency, run_ttl=run_ttl, retention=_seconds(retention),
                exit_timeout=exit_timeout, scores=scored, score_rate=score_rate,
            ),
            references=references,
            redactor=None if redact is None else Redactor(redact, faults),
            faults=faults,
            sweep=lambda: self.recorder.sweep(),
            release=self._release,
            capture=self._captured,
        )  # fmt: skip
        self.recorder = Recorder(self._service.intake, sample_rate=sample_rate, ttl=run_ttl)
        self._service.pipeline()

    # Capture

    def run(
        self,
        question: str = "",
        *,
        references: str | Sequence[str] | None = None,
        id: str = "",
        resume: bool = False,
        name: str = "",
        sub_questions: Sequence[str] | None = None,
        pool: Sequence[Passage] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> RunHandle:
        """One run: `with rg.run(question) as run`, or `async with`.

        An `id` that another run has is not used again: this run gets one of its own, with a warning; `run.id` says
        which. With `resume=True` it continues that run instead, in this process or another one with the same store:
        its steps are numbered on, and the question stays.
        """
        return RunHandle(
            self.recorder, question, references=references, id=id, resume=resume, name=name,
            sub_questions=sub_questions, pool=pool, metadata=metadata, acknowledging=self._service.intake,
        )  # fmt: skip

    # Scores

    @overload
    async def score(self, run: Run | RunHandle, *, dry_run: Literal[False] = False) -> Scores: ...
    @overload
    async def score(self, run: Run | RunHandle, *, dry_run: Literal[True]) -> Plan: ...
    async def score(self, run: Run | RunHandle, *, dry_run: bool = False) -> Scores | Plan:
        """Scores one run now; with `dry_run` says what that would ask, and asks nothing.

        What the same settings have said already is not asked again. A run that is still open is scored as
        it stands, and nothing of that is stored. Of a run that was not sampled nothing is known, so nothing is
        said.
        """
        if dry_run:
            return await self._service.plan(run.record() if isinstance(run, RunHandle) else run)
        if not isinstance(run, RunHandle):
            scored = await self._service.score(run)
        elif not run.sampled:
            return Scores([])
        elif run.closed:
            scored = await self._service.score_captured(lambda: run.id, run.record)
        else:
            scored = await self._service.sketch(run.record())
        return Scores(scored.scores, scored.failures)

    def score_runs(
        self, runs: Iterable[Run] | AsyncIterable[Run], *, concurrency: int = 8
    ) -> AsyncGenerator[ScoredRun, None]:
        """Scores any number of runs, so many at once, and yields each as soon as it is done."""
        whole_number("concurrency", concurrency, 1)
        if not isinstance(runs, Iterable | AsyncIterable):
            raise InvalidInput("runs", runs, "runs that can be iterated")
        return self._service.score_all(runs, concurrency)

    # What is known

    def runs(self) -> Runs:
        """The runs that were captured, the oldest first: a sequence that reads page by page."""
        self._service.settle()
        return Runs(self._service.store)

    def scores(self, run: str | UUID | Run | RunHandle) -> list[Score]:
        """Returns all scores of a run, which is given as its id, as a record or as what `rg.run` yields."""
        self._service.settle()
        return self._service.store.scores(self._service.stored_id(_id_of(run)))

    def failures(self, run: str | UUID | Run | RunHandle) -> list[Failure]:
        """Returns the scores that could not be given for a run, and why."""
        self._service.settle()
        return self._service.store.failures(self._service.stored_id(_id_of(run)))

    def delete(self, run: str | UUID | Run | RunHandle) -> bool:
        """Removes a run, its scores and its texts for good; False where it is not there."""
        self._service.settle()
        self.recorder.release(_id_of(run))
        return self._service.store.delete(self._service.stored_id(_id_of(run)))

    @property
    def engine(self) -> Engine:
        """The engine with its layers; a guard that is given this one shares its cache and its budget."""
        self._service.pipeline()
        return self._engines[0]

    @property
    def store(self) -> Store:
        """Where it is kept."""
        return self._service.store

    # The end

    def flush(self, timeout: float = 10.0) -> Report:
        """Waits until all that was captured is scored, stored and delivered, or has failed for good; says so.

        Runs that are still open are counted and not awaited.
        """
        return self._with_guards(self._service.flush(timeout))

    async def aflush(self, timeout: float = 10.0) -> Report:  # noqa: ASYNC109 - the same as flush
        """As `flush`, without holding up the event loop."""
        running_loop("aflush()")
        return await asyncio.to_thread(self.flush, timeout)

    def close(self, timeout: float = 10.0) -> Report:
        """Flushes and lets everything go; what is not done in time stays in the store. Safe to call twice."""
        return self._with_guards(self._service.close(timeout))

    async def aclose(self, timeout: float = 10.0) -> Report:  # noqa: ASYNC109 - the same as close
        """As `close`, without holding up the event loop."""
        running_loop("aclose()")
        return await asyncio.to_thread(self.close, timeout)

    def __enter__(self) -> RagGuard:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> RagGuard:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    # Parts

    def _pipeline(self) -> ScoringPipeline:
        """The engines and what scores with them; made once, and anew in a forked process."""
        engine, judge, entailer, scorers, prompts, caps, account = self._given
        reader = connect(engine, budget=account)
        self._engines = [reader] if judge is None else [reader, connect(judge, budget=account)]
        self._entailer = None if entailer is None else connect_entailer(entailer, account)
        return ScoringPipeline(
            reader, judge=None if judge is None else self._engines[1], entailer=self._entailer,
            scorers=scorers, prompts=prompts, caps=caps,
        )  # fmt: skip

    def _captured(self) -> Captured:
        counts, calls = self.recorder.counts, self.recorder.calls.total
        recent = time.monotonic() - _RECENT_SECONDS
        failed = [error for engine in self._engines if (error := failure_since(engine, recent))]
        return Captured(
            counts.unsampled,
            describe(failed[0]) if failed else "",
            "" if counts.unsampled else what_to_do(calls),
        )

    async def _release(self) -> None:
        """Closes the engines that were made here; the user's own are the user's to close."""
        for made, given in zip(self._engines, self._given[:2], strict=False):
            if isinstance(given, str):
                await made.aclose()
        if isinstance(self._given[2], str) and self._entailer is not None:
            await self._entailer.aclose()

    def _otel_sink(self) -> OtelSink:
        from ragguard.sinks.otel import OtelSink

        provider, otlp, content = self._telemetry
        sink = OtelSink(provider, otlp=otlp, capture_content=content)
        sink.watch(self._depth, self._service_counts)
        return sink

    def _applications_own(self) -> Sink | None:
        """A sink to the provider that the application has set; none where it has none (yet)."""
        if "opentelemetry.sdk.trace" not in sys.modules:
            return None
        from ragguard.sinks.otlp import configured

        return self._otel_sink() if configured() else None

    def _with_guards(self, report: Report) -> Report:
        """The report, with what guards on these engines or captured here could not judge."""
        health = sys.modules.get("ragguard.guard.health")
        if health is None:  # no guard was ever made
            return report
        return replace(report, unguarded=health.unjudged([*self._engines, *self.recorder.guard_engines]))

    def _depth(self) -> int:
        try:
            return self._service.store.left().pending
        except Closed:  # an application's meter goes on asking
            return 0

    def _service_counts(self) -> Mapping[str, int]:
        counts = self._service.store.counts
        return {
            name: counts[name] for name in ("runs_dropped", "events_lost", "events_refused", "sink_failures")
        }


def _id_of(run: str | UUID | Run | RunHandle) -> str:
    if isinstance(run, Run | RunHandle):
        return run.id
    if not isinstance(run, str | UUID):
        raise InvalidInput("run", run, "a run's id, a Run, or what `with rg.run(...)` yields")
    return str(run)


def _overflow(policy: str) -> tuple[Literal["oldest", "newest"], float | None]:
    if policy == "drop_oldest":
        return "oldest", None
    if policy == "drop_newest":
        return "newest", None
    block = _BLOCK.fullmatch(policy) if isinstance(policy, str) else None
    if block is None:
        raise InvalidInput("on_overflow", policy, "'drop_oldest', 'drop_newest', 'block' or 'block(SECONDS)'")
    return "newest", float(block.group(1) or _BLOCK_SECONDS)


def _seconds(retention: timedelta | float | None) -> float | None:
    seconds = retention.total_seconds() if isinstance(retention, timedelta) else retention
    if seconds is not None and (not isinstance(seconds, int | float) or not seconds > 0):
        raise InvalidInput("retention", retention, "a time longer than 0")
    return None if seconds == math.inf else seconds

"""RagGuard puts an engine, a store and sinks together.

    rg = RagGuard(engine="http://localhost:8000/v1")
    with rg.run("who founded the firm based in Oslo?") as run:
        run.retrieved("firm based in Oslo", passages)
        run.answered("Ada Berg")
    rg.flush(timeout=10)

Threads, files and connections are opened when they are first needed. Wrong settings raise here, at once; no later
failure of an engine, a disk or a sink reaches the application.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, cast, overload
from uuid import UUID

from ragguard.capture.handle import RunHandle, Thumb
from ragguard.capture.recorder import Recorder
from ragguard.engines.base import Engine
from ragguard.engines.connect import AUTO
from ragguard.engines.entailer import Entailer
from ragguard.engines.layers.budget import Account, Limits
from ragguard.engines.prompts import PromptSet
from ragguard.errors import InvalidInput
from ragguard.metrics.distraction import Relevance
from ragguard.records import Failure, Passage, Run, Score, ScoredRun
from ragguard.runtime.arguments import whole_number
from ragguard.runtime.threads import in_daemon_thread
from ragguard.scorers.plan import Plan
from ragguard.scorers.references import References
from ragguard.scorers.scorer import Scorer
from ragguard.scorers.settings import ScoringSettings
from ragguard.scorers.view import Caps
from ragguard.service.configuration import Configuration, When
from ragguard.service.service import SCORER, Report, Service, in_each_process
from ragguard.storage.files.runfile import is_question_file, sub_questions_in
from ragguard.storage.preparation import Redact
from ragguard.storage.source import Runs
from ragguard.storage.sqlite.store import Durability, Store
from ragguard.telemetry.sink import Sink
from ragguard.text.language import ENGLISH, Language

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from ragguard.advice import Adviser


_WRITTEN_SECONDS = 30.0


class Scores(list[Score]):
    """The scores of a run; `failures` has the scores that could not be computed."""

    def __init__(self, scores: Iterable[Score], failures: Iterable[Failure] = ()) -> None:
        super().__init__(scores)
        self.failures = list(failures)


class RagGuard:
    """Captures runs, scores them off the critical path, stores the scores and sends them to sinks.

    All times are in seconds. Wrong settings are refused here, at once; afterwards no failure of an engine, a disk
    or a sink reaches the application.

    Args:
        engine: The model that is asked: `nano`, `smol`, the address of an OpenAI-compatible server
            (`http://HOST:PORT/v1`, optionally with `#MODEL`), `vllm:MODEL`, `hf:MODEL`, `gguf:FILE`, or an Engine;
            `auto` chooses as `connect` says, and a log line says what. Nothing else is asked before the first run is
            scored. None: runs are captured, and sent where `otlp` says, and scored elsewhere.
        entailer: What compares sampled answers in place of the judge: the address of a vLLM server that serves an
            NLI model, `hf:MODEL`, or an Entailer.
        scorers: The scorers that look at each run, by name (`belief`, `likelihood`, `utility`, `coverage`, `grades`)
            or as objects with their own settings. None: belief, utility and coverage; for `smol`, whose labels cannot
            judge, likelihood alone. Empty: runs are captured and never scored.
        store: The SQLite file that keeps runs and scores. None keeps them in memory: at most 10,000 runs or 256
            MiB, and only until the process ends.
        sample_rate: The share of runs that is captured, from 0 to 1, decided by the run's id. Nothing is known of
            the others.
        score_rate: The share of captured runs that is scored without being asked for, from 0 to 1, decided by the
            run's id. The others are kept, and `rg.score(run)` or `ragguard score` scores them later.
        when: When runs are scored: `step` scores each step as it ends with what is known then, and asks at the run's
            end what needs the end; `run` scores nothing before.
        judge: Another model that judges relevance, ratings, grades and sub-questions; in the forms of `engine`.
            None: the engine judges.
        prompts: The prompts that are asked: `default`, `nano`, a TOML file, or a PromptSet. None: those that fit
            the engine.
        references: The known right answers, where a run brings none: a function of the question, sync or async, or
            a mapping from questions to answers. It runs where runs are scored, never in a hook.
        durability: What a kill may cost: `fast` loses at most the last 50 ms; with `full`, calls on a thread return
            once their event is on the disk.
        redact: A function of one text that returns what may be kept of it; None or an empty text keeps nothing. It
            is applied to every text before anything is written, scored or sent; where it fails, the text is
            dropped.
        budget: What the engines may spend together: a mapping with some of `requests`, `tokens`, `money` and
            `price`, or an Account that several RagGuards and guards share. What would go beyond is refused and
            becomes a failure.
        sinks: Where scored runs go besides the store: a list of objects with `async def submit(scored)` and `async
            def aclose()`.
        tracer_provider: The OpenTelemetry provider that scores go to, instead of the application's own.
        otlp: An OTLP/HTTP address, such as `http://localhost:4318`, for an application that has no OpenTelemetry
            configured; where it has, that is used. Needs the extra `otlp`.
        queue_size: How many runs may wait, 1 or more: with a store for the disk (a run is taken for 64 events),
            without one to be scored. Beyond that `on_overflow` applies.
        queue_bytes: How many bytes of captured data may wait for the disk, about; 64 MiB by default. Beyond that
            `on_overflow` applies.
        on_overflow: What happens when the queue is full: `drop_oldest`, or `block(SECONDS)`, which lets a
            thread wait so long for the disk before the oldest is dropped. A hook on an event loop never waits, and
            none waits for scoring. What is dropped is counted.
        capture_content: Whether queries, passages and answers are written on spans. None: as the environment says,
            else not.
        caps: The most that is judged of one run. None: `Caps()`.
        language: The language of answers, a `ragguard.metrics.Language`: its articles, and the phrases by which an
            answer says that it is none. English ships.
        relevance: The form in which relevance counts in utility, UDCG and advice: `probability`, the number that the
            judge gives, or `binary`, yes or no at 0.5, as in the paper.
        concurrency: How many runs are scored at once in the background, 1 or more.
        retention: How long a run is kept after its end, in seconds or as a timedelta. Older runs are removed for
            good with their texts and scores, scored or not. None: for ever.
        max_open_runs: How many runs may be open at once in a process, 1 or more. Beyond that the one without an event
            for longest ends as `abandoned`: what it retrieves later is not recorded, its answer is.
        run_ttl: After how many seconds without an event an open run ends as `abandoned` and is scored as it stands.
            `float('inf')`: never.
        exit_timeout: How many seconds the end of the process may wait for what is still to be stored, scored and
            sent; 0 or more.
    """

    def __init__(
        self,
        engine: str | Engine | None = AUTO,
        *,
        entailer: str | Entailer | None = None,
        scorers: Sequence[str | Scorer] | None = None,
        store: str | Path | None = "ragguard.db",
        sample_rate: float = 1.0,
        score_rate: float = 1.0,
        when: When = "step",
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
        capture_content: bool | None = None,
        caps: Caps | None = None,
        language: Language = ENGLISH,
        relevance: Relevance = "probability",
        concurrency: int = 8,
        retention: timedelta | float | None = None,
        max_open_runs: int = 4096,
        run_ttl: float = 3600.0,
        exit_timeout: float = 10.0,
    ) -> None:
        scoring = ScoringSettings(
            engine=engine, judge=judge, entailer=entailer, scorers=scorers, prompts=prompts, caps=caps,
            language=language, relevance=relevance, budget=Account.of(budget),  # one account, also for forked processes
        )  # fmt: skip
        self._services = in_each_process(
            Configuration(
                scoring=scoring, store=store, durability=durability, sample_rate=sample_rate,
                score_rate=score_rate, when=when, references=references, redact=redact, sinks=sinks,
                tracer_provider=tracer_provider, otlp=otlp, capture_content=capture_content,
                queue_size=queue_size, queue_bytes=queue_bytes, on_overflow=on_overflow,
                concurrency=concurrency, retention=retention, max_open_runs=max_open_runs, run_ttl=run_ttl,
                exit_timeout=exit_timeout,
            ),
            _adviser_of,
        )  # fmt: skip
        self.recorder: Recorder = self._service.recorder
        """The recorder, to which integrations report runs and retrievals."""

    @property
    def _service(self) -> Service:
        """The service of this process; a forked child begins with one of its own."""
        return self._services.get()

    def run(
        self,
        question: str = "",
        *,
        references: str | Sequence[str] | None = None,
        id: str = "",
        resume: str = "",
        name: str = "",
        sub_questions: str | Sequence[str] | None = None,
        pool: Sequence[Passage] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> RunHandle:
        """Captures one run: `with rg.run(question) as run`, or `async with`.

        Each run has an id that no other one has, `run.id`. With `resume=` it goes on with a run that is there, in this
        process or another one with the same store: its steps are numbered on, and the question stays.

        Args:
            question: What the run is asked. Beliefs and coverage are about it; empty where it is not known yet
                (`run.question = ...` sets it later).
            references: The answers that are known to be right, one text or several. None: the `references` of the
                RagGuard, else the run's own answer.
            id: An id of your own, which stands beside the run's: the store finds the latest run that was given it.
            resume: The id of the run to go on with: the one that you gave it, or `run.id` where you gave none. Where no
                such run is there, one begins, and the log says so.
            name: A name for the kind of run, which reports and spans show.
            sub_questions: What a full answer has to answer, for coverage; or the name of a file (`.jsonl`) that has
                it for this question, as `ragguard questions` writes one. None: the judge makes them from the question.
            pool: All passages that could have been retrieved, with grades where they are known: the yardstick of
                RA-nWG and PROC.
            metadata: Anything that JSON can hold, kept with the run.
        """
        services = self._services
        if isinstance(sub_questions, str) and is_question_file(sub_questions):
            sub_questions = sub_questions_in(sub_questions, question)
        return RunHandle(
            self.recorder, question, references=references, id=id, resume=resume, name=name,
            sub_questions=sub_questions, pool=pool, metadata=metadata,
            written=lambda: services.get().intake.written(),
            not_awaited=lambda: services.get().intake.not_awaited(),
            feedback=lambda run_id, thumb, note: services.get().scoring.feedback(run_id, thumb, note),
        )  # fmt: skip

    @overload
    async def score(self, run: Run | RunHandle, *, dry_run: Literal[False] = False) -> Scores: ...
    @overload
    async def score(self, run: Run | RunHandle, *, dry_run: Literal[True]) -> Plan: ...
    async def score(self, run: Run | RunHandle, *, dry_run: bool = False) -> Scores | Plan:
        """Scores one run now; with `dry_run` returns what that would ask.

        Scores that the same settings gave before are read from the store. A run that is still open is scored as
        it stands, and these scores are not stored. A run that was not sampled has no scores.

        Args:
            run: A Run, or what `rg.run` yields.
            dry_run: True returns a Plan of the requests, prompts and tokens that scoring would take, and asks nothing
                but the few short requests that find out what a server can.
        """
        scoring, sampled = self._service.scoring, not isinstance(run, RunHandle) or run.sampled
        if dry_run:
            return await scoring.plan(run) if sampled else Plan()
        if not sampled:
            return Scores([])
        scored = await scoring.evaluate(run)
        return Scores(scored.scores, scored.failures)

    def score_runs(
        self, runs: Iterable[Run] | AsyncIterable[Run], *, concurrency: int = 8
    ) -> AsyncGenerator[ScoredRun, None]:
        """Scores any number of runs and yields each as soon as it is done. A failure is part of a result and ends
        no other run.

        Args:
            runs: Runs, from a list, a generator or an async generator; they are read as fast as they are scored.
            concurrency: How many runs are scored at once, 1 or more.
        """
        whole_number("concurrency", concurrency, 1)
        if not isinstance(runs, Iterable | AsyncIterable):
            raise InvalidInput("runs", runs, "runs that can be iterated")
        return self._service.scoring.evaluate_each(runs, concurrency)

    async def add_runs(self, runs: Iterable[Run], *, amend: bool = False) -> dict[str, InvalidInput]:
        """Stores runs that were captured elsewhere, to be scored in the background like captured ones; returns the
        errors of those that were refused, by their ids.

        All others are in the store once the call returns. A run takes the place of a stored one with its id and
        question.

        Args:
            runs: Whole runs, such as `ragguard.traces.read` or `ragguard.read_runs` give them.
            amend: True: a run also takes the place of one with its id and another question, which is else refused; for
                ids that no two runs share, such as those of traces.
        """
        return await self._service.scoring.add(runs, amend=amend)

    def runs(self) -> Runs:
        """Returns the captured runs, the oldest first, as a sequence that reads page by page."""
        self._service.wait_until_written()
        return Runs(self._service.store)

    def scores(self, run: str | Run | RunHandle) -> list[Score]:
        """Returns all scores of a run, which is given as its id, as a record or as what `rg.run` yields."""
        self._service.wait_until_written()
        return self._service.store.scores(self._stored_id(run))

    def failures(self, run: str | Run | RunHandle) -> list[Failure]:
        """Returns the scores that could not be given for a run, and why."""
        self._service.wait_until_written()
        return self._service.store.failures(self._stored_id(run))

    def feedback(self, run: str | Run | RunHandle, thumb: Thumb, note: str = "") -> bool:
        """Keeps what somebody says of a run, open or not, as `feedback` in its metadata, in place of what was said
        before; returns False where there is no such run. Scores do not change. Inside a run, `run.feedback` does so
        without waiting for the disk.

        Args:
            run: The run or its id.
            thumb: `up` or `down`.
            note: What else there is to say.
        """
        return self._service.scoring.feedback(lambda: _id_of(run), thumb, note).result(_WRITTEN_SECONDS)

    def delete(self, run: str | Run | RunHandle) -> bool:
        """Removes a run, its scores and its texts for good; returns False where there is no such run."""
        self._service.wait_until_written()
        return self._service.store.delete(self._stored_id(run))

    @property
    def advice(self) -> Adviser:
        """The adviser, which says during a run whether what was read suffices: `run.advise()` asks it."""
        return cast("Adviser", self._service.adviser)  # made by `_adviser_of`

    @property
    def engine(self) -> Engine:
        """The engine with its layers; a guard that is given this one shares its cache and its budget."""
        return self._service.pipeline.get().engines[0]

    @property
    def store(self) -> Store:
        """The store that keeps runs and scores."""
        return self._service.store

    def flush(self, timeout: float = 10.0) -> Report:
        """Waits until all that was captured is scored, stored and delivered, or has failed for good.

        The report is true where that is so. Runs that are still open are counted and not awaited.

        Args:
            timeout: How many seconds to wait at most. What is not done by then goes on, and the report is false.
        """
        return self._service.flush(timeout)

    async def aflush(self, timeout: float = 10.0) -> Report:  # noqa: ASYNC109 - the same as flush
        """Does what `flush` does, without blocking the event loop."""
        return await in_daemon_thread(lambda: self.flush(timeout))

    def close(self, timeout: float = 10.0) -> Report:
        """Flushes, then closes engines, sinks and the store. What is not scored in time stays in the store.

        Safe to call twice.

        Args:
            timeout: How many seconds to wait at most.
        """
        return self._service.close(timeout)

    async def aclose(self, timeout: float = 10.0) -> Report:  # noqa: ASYNC109 - the same as close
        """Does what `close` does, without blocking the event loop."""
        return await in_daemon_thread(lambda: self.close(timeout))

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

    def _stored_id(self, run: str | Run | RunHandle) -> str:
        return self._service.redactor.id(_id_of(run))


def _id_of(run: str | Run | RunHandle) -> str:
    if isinstance(run, Run | RunHandle):
        return run.id
    if not isinstance(run, str | UUID):
        raise InvalidInput("run", run, "a run's id, a Run, or what `with rg.run(...)` yields")
    return str(run)


def _adviser_of(service: Service) -> Adviser:
    from ragguard.advice import Adviser

    return Adviser(service.scoring, SCORER, service.settings.scoring.chosen_scorers)

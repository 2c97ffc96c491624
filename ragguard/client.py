"""`RagGuard`, the object that users make: it puts an engine, a store and sinks together.

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
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, cast, overload
from uuid import UUID

from ragguard.analysis.frames import Frame
from ragguard.capture.handle import RunHandle, Thumb
from ragguard.capture.recorder import Recorder
from ragguard.engines.base import Engine
from ragguard.errors import InvalidInput
from ragguard.records import Failure, Passage, Run, Score, ScoredRun
from ragguard.runtime.arguments import whole_number
from ragguard.runtime.async_twins import twin_of
from ragguard.runtime.flat_arguments import takes
from ragguard.runtime.threads import in_daemon_thread
from ragguard.scorers.plan import Plan
from ragguard.service.configuration import Options
from ragguard.service.service import SCORER, Report, Service, in_each_process
from ragguard.storage.files.runfile import is_question_file, sub_questions_in
from ragguard.storage.source import Runs
from ragguard.storage.sqlite.store import Store

if TYPE_CHECKING:
    from ragguard.advice import Adviser


_WRITTEN_SECONDS = 30.0


class Scores(list[Score]):
    """The scores of a run; `failures` has the scores that could not be computed."""

    def __init__(self, scores: Iterable[Score], failures: Iterable[Failure] = ()) -> None:
        super().__init__(scores)
        self.failures = list(failures)


_OF_CALLBACKS = frozenset(
    ("raise_error", "run_inline", "ignore_chain", "ignore_retriever", "ignore_llm", "on_chain_start")
)
"""Attributes that LangChain asks of its callbacks."""


class RagGuard:
    """Captures runs, scores them off the critical path, stores the scores and sends them to sinks.

    All times are in seconds. Wrong settings are refused here, at once; afterwards no failure of an engine, a disk
    or a sink reaches the application.

    Its arguments are the fields of `ScoringSettings` and `ServiceSettings`, which describe each; `engine` may be given
    without its name. docs/reference/settings.md lists them.
    """

    @takes(Options)
    def __init__(self, options: Options) -> None:
        self._services = in_each_process(options.configuration, _adviser_of)
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

        Each run has a unique id, `run.id`. With `resume=` an earlier run continues, in this process or in another one
        with the same store: its steps are numbered on, and its question stays.

        Args:
            question: What the run is asked. Beliefs and coverage are about it; empty if it is not known yet
                (`run.question = ...` sets it later).
            references: The answers that are known to be right, one text or several. None: the `references` of the
                RagGuard, else the run's own answer.
            id: An id of your own, which is kept beside `run.id`: by it the store finds the latest run that has it.
            resume: The id of the run to continue: the one that you gave it, or `run.id` if you gave none. If there is
                no such run, a new one begins, and the log says so.
            name: A name for the kind of run, which reports and spans show.
            sub_questions: The sub-questions that a full answer answers, for coverage; or a file (`.jsonl`) that has
                them for this question, as `ragguard questions` writes it. None: the judge makes them from the question.
            pool: All passages that could have been retrieved, with grades if they are known; RA-nWG and PROC compare
                with them.
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
        """Scores one run now; with `dry_run` returns what scoring would ask.

        Scores that the same settings gave before are read from the store. A run that is still open is scored as
        it stands, and these scores are not stored. A run that was not sampled has no scores.

        Args:
            run: A Run, or what `rg.run` yields.
            dry_run: True returns a Plan of the requests, prompts and tokens that scoring would take. Only a few short
                requests are sent, to find out what a server can do.
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
        """Scores any number of runs and yields each as soon as it is done. A failure is part of its run's result and
        stops no other run.

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

        All others are in the store once the call returns. A run replaces a stored one that has its id and question.

        Args:
            runs: Whole runs, such as `ragguard.traces.read` or `ragguard.read_runs` give them.
            amend: True: a run also replaces one that has its id and another question, which is refused otherwise; for
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

    def frame(self, rows: str = "questions") -> Any:
        """Returns all runs as a wide table of pyarrow, which `pandas.DataFrame.from_arrow`, `table.to_pandas()` and
        `polars.from_arrow` take; needs the extra `arrow`.

        Args:
            rows: A row for each of the `questions`, `hops` or `passages`. Beside its texts it has a column for each
                score; that of a question is the mean over its hops or passages, as `ragguard compare` has it.
        """
        self._service.wait_until_written()
        return Frame.of(rows, lambda read: iter(read(self._service.store))).arrow()

    def feedback(self, run: str | Run | RunHandle, thumb: Thumb, note: str = "") -> bool:
        """Keeps somebody's opinion of a run, open or not, as `feedback` in its metadata, and replaces an earlier one;
        returns False if there is no such run. Scores do not change. Inside a run, `run.feedback` does the same without
        waiting for the disk.

        Args:
            run: The run or its id.
            thumb: `up` or `down`.
            note: A remark in words.
        """
        return self._service.scoring.feedback(lambda: _id_of(run), thumb, note).result(_WRITTEN_SECONDS)

    def delete(self, run: str | Run | RunHandle) -> bool:
        """Removes a run, its scores and its texts for good; returns False if there is no such run."""
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
        """Waits until all captured runs are scored, stored and delivered, or have failed and are not tried again.

        The report is true if that was so in time. Runs that are still open are counted, and not waited for.

        Args:
            timeout: The most seconds to wait. After that, unfinished work continues, and the report is false.
        """
        return self._service.flush(timeout)

    @twin_of(flush)
    async def aflush(self, timeout: float = 10.0) -> Report:  # noqa: ASYNC109 - the same as flush
        return await in_daemon_thread(lambda: self.flush(timeout))

    def close(self, timeout: float = 10.0) -> Report:
        """Flushes, then closes engines, sinks and the store. What is not scored in time stays in the store.

        Safe to call twice.

        Args:
            timeout: How many seconds to wait at most.
        """
        return self._service.close(timeout)

    @twin_of(close)
    async def aclose(self, timeout: float = 10.0) -> Report:  # noqa: ASYNC109 - the same as close
        return await in_daemon_thread(lambda: self.close(timeout))

    def __getattr__(self, name: str) -> NoReturn:
        """Raises AttributeError, with what to do where LangChain takes this object for a callback."""
        if name in _OF_CALLBACKS:
            raise AttributeError(
                "a RagGuard is no LangChain callback: pass callbacks=[RagGuardCallback(rg)], or call instrument(rg) "
                "once, both of ragguard_langchain"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

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

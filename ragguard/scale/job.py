"""A job over many parts: its settings, what is checked before anything is written, and how its parts get scored.

Everything that can be wrong with the inputs, the settings, the folder or the engine is said before anything is
written. Whatever ends a job, the parts that are complete stay, and the same job goes on behind them.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, Protocol

from ragguard.engines.connect import AUTO, choose
from ragguard.engines.prompts import load_prompts
from ragguard.errors import EngineError, InvalidInput, StoreError, WorkerLost
from ragguard.runtime.arguments import whole_number
from ragguard.runtime.threads import BackgroundLoop
from ragguard.scale.part import Part, digest_of, find_runs, part_bytes, plan_parts
from ragguard.scorers.pipeline import ScoringPipeline
from ragguard.scorers.scorer import Scorer
from ragguard.scorers.settings import ScoringSettings
from ragguard.storage.files.partfolder import PartCounts, PartFolder, PartTotals
from ragguard.text.credentials import split_credentials
from ragguard.text.language import Language
from ragguard.text.secret_filter import without_secrets

ATTEMPTS = 3
"""The number of processes that are lost with a part, after which the job goes on without the part."""
_LOOP = BackgroundLoop("ragguard-parts")
_PICKLED = "an address, such as nano or http://HOST:PORT/v1, so that every process connects by itself"

Worker = Callable[[Part], PartCounts]
"""Has a part scored by a `PartScorer` in a process, and waits for it. Raises WorkerLost once the process has ended."""


class Executor(AbstractContextManager[object], Protocol):
    """A way to run workers. Entering it connects to the machines that score, and raises where that is not possible;
    leaving it ends all workers."""

    workers: int
    """How many workers score at once; decides how large the parts of a new folder are."""

    def worker(self, job: PartJob) -> Worker:
        """Starts a process, while fewer than `workers` others are running; waits until there is a machine for it."""
        ...


@dataclass(frozen=True, kw_only=True)
class PartJob:
    """Everything that a process needs to score parts; it can be pickled.

    Prompts are read when the job is made, so that all processes ask the same ones.
    """

    scoring: ScoringSettings
    """The models, given as addresses, and the scorers. A budget is refused: each process would count its own."""
    out: str
    """The folder of scores, which all machines that score see."""
    references: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The known right answers by run id or question, for runs that bring none."""
    concurrency: int = 8
    """How many runs a process scores at once, 1 or more."""
    patience_s: float = 600.0
    """The seconds for which a process waits for an engine that does not answer."""

    def __post_init__(self) -> None:
        """Refuses what cannot be given to another process."""
        scoring = self.scoring
        for name in ("engine", "judge", "entailer"):
            if not isinstance(model := getattr(scoring, name), str | None):
                raise InvalidInput(name, model, _PICKLED)
        if scoring.budget is not None:
            raise InvalidInput("budget", scoring.budget, "no budget: each process would spend one of its own")
        whole_number("concurrency", self.concurrency, 1)
        if scoring.engine == AUTO:  # chosen here and not anew by each process
            scoring = replace(scoring, engine=choose().address)
        if scoring.prompts is not None:
            scoring = replace(scoring, prompts=load_prompts(scoring.prompts))
        object.__setattr__(self, "scoring", scoring)

    @cached_property
    def record(self) -> dict[str, Any]:
        """The settings that decide about scores, as JSON takes them: without keys, texts of prompts as a digest."""
        scoring, caps = self.scoring, self.scoring.chosen_caps
        prompts = None if scoring.prompts is None else load_prompts(scoring.prompts)
        record = {
            "engine": _address(scoring.engine),
            "engine_args": digest_of(scoring.engine_args) if scoring.engine_args else {},
            "judge": _address(scoring.judge),
            "entailer": _address(scoring.entailer),
            "scorers": [_scorer(scorer) for scorer in scoring.chosen_scorers],
            "prompts": prompts and [prompts.identity, digest_of(dataclasses.asdict(prompts))],
            "caps": caps and dataclasses.asdict(caps),
            "references": digest_of(self.references) if self.references else None,
        }
        # Any other setting counts if it is not the default: a new one leaves the digests of folders as they are.
        for one in dataclasses.fields(scoring):
            value = getattr(scoring, one.name)
            if one.name not in (*record, "effort", "budget") and value != one.default:
                record[one.name] = digest_of(
                    dataclasses.asdict(value) if isinstance(value, Language) else value
                )
        return record

    @cached_property
    def digest(self) -> str:
        """A digest of `record`; part of the key of every part."""
        return digest_of(self.record)

    @property
    def folder(self) -> PartFolder:
        """The folder of scores."""
        return PartFolder(self.out)

    def loads(self, *schemes: str) -> bool:
        """Returns whether each process loads a model for itself, under one of these schemes, such as `vllm`."""
        models = (self.scoring.engine, self.scoring.judge, self.scoring.entailer)
        return any(str(model).strip().partition(":")[0] in schemes for model in models)


@dataclass(slots=True, kw_only=True)
class PreparedJob:
    """A job that was checked and planned, with the counts of its parts."""

    job: PartJob
    parts: Mapping[str, Part]
    """All parts of the inputs by their keys; of parts with equal content one."""
    size: int
    """About how many bytes a part has."""
    left: list[Part] = field(default_factory=list)
    """The parts to score: those that were not complete."""
    before: PartTotals = field(default_factory=PartTotals)
    """The counts of the other parts, which were complete before."""
    now: PartTotals = field(default_factory=PartTotals)
    """The counts of the parts that were completed since."""
    lost: list[str] = field(default_factory=list)
    """The parts that no process came to an end with, each with the reason."""

    @property
    def whole(self) -> bool:
        """True where every line was read and every score was given."""
        return not (self.lost or any(total.failures or total.rejected for total in (self.before, self.now)))


def prepare(
    inputs: Sequence[str | Path],
    job: PartJob,
    *,
    workers: int = 1,
    size: int | None = None,
) -> PreparedJob:
    """Returns the parts of a job and which of them are left to do; raises whatever is wrong, and writes nothing.

    A model that cannot be reached is an error; those that each process loads for itself (`vllm:`, `hf:`) are not looked
    at.

    Args:
        inputs: Run files and folders of run files.
        job: The settings.
        workers: How many processes will score; for the size of parts.
        size: About how many bytes a part of a new folder has. None: as it fits inputs and workers.
    """
    folder, files = job.folder, find_runs(inputs)
    if any(folder.path.is_relative_to(Path(given).absolute()) for given in inputs):
        raise InvalidInput("out", str(folder), "a folder outside of the input")
    known = folder.settings()
    if known is None:
        size = size or part_bytes(files, workers)
    else:
        _check_same(folder, known["settings"], job)
        size = int(known["part_bytes"])
    parts = {part.key(job.digest): part for part in plan_parts(files, size)}
    if not parts:
        raise StoreError(f"there are no runs in {', '.join(map(str, inputs))}")
    complete = {key: folder.counts(key) for key in folder.finished()}
    for key in complete:
        folder.store_of(key)  # raises for one that is damaged
    _check_unchanged(folder, complete, parts)
    prepared = PreparedJob(job=job, parts=parts, size=size)
    for key, part in parts.items():
        if key not in complete:
            prepared.left.append(part)
        else:
            prepared.before.add(complete[key].totals)
    if prepared.left and not job.loads("vllm", "hf"):
        _check_engine(job, complete)
    return prepared


def carry_out(
    prepared: PreparedJob,
    executor: Executor,
    on_part: Callable[[PartCounts], object] = lambda counts: None,
) -> PreparedJob:
    """Scores what is left of a job and returns it with its counts; interrupts and errors leave what is complete.

    Args:
        prepared: The job.
        executor: What makes the workers that score. Nothing is started if no part is left.
        on_part: Called with the counts of each part that was completed, after the job has them.
    """
    folder = prepared.job.folder
    if prepared.left:
        with executor, folder.locked():
            folder.begin(prepared.job.record, prepared.size, prepared.parts)
            for counts in _completed(prepared, executor):
                prepared.now.add(counts.totals)
                on_part(counts)
            folder.clean()
    return prepared


def _completed(prepared: PreparedJob, executor: Executor) -> Iterator[PartCounts]:
    """Yields the counts of each part once it is complete. A worker that is lost is replaced, and its part is tried
    again; a part with which too many are lost is left out, or ends the job where no part was completed before."""
    waiting, lost = deque(prepared.left), Counter[Part | None]()
    idle: list[Worker] = []
    starting = working = 0
    # Not futures: an interrupt while they are waited for can leave their locks held, and their pool never ends.
    done: SimpleQueue[tuple[Part | None, Worker | None, Any]] = SimpleQueue()

    def begin(part: Part | None, worker: Worker | None) -> None:
        """Starts a worker in a thread, which may have to wait for a machine; or has one score a part there."""

        def wait() -> None:
            try:
                done.put((part, worker, worker(part) if worker and part else executor.worker(prepared.job)))
            except BaseException as error:  # noqa: BLE001 - it is raised in the thread that waits for all
                done.put((part, worker, error))

        Thread(target=wait, name="ragguard-parts", daemon=True).start()

    while waiting or working:
        while waiting and idle:
            begin(waiting.popleft(), idle.pop())
            working += 1
        while starting < min(len(waiting), executor.workers - working):
            begin(None, None)
            starting += 1
        part, worker, answer = done.get()
        if part is None:
            starting -= 1
        else:
            working -= 1
        if isinstance(answer, WorkerLost):
            lost[part] += 1
            if lost[part] >= ATTEMPTS:
                why = f"{part or 'start'}: {ATTEMPTS} processes were lost with it, the last one {answer}"
                if part is None or not prepared.now.parts:
                    raise EngineError(f"{why}; their own messages, if any, stand above") from answer
                prepared.lost.append(why)
            elif part is not None:
                waiting.appendleft(part)
        elif isinstance(answer, BaseException):
            raise answer
        else:
            idle.append(worker or answer)
            if part is not None:
                yield answer


def _check_same(folder: PartFolder, theirs: Mapping[str, Any], job: PartJob) -> None:
    """Raises where the folder was made with other settings; names those that differ."""
    differing = "; ".join(
        f"{name} was {theirs.get(name)!r}, is {value!r}"
        for name, value in job.record.items()
        if theirs.get(name) != value
    )
    if differing:
        raise StoreError(
            f"{folder} holds scores of other settings ({differing}); name a new folder, or take its settings"
        )


def _check_unchanged(
    folder: PartFolder, complete: Mapping[str, PartCounts], parts: Mapping[str, Part]
) -> None:
    """Raises where the folder holds parts of a file as it was before: its scores would stand twice."""
    planned = {part.source for part in parts.values()}
    changed = {counts.source for key, counts in complete.items() if key not in parts} & planned
    if changed:
        more = f" and {len(changed) - 1:,} more files" if len(changed) > 1 else ""
        raise StoreError(
            f"{folder} holds scores of {min(changed)}{more} as they were before they were changed; name a new folder"
        )


def _check_engine(job: PartJob, complete: Mapping[str, PartCounts]) -> None:
    """Raises where a model cannot be reached, or is another one than that which scored the complete parts."""

    async def found() -> str:
        async with aclosing(job.scoring.build()) as pipeline:
            return await identity_digest(pipeline)

    identity = _LOOP.run(found())
    if any(counts.identity not in ("", identity) for counts in complete.values()):
        raise EngineError(
            f"what {job.folder} holds was scored by another model, judge, prompts or version than now answers; name a "
            "new folder, or bring the old one back"
        )


async def identity_digest(pipeline: ScoringPipeline) -> str:
    """Returns a digest of engine, judge, prompts and scorers; raises where a model cannot be reached."""
    return digest_of(dataclasses.asdict(await pipeline.identity()))


def _address(model: object) -> str | None:
    if model is None:
        return None
    address = str(model).strip()
    if address.partition("://")[0] in ("http", "https"):
        address = split_credentials("engine", address, _PICKLED)[0]
    return without_secrets(address)


def _scorer(scorer: str | Scorer) -> object:
    if isinstance(scorer, str):
        return scorer
    own = {name: repr(getattr(scorer, name)) for name in getattr(scorer, "__dataclass_fields__", {})}
    return [scorer.name, scorer.version, own]

"""Drives a job over many parts, from its inputs to its report; an executor makes the workers that score.

Everything that can be wrong with the inputs, the settings, the folder or the engine is said before anything is
written. Whatever ends a job, the parts that are complete stay, and the same job goes on behind them.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import aclosing, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ragguard.errors import EngineError, InvalidInput, PartUnanswered, StoreError, WorkerLost
from ragguard.parts.part import Part, find_runs, part_bytes, plan_parts
from ragguard.parts.part_job import PartJob
from ragguard.parts.part_scorer import identity_digest
from ragguard.runtime.threads import BackgroundLoop
from ragguard.storage.files.partfolder import PartCounts, PartFolder, PartTotals

_LOOP = BackgroundLoop("ragguard-parts")
_HEAVY = ("vllm:", "hf:")
"""Engines that are loaded by the processes that score alone."""
_SHOWN = 3
_LOST_AT_START = 3
"""The number of workers in a row that are lost before they can score, after which the job ends."""


class PartWorker(Protocol):
    """A process that scores parts with a `PartScorer`. Its futures raise WorkerLost once the process has ended,
    PartUnanswered where it should be replaced, and other errors where another attempt would not help."""

    slots: int
    """How many parts it scores at once."""

    def start(self, *, after_loss: bool) -> Future[Any]:
        """Loads or reaches the engine; see `PartScorer.start`."""
        ...

    def attempt(self, part: Part, causes: Sequence[str]) -> Future[PartCounts]:
        """Scores a part; see `PartScorer.attempt`."""
        ...

    def stop(self) -> None:
        """Ends the process, whatever it does; does not wait until it has ended."""
        ...


class Executor(Protocol):
    """A way to run workers: see `parts/processes.py`."""

    workers: int
    """How many workers score at once; decides how large the parts of a new folder are."""

    def connect(self) -> None:
        """Connects to the machines that score; called once, where parts are left. Raises where that is not possible."""
        ...

    def worker(self, job: PartJob) -> PartWorker:
        """Returns a new worker; fewer than `workers` others are running."""
        ...

    def close(self) -> None:
        """Waits until all stopped workers have ended, and closes the connection."""
        ...


@dataclass(slots=True, kw_only=True)
class PreparedJob:
    """A job that was checked and planned; no part of it was started."""

    job: PartJob
    folder: PartFolder
    parts: list[Part]
    """All parts of the inputs; of parts with equal content one."""
    left: list[Part]
    """The parts to score: those that are not complete, and those that are scored again for their failures."""
    settings: Mapping[str, Any]
    """The settings of the folder."""
    progress: JobProgress


@dataclass(slots=True, kw_only=True)
class JobReport:
    """The result of a job."""

    progress: JobProgress

    @property
    def totals(self) -> PartTotals:
        """The counts of what this call has done."""
        return self.progress.now

    @property
    def whole(self) -> bool:
        """True where every line was read and every score was given."""
        before, now = self.progress.before, self.progress.now
        return not (before.failures or now.failures or before.rejected or now.rejected)


def prepare(
    inputs: Sequence[str | Path],
    job: PartJob,
    *,
    workers: int = 1,
    size: int | None = None,
    reach_engine: bool = True,
    retry_failures: bool = False,
) -> PreparedJob:
    """Returns the parts of a job and which of them are left to do; raises whatever is wrong, and writes nothing.

    Args:
        inputs: Run files and folders of run files.
        job: The settings.
        workers: How many processes will score; for the size of parts.
        size: About how many bytes a part has. None: the size in the folder, else one that fits inputs and workers.
        reach_engine: True where a model that cannot be reached is an error; models that each process loads for
            itself (`vllm:`, `hf:`) are not looked at.
        retry_failures: True where complete parts that hold failures are left to do as well. Such a part is scored
            again as a whole, and keeps its result until the new one is written.
    """
    folder = job.folder
    files = find_runs(inputs)
    _check_apart(inputs, folder)
    known = folder.settings()
    if known is not None:
        _check_same(folder, known, job)
        if size is not None and size != known["part_bytes"]:
            raise InvalidInput(
                "size", size, f"{known['part_bytes']}, as {folder} was begun with, or another folder"
            )
        size = int(known["part_bytes"])
    size = size or part_bytes(sum(file.stat().st_size for file in files), workers)
    parts: dict[str, Part] = {}
    for part in plan_parts(files, size):
        parts.setdefault(part.key(job.digest), part)
    if not parts:
        raise StoreError(f"there are no runs in {', '.join(map(str, inputs))}")
    finished = [] if known is None else folder.finished()
    _check_unchanged(folder, [key for key in finished if key not in parts], files_of=parts.values())
    complete = {key: folder.counts(key) for key in finished if key in parts}
    reused = {
        key: counts for key, counts in complete.items() if not (retry_failures and counts.totals.failures)
    }
    progress = JobProgress(all_parts=len(parts), all_bytes=sum(part.bytes for part in parts.values()))
    for counts in reused.values():
        progress.before.add(counts.totals)
    prepared = PreparedJob(
        job=job, folder=folder, parts=[*parts.values()], progress=progress,
        left=[part for key, part in parts.items() if key not in reused],
        settings={"settings": job.record, "part_bytes": size},
    )  # fmt: skip
    if prepared.left and reach_engine:
        _check_engine(prepared, [*complete.values()][:1])
    return prepared


def carry_out(
    prepared: PreparedJob,
    executor: Executor,
    on_part: Callable[[PartCounts, JobProgress], object] = lambda counts, progress: None,
) -> JobReport:
    """Scores what is left of a job and returns the report; interrupts and errors leave what is complete.

    Args:
        prepared: The job.
        executor: What makes the workers that score. Nothing is started where no part is left.
        on_part: Called with the counts of each part that was completed.
    """
    folder, progress = prepared.folder, prepared.progress
    keys = [part.key(prepared.job.digest) for part in prepared.parts]
    if prepared.left:
        try:
            executor.connect()  # errors of the connection are raised before anything is written
            with folder.locked():
                folder.begin(prepared.settings, keys)
                with closing(_completed(prepared.job, executor, prepared.left)) as stream:
                    for completed in stream:
                        progress.now.add(completed.totals)
                        on_part(completed, progress)
                folder.clean(keys)
        finally:
            executor.close()
    return JobReport(progress=progress)


def _completed(job: PartJob, executor: Executor, parts: Sequence[Part]) -> Generator[PartCounts, None, None]:
    """Yields the counts of each part once it is complete. A worker that is lost, or whose engine is silent, is
    replaced, and its parts are tried again; after too many attempts `PartScorer` makes their runs failures."""
    waiting = deque(parts)
    causes: dict[Part, list[str]] = defaultdict(list)
    """The reasons for which the attempts at each part ended."""
    ready: dict[PartWorker, bool] = {}
    """The workers that run; True for those that have started."""
    pending: dict[Future[Any], tuple[PartWorker, Part | None]] = {}
    """The current work of each worker: an attempt at a part, or its start."""
    lost_at_start = 0
    try:
        while waiting or any(part is not None for _, part in pending.values()):
            wanted = len(waiting) + sum(part is not None for _, part in pending.values())
            while len(ready) < executor.workers and sum(worker.slots for worker in ready) < wanted:
                worker = executor.worker(job)
                ready[worker] = False
                pending[worker.start(after_loss=bool(causes) or lost_at_start > 0)] = worker, None
            taken = Counter(worker for worker, _ in pending.values())
            for worker in ready:
                while ready[worker] and waiting and taken[worker] < worker.slots:
                    next_part = waiting.popleft()
                    pending[worker.attempt(next_part, causes[next_part])] = worker, next_part
                    taken[worker] += 1
            for done in wait(pending, return_when=FIRST_COMPLETED).done:
                if done not in pending:  # its worker was lost with another part
                    continue
                worker, part = pending.pop(done)
                try:
                    result = done.result()
                except (PartUnanswered, WorkerLost) as error:
                    lost_at_start = 0 if ready.pop(worker) else lost_at_start + 1
                    if lost_at_start >= _LOST_AT_START:
                        raise EngineError(
                            f"{lost_at_start} processes in a row ended before they could score, the last one {error}; "
                            "their own messages, if any, stand above"
                        ) from error
                    worker.stop()
                    others = [future for future, (owner, _) in pending.items() if owner is worker]
                    for given_up in filter(None, (part, *(pending.pop(future)[1] for future in others))):
                        causes[given_up].append(
                            f"its process {error}" if isinstance(error, WorkerLost) else str(error)
                        )
                        if len(causes[given_up]) > job.attempts:
                            raise StoreError(
                                f"{given_up.source}, {given_up.start} to {given_up.end}: every process that read this "
                                "part was lost; look at it"
                            ) from error
                        waiting.appendleft(given_up)
                else:
                    if part is None:
                        ready[worker], lost_at_start = True, 0
                    else:
                        yield result
    finally:
        for worker in ready:
            worker.stop()


def _check_apart(inputs: Iterable[str | Path], folder: PartFolder) -> None:
    for given in inputs:
        if folder.path.is_relative_to(Path(given).absolute()):
            raise InvalidInput("out", str(folder), "a folder outside of the input")


def _check_same(folder: PartFolder, known: Mapping[str, Any], job: PartJob) -> None:
    """Raises where the folder was made with other settings; names those that differ."""
    theirs = known["settings"]
    names = [name for name, value in job.record.items() if theirs.get(name) != value]
    if names:
        differing = "; ".join(f"{name} was {theirs.get(name)!r}, is {job.record[name]!r}" for name in names)
        raise StoreError(
            f"{folder} holds scores of other settings ({differing}); name a new folder, or take its settings"
        )


def _check_unchanged(folder: PartFolder, foreign: Sequence[str], *, files_of: Iterable[Part]) -> None:
    """Raises where the folder holds parts of a file as it was before: its scores would stand twice."""
    if not foreign:
        return
    planned = {part.source for part in files_of}
    changed = sorted({folder.counts(key).source for key in foreign} & planned)
    if changed:
        more = f" and {len(changed) - _SHOWN:,} more files" if len(changed) > _SHOWN else ""
        raise StoreError(
            f"{folder} holds scores of {', '.join(changed[:_SHOWN])}{more} as they were before they were changed; "
            "name a new folder"
        )


def _check_engine(prepared: PreparedJob, complete: Sequence[PartCounts]) -> None:
    """Raises where a model cannot be reached, or is another one than that which scored these complete parts."""
    job = prepared.job
    models = (job.scoring.engine, job.scoring.judge, job.scoring.entailer)
    if any(str(model).strip().startswith(_HEAVY) for model in models):
        return
    identity = _LOOP.run(_identity(job))
    if any(counts.identity not in ("", identity) for counts in complete):
        raise EngineError(
            f"what {prepared.folder} holds was scored by another model, judge, prompts or version than now "
            "answers; name a new folder, or bring the old one back"
        )


async def _identity(job: PartJob) -> str:
    async with aclosing(job.scoring.build()) as pipeline:
        return await identity_digest(pipeline)


@dataclass(slots=True, kw_only=True)
class JobProgress:
    """The counts of the parts that were complete when a job began, and of those completed since."""

    all_parts: int
    all_bytes: int
    """The size of all parts together, complete or not."""
    before: PartTotals = field(default_factory=PartTotals)
    """The parts that were complete before."""
    now: PartTotals = field(default_factory=PartTotals)
    started: float = field(default_factory=time.monotonic)

    @property
    def bytes(self) -> int:
        """The bytes of the parts that are complete."""
        return self.before.bytes + self.now.bytes

    @property
    def elapsed(self) -> float:
        """Seconds since the job began."""
        return time.monotonic() - self.started

    @property
    def runs_a_second(self) -> float:
        """The rate since the job began."""
        return self.now.runs / max(self.elapsed, 1e-9)

    @property
    def seconds_left(self) -> float | None:
        """The seconds that the rest takes, about, at the rate since the job began; None before a part is complete."""
        if not self.now.bytes:
            return None
        return self.elapsed * (self.all_bytes - self.bytes) / self.now.bytes

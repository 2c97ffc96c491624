"""A job over many parts, from its inputs to its report; what runs the parts (processes, Ray) is an executor.

Everything that can be wrong with the inputs, the settings, the folder or the engine is said before anything is
written. Whatever ends a job, the parts that are complete stay, and the same job goes on behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ragguard.errors import EngineError, InvalidInput, StoreError
from ragguard.parts.duplicates import Duplicate, find_duplicates
from ragguard.parts.part import Part
from ragguard.parts.plan import find_runs, part_bytes, plan_parts
from ragguard.parts.scoring import identity_digest
from ragguard.parts.settings import PartJob
from ragguard.parts.totals import JobProgress, JobTotals
from ragguard.runtime.background_loop import BackgroundLoop
from ragguard.storage.files.partfolder import PartFolder
from ragguard.storage.files.parttables import PartCounts
from ragguard.storage.sqlite.filesystems import locate

_LOOP = BackgroundLoop("ragguard-parts")
_HEAVY = ("vllm:", "hf:")
"""Engines that are loaded by the processes that score alone."""
_SHOWN = 3


class Executor(Protocol):
    """A way to score parts in other processes: see `parts/processes.py`."""

    workers: int
    """How many processes score at once; decides how large the parts of a new folder are."""

    def connect(self) -> None:
        """Connects to the machines that score; called once, where parts are left. Raises where that is not possible."""
        ...

    def completed(self, job: PartJob, parts: Sequence[Part]) -> Generator[PartCounts, None, None]:
        """Yields the counts of each part once it is complete, in any order; each part is scored with a `PartScorer`.

        A process that raises PartUnanswered or is lost is replaced, and its part is tried again: `PartScorer`
        counts attempts. Raises errors that another attempt would not mend. Closing the generator ends all processes.
        """
        ...


@dataclass(slots=True, kw_only=True)
class PreparedJob:
    """A job that was checked and planned; no part of it was started."""

    job: PartJob
    folder: PartFolder
    parts: list[Part]
    """All parts of the inputs."""
    left: list[Part]
    """The parts to score: those that are not complete, and those that are scored again for their failures."""
    finished: list[str]
    """The keys of all other parts, which are complete."""
    settings: Mapping[str, Any]
    """The settings of the folder."""
    progress: JobProgress


@dataclass(slots=True, kw_only=True)
class JobReport:
    """The result of a job."""

    progress: JobProgress
    duplicates: list[Duplicate] = field(default_factory=list)
    """Run ids that stand in two places of the inputs; their scores stand twice."""

    @property
    def totals(self) -> JobTotals:
        """The counts of what this call has done."""
        return self.progress.now

    @property
    def whole(self) -> bool:
        """True where every line was read and every score was given."""
        before, now = self.progress.before, self.progress.now
        return not (before.failures or now.failures or before.rejected or now.rejected or self.duplicates)


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
        inputs: Run files and folders of run files, local or at addresses of pyarrow's.
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
    size = size or part_bytes(files, workers)
    parts = plan_parts(files, size)
    if not parts:
        raise StoreError(f"there are no runs in {', '.join(map(str, inputs))}")
    keys = {part.key(job.digest): part for part in parts}
    finished = [] if known is None else folder.finished()
    _check_unchanged(folder, [key for key in finished if key not in keys], files_of=parts)
    complete = sorted(set(finished) & keys.keys())
    kept = set(complete)
    if retry_failures:
        kept -= {counts.key for counts in folder.counts(complete) if counts.failures}
    left = [part for key, part in keys.items() if key not in kept]
    progress = JobProgress(all_parts=len(parts), all_bytes=sum(part.bytes for part in parts))
    progress.before.parts = len(kept)
    progress.before.bytes = progress.all_bytes - sum(part.bytes for part in left)
    settings = {"settings": job.record, "part_bytes": size}
    prepared = PreparedJob(
        job=job, folder=folder, parts=parts, left=left, finished=sorted(kept), settings=settings,
        progress=progress,
    )  # fmt: skip
    if left and reach_engine:
        _check_engine(prepared, complete[:1])
    return prepared


def carry_out(
    prepared: PreparedJob,
    executor: Executor,
    on_part: Callable[[PartCounts, JobProgress], object] = lambda counts, progress: None,
) -> JobReport:
    """Scores what is left of a job and returns the report; interrupts and errors leave what is complete.

    Args:
        prepared: The job.
        executor: What has the parts scored. Nothing is started where no part is left.
        on_part: Called with the counts of each part that was completed.
    """
    folder, progress = prepared.folder, prepared.progress
    keys = [part.key(prepared.job.digest) for part in prepared.parts]
    if prepared.finished:
        before = JobTotals()
        for counts in folder.counts(prepared.finished):
            before.add(counts)
        before.bytes = progress.before.bytes
        progress.before = before
    if prepared.left:
        executor.connect()  # what cannot be reached is said before anything is written
        folder.begin(prepared.settings, keys)
        stream = executor.completed(prepared.job, prepared.left)
        try:
            for counts in stream:
                progress.now.add(counts)
                on_part(counts, progress)
        finally:
            stream.close()
    missing = set(keys) - set(folder.finished())
    if missing:
        raise StoreError(f"{len(missing):,} parts are not complete; run the same again")
    folder.clean(keys)
    return JobReport(
        progress=progress, duplicates=find_duplicates(folder, keys, progress.before.runs + progress.now.runs)
    )


def _check_apart(inputs: Iterable[str | Path], folder: PartFolder) -> None:
    for given in inputs:
        path = locate(given).path
        if f"{folder.place.path}/".startswith(f"{path.rstrip('/')}/"):
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


def _check_unchanged(folder: PartFolder, foreign: Sequence[str], *, files_of: Sequence[Part]) -> None:
    """Raises where the folder holds parts of a file as it was before: its scores would stand twice."""
    if not foreign:
        return
    planned = {part.shown for part in files_of}
    changed = sorted({counts.source for counts in folder.counts(foreign)} & planned)
    if changed:
        more = f" and {len(changed) - _SHOWN:,} more files" if len(changed) > _SHOWN else ""
        raise StoreError(
            f"{folder} holds scores of {', '.join(changed[:_SHOWN])}{more} as they were before they were changed; "
            "name a new folder"
        )


def _check_engine(prepared: PreparedJob, complete: Sequence[str]) -> None:
    """Raises where a model cannot be reached, or is another one than that which scored these complete parts."""
    job = prepared.job
    models = (job.scoring.engine, job.scoring.judge, job.scoring.entailer)
    if any(str(model).strip().startswith(_HEAVY) for model in models):
        return
    identity = _LOOP.run(_identity(job))
    for counts in prepared.folder.counts(complete):
        if counts.identity not in ("", identity):
            raise EngineError(
                f"what {prepared.folder} holds was scored by another model, judge, prompts or version than now "
                "answers; name a new folder, or bring the old one back"
            )


async def _identity(job: PartJob) -> str:
    async with aclosing(job.scoring.build()) as pipeline:
        return await identity_digest(pipeline)

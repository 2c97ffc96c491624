"""Folders of scored parts, written as `ragguard score --out DIR` writes them, from records made by hand; and an
executor in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from typing import Any

from ragguard.parts import Part, PartJob, PartScorer
from ragguard.records import Score, ScoredRun
from ragguard.storage.files.partfolder import PartCounts, PartFolder, totals_of
from ragguard.storage.sqlite.store import Store


def write_parts(folder: Path, scored: Sequence[ScoredRun], *, size: int = 2, rejected: int = 0) -> list[str]:
    """Writes runs into a folder, `size` runs a part; returns the keys of the parts, in order."""
    cut = [scored[at : at + size] for at in range(0, len(scored), size)]
    keys = [f"{number:04x}" for number in range(len(cut))]
    target = PartFolder(folder)
    target.begin({"settings": {}, "part_bytes": 1}, keys)
    for key, runs in zip(keys, cut, strict=True):
        write_part(target, key, runs, rejected=rejected)
    return keys


def write_part(folder: PartFolder, key: str, runs: Sequence[ScoredRun], *, rejected: int = 0) -> None:
    """Writes one part."""
    totals = totals_of(runs)
    totals.rejected = rejected
    folder.write(PartCounts(key=key, source="/runs.jsonl", start=0, end=1, totals=totals), runs)


def scored_in(folder: PartFolder) -> list[ScoredRun]:
    """Returns the scored runs of all complete parts."""
    found: list[ScoredRun] = []
    for key in folder.finished():
        with closing(Store(folder.store_of(folder.counts(key)), read_only=True)) as store:
            found += store.scored_runs()
    return found


def scores_in(folder: PartFolder) -> list[Score]:
    """Returns the scores of all complete parts."""
    return [score for scored in scored_in(folder) for score in scored.scores]


class ExecutorHere:
    """An executor whose one worker scores in this process.

    Args:
        stop_after: The parts after which it is interrupted.
    """

    workers = 1

    def __init__(self, stop_after: int = 10**9) -> None:
        self.stop_after, self.started, self.connected, self.closed = stop_after, 0, False, False

    def connect(self) -> None:
        """Notes that it was called."""
        self.connected = True

    def worker(self, job: PartJob) -> WorkerHere:
        """Returns the worker."""
        assert self.connected
        self.started += 1
        return WorkerHere(job, self.stop_after)

    def close(self) -> None:
        """Notes that it was called."""
        self.closed = True


class WorkerHere:
    """Scores parts while its caller waits."""

    slots = 1

    def __init__(self, job: PartJob, stop_after: int) -> None:
        self.scorer, self.left = PartScorer(job), stop_after

    def start(self, *, after_loss: bool) -> Future[Any]:
        """Reaches the engine."""
        return _done(lambda: asyncio.run(self.scorer.start(after_loss=after_loss)))

    def attempt(self, part: Part, causes: Sequence[str]) -> Future[PartCounts]:
        """Scores a part."""
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        return _done(lambda: asyncio.run(self.scorer.attempt(part, causes)))

    def stop(self) -> None:
        """Does nothing."""


def _done(work: Any) -> Future[Any]:
    future: Future[Any] = Future()
    try:
        future.set_result(work())
    except Exception as error:  # noqa: BLE001 - it is the future's
        future.set_exception(error)
    return future

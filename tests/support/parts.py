"""Folders of scored parts, written as `ragguard score --out DIR` writes them, from records made by hand; and an
executor in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from ragguard.errors import RagguardError
from ragguard.records import Score, ScoredRun
from ragguard.scale import PartJob
from ragguard.scale.job import Worker
from ragguard.scale.part import Part
from ragguard.scale.part_scorer import PartScorer
from ragguard.storage.files.partfolder import PartCounts, PartFolder, totals_of
from ragguard.storage.sqlite.reader import StoreReader


def write_parts(folder: Path, scored: Sequence[ScoredRun], *, size: int = 2, rejected: int = 0) -> list[str]:
    """Writes runs into a folder, `size` runs a part; returns the keys of the parts, in order."""
    cut = [scored[at : at + size] for at in range(0, len(scored), size)]
    keys = [f"{number:04x}" for number in range(len(cut))]
    target = PartFolder(folder)
    target.begin({}, 1, keys)
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
        with closing(StoreReader(folder.store_of(key))) as store:
            found += store.scored_runs()
    return found


def scores_in(folder: PartFolder) -> list[Score]:
    """Returns the scores of all complete parts."""
    return [score for scored in scored_in(folder) for score in scored.scores]


class ExecutorHere:
    """An executor whose one worker scores in this process, while its caller waits.

    Args:
        stop_after: The parts after which it is interrupted.
    """

    workers = 1

    def __init__(self, stop_after: int = 10**9) -> None:
        self.left, self.started = stop_after, 0

    def __enter__(self) -> ExecutorHere:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def worker(self, job: PartJob) -> Worker:
        """Returns the worker."""
        self.started += 1
        scorer = PartScorer(job)

        def score(part: Part) -> PartCounts:
            if not self.left:
                raise KeyboardInterrupt
            self.left -= 1
            answer = asyncio.run(scorer.answer(part))
            if isinstance(answer, RagguardError):
                raise answer
            return answer

        return score

"""Folders of scored parts, written as `ragguard score --out DIR` writes them, from records made by hand; and an
executor in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path

import pyarrow

from ragguard.parts import Part, PartJob, PartScorer
from ragguard.records import ScoredRun
from ragguard.storage.files.partfolder import PartFolder
from ragguard.storage.files.parttables import PartCounts, PartRows
from ragguard.storage.sqlite.filesystems import pyarrow_for


def write_parts(folder: Path, scored: Sequence[ScoredRun], *, size: int = 2, rejected: int = 0) -> list[str]:
    """Writes runs into a folder, `size` runs a part; returns the keys of the parts, in order."""
    pyarrow_for("tests")
    cut = [scored[at : at + size] for at in range(0, len(scored), size)]
    keys = [f"{number:04x}" for number in range(len(cut))]
    target = PartFolder(folder)
    target.begin({"settings": {}, "part_bytes": 1}, keys)
    for key, runs in zip(keys, cut, strict=True):
        write_part(target, key, runs, rejected=rejected)
    return keys


def write_part(folder: PartFolder, key: str, runs: Iterable[ScoredRun], *, rejected: int = 0) -> None:
    """Writes one part."""
    rows = PartRows()
    for place, one in enumerate(runs):
        rows.add(place, one)
    counts = PartCounts(
        key=key, source="runs.jsonl", kind="lines", start=0, end=1, bytes=1, rejected=rejected, **rows.totals
    )
    folder.write(counts, rows.tables(pyarrow))


class ExecutorHere:
    """An executor in this process.

    Args:
        stop_after: The parts after which it is interrupted.
    """

    workers = 1

    def __init__(self, stop_after: int = 10**9) -> None:
        self.stop_after, self.started, self.connected = stop_after, 0, False

    def connect(self) -> None:
        """Notes that it was called."""
        self.connected = True

    def completed(self, job: PartJob, parts: Sequence[Part]) -> Generator[PartCounts, None, None]:
        """Scores the parts one after another."""
        assert self.connected
        self.started += 1
        scorer = PartScorer(job)
        asyncio.run(scorer.start())
        for part in parts[: self.stop_after]:
            yield asyncio.run(scorer.attempt(part))
        if len(parts) > self.stop_after:
            raise KeyboardInterrupt

"""Folders of scored parts, written as `ragguard score --out DIR` writes them, from records made by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow

from ragguard.records import ScoredRun
from ragguard.store.filesystems import pyarrow_for
from ragguard.store.partfolder import PartFolder
from ragguard.store.parttables import PartCounts, PartRows


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

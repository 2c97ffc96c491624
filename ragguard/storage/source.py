"""Reads scored runs from a store, or from a folder of parts that `ragguard score --out DIR` wrote.

Reports, comparisons and validations read a `ScoredSource` and do not know which of the two it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from ragguard.errors import InvalidInput
from ragguard.records import Level, Run, ScoredRun
from ragguard.storage.files.partfolder import is_part_folder
from ragguard.storage.sqlite.files import is_store
from ragguard.storage.sqlite.filesystems import pyarrow_for
from ragguard.storage.sqlite.means import RunMeans
from ragguard.storage.sqlite.overview import Overview, RunLine
from ragguard.storage.sqlite.store import Store


class ScoredSource(Protocol):
    """Runs with their scores and failures, to be read in the order in which they were stored."""

    @property
    def has_texts(self) -> bool:
        """True where runs come with their steps and the texts of their passages."""
        ...

    @property
    def remarks(self) -> list[str]:
        """The facts that a reader of the numbers has to know, a sentence each: runs that are missing or cannot be read.
        Complete once an iterator has ended."""
        ...

    def run_ids(self) -> Sequence[str]:
        """Returns the ids of all runs."""
        ...

    def scored_run(self, run_id: str) -> ScoredRun | None:
        """Returns one run with its scores and failures; None where there is none of that id."""
        ...

    def scored_runs(self, *, texts: bool = True, level: Level | None = None) -> Iterator[ScoredRun]:
        """Yields all runs with their failures and their scores, of one level where one is named."""
        ...

    def lines(self, misleads: float) -> Iterator[RunLine]:
        """Yields all runs for a list of them; a passage that the model got counts as misleading where its
        utility is under `misleads`."""
        ...

    def overviews(self, misleads: float) -> Iterator[Overview]:
        """Yields all runs for a page."""
        ...

    def means(self) -> Iterator[RunMeans]:
        """Yields all runs for a comparison."""
        ...

    def close(self) -> None:
        """Closes the files."""
        ...


def is_folder(path: str | Path) -> bool:
    """True where a path is that of a local folder, or an address such as `s3://bucket/scores`."""
    return "://" in str(path) or Path(path).is_dir()


def holds_parts(path: str | Path) -> bool:
    """True where a path is that of a folder of parts; every address such as `s3://…` counts as one."""
    return "://" in str(path) or is_part_folder(path)


def is_source(path: str | Path) -> bool:
    """True where a path is that of a store or of a folder, which `open_source` opens."""
    return is_folder(path) or is_store(path)


def open_source(path: str | Path, runs: Callable[[], Iterable[Run]] | None = None) -> ScoredSource:
    """Opens a store or a folder of parts to read it. `runs` gives the runs of a folder with their texts, which the
    folder does not hold, each time that they are needed; a store has the texts."""
    if is_folder(path):
        pyarrow_for("reading a folder of scored parts")
        from ragguard.storage.files.parts_source import PartsSource

        return PartsSource(path, runs)
    if runs is not None:
        raise InvalidInput("--runs", str(path), "nothing beside it: a store has the texts of its runs")
    return Store(path, read_only=True)

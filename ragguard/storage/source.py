"""Scored runs as their readers see them: a store, a folder of parts that `ragguard score --out DIR` wrote, or a score
file; and the runs of a store as a sequence, read page by page.

Each part is a store; the parts of a folder are read one after the other. A score file is read into a store first, so
that what a mean is stands in one place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar, overload

from ragguard.errors import InvalidInput, StoreError, UnknownName
from ragguard.facts.causes import CauseCounts
from ragguard.records import Run, ScoredRun
from ragguard.storage.files.partfolder import PartFolder, PartTotals
from ragguard.storage.files.runfile import read_score_file
from ragguard.storage.sqlite.cause_rows import NotedRun, count_causes
from ragguard.storage.sqlite.database import is_store
from ragguard.storage.sqlite.overview import Overview
from ragguard.storage.sqlite.reader import StoreReader
from ragguard.storage.sqlite.score_rows import RunMeans
from ragguard.storage.sqlite.store import Store
from ragguard.text.plain import counted


class Runs(Sequence[Run]):
    """All runs in the order in which they were captured."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __len__(self) -> int:
        return self._store.run_count()

    def __iter__(self) -> Iterator[Run]:
        return self._store.runs()

    @overload
    def __getitem__(self, index: int) -> Run: ...
    @overload
    def __getitem__(self, index: slice) -> list[Run]: ...
    def __getitem__(self, index: int | slice) -> Run | list[Run]:
        if isinstance(index, slice):
            return [self[rank] for rank in range(*index.indices(len(self)))]
        rank = index + len(self) if index < 0 else index
        found = self._store.run_at(rank) if rank >= 0 else None
        if found is None:
            raise IndexError(f"run {index} of {len(self)}")
        return found


T = TypeVar("T")
_NAMED = 3
"""How many ids of runs an error names."""


@dataclass(frozen=True, slots=True)
class ScoredSource:
    """The scored runs of one store, or of several that are read one after the other."""

    stores: Sequence[Path]
    remarks: Sequence[str] = ()
    """The facts that a reader of the numbers has to know, a sentence each, such as parts that are missing."""

    def each(self, read: Callable[[StoreReader], Iterable[T]]) -> Iterator[T]:
        """Yields what a function reads of each store, in the order of their inputs."""
        for path in self.stores:
            with closing(StoreReader(path)) as store:
                yield from read(store)

    def scored_runs(self, span: range | None = None) -> Iterator[ScoredRun]:
        """Yields the runs with their failures and scores; see `StoreReader.scored_runs`."""
        return self.each(lambda store: store.scored_runs(span=span))

    def overviews(self, *, texts: bool = True) -> Iterator[Overview]:
        """Yields all runs for a report; see `StoreReader.overviews`."""
        return self.each(lambda store: store.overviews(texts=texts))

    def run_of(self, part: str) -> ScoredRun:
        """Returns the run that has an id, also one that the application gave it, or the only one with a part of it."""

        def stored(run_id: str) -> ScoredRun | None:
            return next(filter(None, self.each(lambda store: [store.scored_run(run_id)])), None)

        scored = stored(part) or stored(run_of_part(part, list(self.each(StoreReader.run_ids))))
        if scored is None:  # removed since its id was read
            raise InvalidInput("--run", part, "the id of a run that is there")
        return scored

    def noted_runs(self) -> Iterator[NotedRun]:
        """Yields all runs with what each counts as."""
        return self.each(StoreReader.noted_runs)

    def cause_counts(self) -> CauseCounts:
        """Returns how many runs count as what: see `ragguard.facts.causes`."""
        return count_causes(self.noted_runs())


def run_of_part(part: str, ids: Sequence[str]) -> str:
    """Returns the id that equals `part`, else the only one that ends in it, else the only one that has it."""
    meant: list[str] = []
    for fits in (part.__eq__, lambda one: one.endswith(part), lambda one: part in one):
        meant = [one for one in ids if part and fits(one)]
        if len(meant) == 1:
            return meant[0]
    latest = f"the latest are {', '.join(reversed(ids[-_NAMED:])) or 'none'}"
    several = f"it fits {', '.join(meant[:_NAMED])} and others" if meant else latest
    allowed = (
        "the id of a run, the id that the application gave it, or any unique part of an id; "
        f"{several}, and `ragguard report` lists all with their questions"
    )
    raise UnknownName("--run", part, allowed)


def is_source(path: str | Path) -> bool:
    """True where a path is that of a store or of a folder."""
    return Path(path).is_dir() or is_store(path)


def open_source(path: str | Path) -> ScoredSource:
    """Opens a store, or a folder of parts, to read it."""
    if Path(path).is_dir():
        return _of_parts(PartFolder(path))
    with closing(StoreReader(path)) as store:  # a file that is no store is an error now
        failures, failed_runs, reason = store.failure_counts()
        about = _about_failures(Path(path), failures, failed_runs, store.run_count(), reason)
    return ScoredSource([Path(path)], [about] if failures else [])


def read_scored(path: str | Path) -> Iterator[ScoredRun]:
    """Yields scored runs from a store, a folder of parts or a score file of JSON lines. The runs of a score file have
    no steps, and their provisional scores are left out.

    Args:
        path: The store, the folder or the score file.
    """
    return open_source(path).scored_runs() if is_source(path) else read_score_file(path)


def read_means(
    path: str | Path, remarks: list[str] | None = None, span: range | None = None
) -> Iterator[RunMeans]:
    """Yields scored runs as `read_scored` does, each as one mean a metric; of a store, those of a span.

    `remarks` gets the facts that a reader of the numbers has to know, once all runs were read.
    """
    if not isinstance(path, str | Path):
        raise InvalidInput("path", path, "the path of a store, of a folder of parts or of a score file")
    with TemporaryDirectory(prefix="ragguard-") as folder:
        has_steps = is_source(path)
        if not has_steps:
            imported = Path(folder) / "scores.db"
            with closing(Store(imported, scored=False)) as store:
                store.add_scored(read_score_file(path))
        source = open_source(path if has_steps else imported)
        for means in source.each(lambda store: store.means(span)):
            means.steps_known = has_steps
            yield means
        if remarks is not None:
            remarks.extend(source.remarks)


def _of_parts(folder: PartFolder) -> ScoredSource:
    if folder.settings() is None:
        raise StoreError(
            f"{folder} is no folder of scored parts: it has no settings; name the folder of "
            "`ragguard score … --out DIR`, or a store"
        )
    order = {key: place for place, key in enumerate(folder.planned())}
    keys = sorted(folder.finished(), key=lambda key: (order.get(key, len(order)), key))
    if not keys:
        raise StoreError(
            f"{folder} has no complete part yet; the same `ragguard score` command goes on with it"
        )
    total = PartTotals()
    stores: list[Path] = []
    for key in keys:
        total.add(folder.counts(key).totals)
        stores.append(folder.store_of(key))
    return ScoredSource(stores, _remarks(folder, total, missing=len(order.keys() - set(keys))))


def _about_failures(path: Path, failures: int, failed_runs: int, runs: int, reason: str) -> str:
    return (
        f"{path}: {counted(failures, 'score')} failed, in {failed_runs:,} of {counted(runs, 'run')}; most often "
        f"{reason}"
    )


def _remarks(folder: PartFolder, total: PartTotals, *, missing: int) -> list[str]:
    remarks = []
    if missing:
        remarks.append(
            f"{folder} is not complete: {missing:,} of {missing + total.parts:,} parts are missing, and their runs "
            "with them; the same `ragguard score` command goes on with them"
        )
    if total.failures:
        reason = max(total.reasons, key=lambda reason: total.reasons[reason])
        remarks.append(_about_failures(folder.path, total.failures, total.failed_runs, total.runs, reason))
    if total.rejected:
        lines = f"{total.rejected:,} {'line of the input was' if total.rejected == 1 else 'lines of the input were'}"
        remarks.append(f"{folder}: {lines} rejected and not scored")
    return remarks

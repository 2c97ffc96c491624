"""Opens scored runs to read them: a store, a folder of parts that `ragguard score --out DIR` wrote, or a score file.

A folder and a score file are imported into a temporary store first, so that everything is read from a store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from ragguard.errors import InvalidInput
from ragguard.records import Run, ScoredRun
from ragguard.storage.files.partfolder import is_part_folder
from ragguard.storage.files.scorefile import read_score_file
from ragguard.storage.imported import ImportedParts, TemporaryStore
from ragguard.storage.sqlite.files import is_store
from ragguard.storage.sqlite.means import RunMeans
from ragguard.storage.sqlite.store import Store


@dataclass(kw_only=True)
class ScoredSource:
    """A store of scored runs that is open to be read."""

    store: Store
    has_texts: bool = True
    """True where runs come with the texts of their passages."""
    imported: TemporaryStore | None = None
    _remarks: list[str] = field(default_factory=list)

    @property
    def remarks(self) -> list[str]:
        """The facts that a reader of the numbers has to know, a sentence each: runs that are missing or cannot be read.
        Complete once all runs were read."""
        return [*self._remarks, *self.store.remarks]

    def close(self) -> None:
        """Closes the store; removes it where it is a temporary one."""
        self.store.close()
        if self.imported is not None:
            self.imported.close()


def is_folder(path: str | Path) -> bool:
    """True where a path is that of a local folder, or an address such as `s3://bucket/scores`."""
    return "://" in str(path) or Path(path).is_dir()


def holds_parts(path: str | Path) -> bool:
    """True where a path is that of a folder of parts; every address such as `s3://…` counts as one."""
    return "://" in str(path) or is_part_folder(path)


def is_source(path: str | Path) -> bool:
    """True where a path is that of a store or of a folder."""
    return is_folder(path) or is_store(path)


def open_source(path: str | Path, runs: Callable[[], Iterable[Run]] | None = None) -> ScoredSource:
    """Opens a store, or a folder of parts, to read it.

    Args:
        path: The store or the folder.
        runs: Returns the runs of a folder with their texts, which the folder does not hold; a store has the texts.
    """
    if not is_folder(path):
        if runs is not None:
            raise InvalidInput("--runs", str(path), "nothing beside it: a store has the texts of its runs")
        return ScoredSource(store=Store(path, read_only=True))
    parts = ImportedParts(path)
    remarks = parts.remarks
    try:
        if runs is not None and (without := _add_texts(parts.store.path, runs())):
            remarks.append(f"{path}: {without:,} runs are not in the run files and come without texts")
        store = Store(parts.store.path, read_only=True)
    except BaseException:
        parts.store.close()
        raise
    return ScoredSource(store=store, has_texts=runs is not None, imported=parts.store, _remarks=remarks)


def read_scored(path: str | Path) -> Iterator[ScoredRun]:
    """Yields scored runs from a store, a folder of parts or a score file of JSON lines, without the texts of passages;
    the runs of a score file have no steps, and no provisional scores, which a sink appends while a run is open.

    Args:
        path: The store, the folder or the score file.
    """
    if not is_source(path):
        yield from read_score_file(path)
        return
    with closing(open_source(path)) as source:
        yield from source.store.scored_runs(texts=False)


def read_means(path: str | Path, remarks: list[str] | None = None) -> Iterator[RunMeans]:
    """Yields scored runs as `read_scored` does, each as one mean a metric.

    `remarks` gets the facts that a reader of the numbers has to know, once all runs were read.
    """
    if not isinstance(path, str | Path):
        raise InvalidInput("path", path, "the path of a store, of a folder of parts or of a score file")
    has_steps = is_source(path)
    with closing(open_source(path) if has_steps else _of_score_file(path)) as source:
        for means in source.store.means():
            means.steps_known = has_steps
            yield means
        if remarks is not None:
            remarks.extend(source.remarks)


def _of_score_file(path: str | Path) -> ScoredSource:
    imported = TemporaryStore()
    try:
        for scored in read_score_file(path):
            imported.add_scored(scored)
        imported.finish()
        return ScoredSource(store=Store(imported.path, read_only=True), has_texts=False, imported=imported)
    except BaseException:
        imported.close()
        raise


def _add_texts(path: Path, runs: Iterable[Run]) -> int:
    """Puts the runs of the run files in place of those without texts; returns how many runs have no texts then."""
    store = Store(path, scored=False)
    try:
        wanted = {run.id: run.question for run in store.runs()}
        for run in runs:
            if wanted.get(run.id) == run.question:
                del wanted[run.id]
                store.add_run(run)
        return len(wanted)
    finally:
        store.close()

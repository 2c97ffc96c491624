"""Finds the format of a path, and reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from ragguard.analysis.validation.contexts import Context
from ragguard.analysis.validation.readers import beir, contexts, runs, trec
from ragguard.analysis.validation.readers.fields import first
from ragguard.analysis.validation.readers.rankings import qrel_files
from ragguard.errors import InvalidInput, StoreError, UnknownName
from ragguard.storage.files.partfolder import is_part_folder
from ragguard.storage.sqlite.files import is_store

K = 10
"""The default number of passages that a context takes from a ranking."""
AUTO = "auto"
_HOLDS = (
    "lines of contexts (question, passages, outcome), run files, stores, or a folder of scored parts, BEIR or TREC "
    "files; say which with --format"
)


FORMATS: Mapping[str, Callable[[Path, int], Iterator[Context]]] = {
    "contexts": lambda path, _: contexts.read(path),
    "runs": lambda path, _: runs.read(path),
    "beir": beir.read,
    "trec": trec.read,
}
"""The reader of each format: a function of the path and of how many passages a context takes from a ranking."""
FILES, FOLDERS = ("contexts", "runs"), ("beir", "trec")
"""The formats of one file, and those of a folder."""


def read_dataset(
    path: str | Path,
    format: str = AUTO,
    k: int = K,
    *,
    remarks: list[str] | None = None,
) -> list[Context]:
    """Returns the contexts of a file or a folder. Two contexts with one id are an error.

    A context takes `k` passages from a ranking; `remarks` is given what a reader of the numbers has to know.
    """
    if k < 1:
        raise InvalidInput("k", k, "1 or more")
    if format != AUTO and format not in FORMATS:
        raise UnknownName("format", format, f"{AUTO}, {', '.join(FORMATS)}")
    if format in (AUTO, "runs") and is_part_folder(path):
        found = list(runs.read(path, remarks))
    else:
        found = list(_read(Path(path), format, k))
    if not found:
        raise InvalidInput(str(path), "nothing", "at least one context")
    ids: set[str] = set()
    for context in found:
        if context.id in ids:
            raise InvalidInput(f"{path}, id", context.id, "ids that differ; it is there twice")
        ids.add(context.id)
    return found


def _read(path: Path, format: str, k: int) -> Iterator[Context]:
    if not path.exists():
        raise StoreError(f"there is no {path}; check the path")
    if format in FOLDERS and not path.is_dir():
        raise InvalidInput(str(path), "a file", f"for {format} the folder in which its files are")
    if format in FILES and path.is_dir():
        raise InvalidInput(str(path), "a folder", f"for {format} one of its files")
    return FORMATS[format_of(path) if format == AUTO else format](path, k)


def format_of(path: Path) -> str:
    """Returns the format of a path, from its file names or its first object."""
    if path.is_dir():
        return _format_of_folder(path)
    if is_store(path):
        return "runs"
    found = first(path)
    if "steps" in found or str(found.get("format", "")).startswith("ragguard.run/"):
        return "runs"
    if "passages" in found and "question" in found:
        return "contexts"
    raise InvalidInput(str(path), sorted(found) or "no JSON object at its beginning", _HOLDS)


def _format_of_folder(path: Path) -> str:
    if (path / beir.CORPUS).exists() and (path / beir.QUERIES).exists():
        return "beir"
    if qrel_files(path):
        return "trec"
    names = sorted(file.name for file in path.iterdir())[:8]
    raise InvalidInput(str(path), names or "an empty folder", _HOLDS)

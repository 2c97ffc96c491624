"""Finds out what a path holds, and reads it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ragguard.analysis.validation.contexts import Context
from ragguard.analysis.validation.readers import contexts, runs
from ragguard.analysis.validation.readers.fields import first
from ragguard.errors import InvalidInput, StoreError
from ragguard.storage.source import is_source

_HOLDS = "lines of contexts (question, passages, outcome), a run file, a store, or a folder of scored parts"


def read_dataset(path: str | Path, *, remarks: list[str] | None = None) -> list[Context]:
    """Returns the contexts of lines of contexts, a run file, a store or a folder of parts. Two contexts with one id are
    an error.

    `remarks` is given what a reader of the numbers has to know.
    """
    found = list(_read(Path(path), remarks))
    if not found:
        raise InvalidInput(str(path), "nothing", "at least one context")
    ids: set[str] = set()
    for context in found:
        if context.id in ids:
            raise InvalidInput(f"{path}, id", context.id, "ids that differ; it is there twice")
        ids.add(context.id)
    return found


def _read(path: Path, remarks: list[str] | None) -> Iterator[Context]:
    if not path.exists():
        raise StoreError(f"there is no {path}; check the path")
    if is_source(path):
        return runs.read(path, remarks)
    fields = first(path)
    if "steps" in fields or str(fields.get("format", "")).startswith("ragguard.run/"):
        return runs.read(path)
    if "passages" in fields and "question" in fields:
        return contexts.read(path)
    raise InvalidInput(str(path), sorted(fields) or "no JSON object at its beginning", _HOLDS)

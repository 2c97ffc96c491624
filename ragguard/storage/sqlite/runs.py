"""The runs of a store as a sequence: read page by page, never all at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

from ragguard.records import Run
from ragguard.storage.sqlite.store import Store


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
            start, stop, step = index.indices(len(self))
            first, last = (start, stop) if step > 0 else (stop + 1, start + 1)
            found = self._store.runs_by_rank(first, max(0, last - first))
            return found[::step]
        rank = index + len(self) if index < 0 else index
        found = self._store.runs_by_rank(rank, 1) if rank >= 0 else []
        if not found:
            raise IndexError(f"run {index} of {len(self)}")
        return found[0]

    def __repr__(self) -> str:
        return f"<{len(self)} runs>"

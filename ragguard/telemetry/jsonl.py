"""Scores as JSON lines, appended to a file as they come: the format of score files."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ragguard.errors import StoreError
from ragguard.records import ScoredRun
from ragguard.storage.files.runfile import score_lines


class JsonlSink:
    """Appends every scored run to a file, one score or failure a line; a run's lines are written at once.

    Args:
        path: The file; its folder must exist.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        if not self._path.parent.is_dir():
            raise StoreError(
                f"there is no folder {self._path.parent} for {self._path}; make it, or name another"
            )

    async def submit(self, scored: ScoredRun) -> None:
        """Writes one scored run."""
        text = "".join(score_lines(scored))
        if text:
            await asyncio.to_thread(self._append, text)

    async def aclose(self) -> None:
        """Does nothing: no run is held back."""

    def _append(self, text: str) -> None:
        with self._path.open("a", encoding="ascii") as file:
            file.write(text)

"""A scorer that travels to other processes: files in one folder tell what it scored there, and say what goes wrong."""

from __future__ import annotations

import asyncio
import errno
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ragguard.errors import EngineUnreachable
from ragguard.records import Score
from ragguard.scorers.asker import Asker
from ragguard.scorers.view import View
from ragguard.storage.files.partfolder import PartFolder

_POLL_S = 0.01


@dataclass(frozen=True)
class RecordedScorer:
    """Scores each run by its id, and obeys the `Orders` of its folder."""

    folder: str
    name: str = "recorded"
    version: str = "1"
    models: tuple[str, ...] = ()

    async def score(self, view: View, ask: Asker) -> Sequence[Score]:
        """Returns one score of the run."""
        orders = Path(self.folder)
        with (orders / f"scored-{os.getpid()}").open("a") as file:
            file.write(f"{view.run.id}\n")  # one write: the process may be killed at any time
        while (orders / "hold").exists():
            await asyncio.sleep(_POLL_S)
        if (orders / "pause").exists():
            await asyncio.sleep(float((orders / "pause").read_text()))
        if (orders / "gone").exists():
            raise EngineUnreachable("the recorded engine is gone")
        _obey_full_disk(orders / "full")
        return [Score("recorded", len(view.run.id) / 7, "run", view.run.id)]


class Orders:
    """The calls of the scorers of a folder, and the faults that they shall have."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder

    def scorer(self) -> RecordedScorer:
        """Returns a scorer that obeys these orders."""
        return RecordedScorer(str(self.folder))

    def give(self, order: str) -> None:
        """Gives an order: `hold`, `gone` or `full`."""
        (self.folder / order).touch()

    def take_back(self, order: str) -> None:
        """Ends an order."""
        (self.folder / order).unlink()

    def pids(self) -> list[int]:
        """Returns the processes that have scored, those that are lost included."""
        files = [path for path in self.folder.glob("scored-*") if path.stat().st_size]
        return [int(path.name.partition("-")[2]) for path in files]

    def scored(self) -> Counter[str]:
        """Returns how often each run was scored, over all processes."""
        files = self.folder.glob("scored-*")
        return Counter(line for path in files for line in path.read_text().split())


def _obey_full_disk(order: Path) -> None:
    """Makes every write of this process to a folder of parts fail while the order stands."""
    write = PartFolder.write
    if write.__name__ == "full":
        return

    def full(self: PartFolder, *args: object) -> object:
        if order.exists():
            with self._writing():
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(self, *args)

    PartFolder.write = full

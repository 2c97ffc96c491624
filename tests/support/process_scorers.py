"""Scorers that end the process that uses them, or tell of it."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from ragguard import Score


@dataclass(frozen=True)
class Deadly:
    """Gives each run a score, and ends the process at the run with this id."""

    run_id: str
    name: str = "deadly"
    version: str = "1"
    models: tuple[str, ...] = ()

    async def score(self, view, ask):
        if view.run.id == self.run_id:
            os._exit(7)
        return [Score("deadly", 1.0, "run", view.run.id)]


@dataclass(frozen=True)
class DeadlyToMove(Deadly):
    """Ends each process that it is sent to."""

    run_id: str = ""

    def __reduce__(self):
        return os._exit, (9,)


@dataclass(frozen=True)
class Interrupted(Deadly):
    """Interrupts each process that it is sent to, before that process has begun its work."""

    run_id: str = ""

    def __reduce__(self):
        return _interrupted, ()


def _interrupted():
    os.kill(os.getpid(), signal.SIGINT)
    return Interrupted()


@dataclass(frozen=True)
class Mending:
    """Fails for some runs, until the file `mended` stands in a folder; ends its process once, where `deadly` stands."""

    folder: str
    run_ids: tuple[str, ...]
    name: str = "mending"
    version: str = "1"
    models: tuple[str, ...] = ()

    async def score(self, view, ask):
        if view.run.id in self.run_ids:
            if not (Path(self.folder) / "mended").exists():
                raise ValueError("not mended yet")
            if (deadly := Path(self.folder) / "deadly").exists():
                deadly.unlink()
                os._exit(9)
        return [Score("mending", 1.0, "run", view.run.id)]

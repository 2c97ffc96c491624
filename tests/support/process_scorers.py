"""A scorer that ends the process that uses it."""

from __future__ import annotations

import os
from dataclasses import dataclass

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

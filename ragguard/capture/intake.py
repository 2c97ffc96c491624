"""The protocols of the intake that takes the events of capture: the two sides of it that capture sees."""

from __future__ import annotations

from typing import Protocol

from ragguard.capture.open_runs import WholeRun
from ragguard.events import Event


class EventIntake(Protocol):
    """Takes events. Never raises; returns in microseconds unless the caller asked to wait for the disk.

    A run that is one retrieval comes as one record: the busiest hooks have no time to make three events of it.
    """

    def __call__(self, event: Event | WholeRun) -> None: ...


class Acknowledging(Protocol):
    """Tells code that can wait when what was captured is safe."""

    async def written(self) -> None:
        """Waits until what was captured so far is where the settings want it to be. Never raises."""
        ...

    def not_awaited(self) -> None:
        """Takes note that a run has ended in code that cannot wait."""
        ...

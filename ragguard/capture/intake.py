"""Protocols of what capture works with: what takes its events, gives advice about open runs, and follows calls."""

from __future__ import annotations

from typing import Protocol

from ragguard.capture.events import Event
from ragguard.capture.open_runs import WholeRun
from ragguard.records import Advice, Run

BUDGET_MS = 5000.0
"""How many milliseconds advice may take where nothing else is said."""


class EventIntake(Protocol):
    """Takes events. Never raises; returns in microseconds unless the caller asked to wait for the disk.

    A run that is one retrieval comes as one record: the busiest hooks have no time to make three events of it.
    """

    def __call__(self, event: Event | WholeRun) -> None: ...


class CapturedId(Protocol):
    """A captured run that is known by its id."""

    @property
    def id(self) -> str:
        """The id of the run; final once everything that was captured before is written."""
        ...


class Advising(Protocol):
    """Gives advice about runs that go on, within a budget."""

    def advise(self, run: Run, budget_ms: float = BUDGET_MS) -> Advice:
        """Returns advice about the run as it stands; blocks its caller."""
        ...

    async def aadvise(self, run: Run, budget_ms: float = BUDGET_MS) -> Advice:
        """Does what `advise` does, without blocking the event loop."""
        ...

    def advise_captured(
        self, captured: CapturedId, budget_ms: float = BUDGET_MS, known: Run | None = None
    ) -> Advice:
        """Returns advice about a run as it was captured so far; blocks its caller. What the store lacks of the run
        is taken from `known`."""
        ...

    async def aadvise_captured(
        self, captured: CapturedId, budget_ms: float = BUDGET_MS, known: Run | None = None
    ) -> Advice:
        """Does what `advise_captured` does, without blocking the event loop."""
        ...


class Follower(Protocol):
    """The state of open calls that an integration keeps, and removes when the recorder forgets their runs."""

    def run_closed(self, run_id: str) -> None:
        """Removes the state of the calls of one run."""
        ...

    def sweep(self, ttl: float) -> None:
        """Ends the calls that nothing else will end, and removes the state that is older than `ttl` seconds."""
        ...

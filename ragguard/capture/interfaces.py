"""The collaborators of capture: what takes its events, gives advice about open runs, and follows open calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from ragguard.capture.events import Event
from ragguard.capture.open_runs import WholeRun
from ragguard.records import Advice, Run

BUDGET_MS = 5000.0
"""How many milliseconds advice may take where nothing else is said."""
EventIntake: TypeAlias = Callable[[Event | WholeRun], None]
"""Takes events. Never raises; returns in microseconds unless the caller asked to wait for the disk. A run that is one
retrieval comes as one record: the busiest hooks have no time to make three events of it."""


@dataclass(frozen=True, slots=True)
class CapturedRun:
    """A captured run about which advice is asked."""

    id: str
    known: Run | None = None
    """The run as far as the caller knows it."""
    in_store: bool = True
    """False where `known` is the whole run; else the store has steps that `known` lacks."""


Advise: TypeAlias = Callable[[CapturedRun, float], Advice]
"""Returns advice about a run within a number of milliseconds; blocks its caller."""
AdviseAsync: TypeAlias = Callable[[CapturedRun, float], Awaitable[Advice]]
"""Does what an `Advise` does, without blocking the event loop."""


@dataclass(frozen=True, slots=True)
class RunListener:
    """The state of open calls that an integration keeps in this process, and how it is removed."""

    state: object
    run_closed: Callable[[str], None]
    """Removes the state of the calls of one run."""
    sweep: Callable[[float], None]
    """Ends the calls that nothing else will end, and removes the state that is older than a number of seconds."""

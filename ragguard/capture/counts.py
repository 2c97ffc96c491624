"""Counts of the runs and steps that were captured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class CaptureCounts:
    """The numbers of runs and steps that were captured in this process so far."""

    runs: int = 0
    steps: int = 0
    unsampled: int = 0
    count_late: Callable[[], object] = lambda: None
    """Counts what came after the end of its run, and so is not recorded."""

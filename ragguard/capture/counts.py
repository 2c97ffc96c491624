"""Counts of the runs and steps that were captured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class CaptureCounts:
    """How many runs and steps were captured in this process so far."""

    runs: int = 0
    steps: int = 0
    unsampled: int = 0
    abandoned: int = 0
    """Runs that were closed here since nobody ended them."""

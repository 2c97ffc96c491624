"""What capture has seen, in numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class CaptureCounts:
    """What capture has seen so far."""

    runs: int = 0
    steps: int = 0
    unsampled: int = 0
    abandoned: int = 0
    """Runs that were closed here since nobody ended them."""

"""The progress of a job over parts: what was complete before it, what has been completed since, and the rate."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from ragguard.storage.files.partcounts import PartTotals


@dataclass(slots=True, kw_only=True)
class JobProgress:
    """The counts of the parts that were complete when a job began, and of those completed since."""

    all_parts: int
    all_bytes: int
    """The size of all parts together, complete or not."""
    before: PartTotals = field(default_factory=PartTotals)
    """The parts that were complete before."""
    now: PartTotals = field(default_factory=PartTotals)
    started: float = field(default_factory=time.monotonic)

    @property
    def bytes(self) -> int:
        """The bytes of the parts that are complete."""
        return self.before.bytes + self.now.bytes

    @property
    def elapsed(self) -> float:
        """Seconds since the job began."""
        return time.monotonic() - self.started

    @property
    def runs_a_second(self) -> float:
        """The rate since the job began."""
        return self.now.runs / max(self.elapsed, 1e-9)

    @property
    def seconds_left(self) -> float | None:
        """The seconds that the rest takes, about, at the rate since the job began; None before a part is complete."""
        if not self.now.bytes:
            return None
        return self.elapsed * (self.all_bytes - self.bytes) / self.now.bytes

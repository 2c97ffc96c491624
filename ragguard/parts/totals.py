"""The counts of a whole job, added up part by part as parts are completed."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

from ragguard.records import Usage
from ragguard.storage.files.parttables import PartCounts


@dataclass(slots=True, kw_only=True)
class JobTotals:
    """The counts of the parts of a job that are complete."""

    parts: int = 0
    bytes: int = 0
    runs: int = 0
    referenced: int = 0
    failed_runs: int = 0
    scores: int = 0
    failures: int = 0
    parts_with_failures: int = 0
    rejected: int = 0
    usage: Usage = field(default_factory=Usage)
    reasons: Counter[str] = field(default_factory=Counter)

    def add(self, counts: PartCounts) -> None:
        """Adds a complete part."""
        self.parts += 1
        self.bytes += counts.bytes
        self.runs += counts.runs
        self.referenced += counts.referenced
        self.failed_runs += counts.failed_runs
        self.scores += counts.scores
        self.failures += counts.failures
        self.parts_with_failures += counts.failures > 0
        self.rejected += counts.rejected
        self.usage += counts.usage
        self.reasons.update(counts.reasons)


@dataclass(slots=True, kw_only=True)
class JobProgress:
    """The progress of a job: the counts of the parts that were complete when it began, and of those completed since."""

    all_parts: int
    all_bytes: int
    """The size of all parts together, complete or not."""
    before: JobTotals = field(default_factory=JobTotals)
    """The parts that were complete before."""
    now: JobTotals = field(default_factory=JobTotals)
    started: float = field(default_factory=time.monotonic)

    @property
    def bytes(self) -> int:
        """The bytes of the parts that are complete."""
        return self.before.bytes + self.now.bytes

    @property
    def share(self) -> float:
        """The share of the input that is complete, from 0 to 1."""
        return self.bytes / self.all_bytes if self.all_bytes else 1.0

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

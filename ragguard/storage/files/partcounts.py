"""The counts of scored parts of an input, of each part and added up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields

from ragguard.records import ScoredRun, Usage

MOST_REASONS = 100
"""The most reasons of failures, and the most rejected lines, that the counts of a part name."""


@dataclass(slots=True, kw_only=True)
class PartTotals:
    """The counts of some parts, added up."""

    parts: int = 0
    bytes: int = 0
    """The size of the parts in their input."""
    runs: int = 0
    """Runs that were read, scored or not."""
    referenced: int = 0
    """Runs with references, their own or those of the job's table."""
    failed_runs: int = 0
    """Runs with at least one failure."""
    scores: int = 0
    failures: int = 0
    parts_with_failures: int = 0
    rejected: int = 0
    """Lines that could not be read as runs."""
    usage: Usage = field(default_factory=Usage)
    """The cost of the scores."""
    reasons: dict[str, int] = field(default_factory=dict)
    """The reasons of failures, each with its number; of each part the 100 most frequent ones."""

    def add(self, other: PartTotals) -> None:
        """Adds the counts of other parts."""
        reasons = dict(Counter(self.reasons) + Counter(other.reasons))
        for name in (declared.name for declared in fields(self) if declared.name != "reasons"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.reasons = reasons


@dataclass(frozen=True, slots=True, kw_only=True)
class PartCounts:
    """The counts of one part of the input: the file that makes it complete."""

    key: str
    """The digest of the part's content and of all settings; see `parts.PartJob`."""
    source: str
    """The path of the run file."""
    start: int
    """The first byte of the part in the file."""
    end: int
    """The first byte behind the part."""
    totals: PartTotals
    seconds: float = 0.0
    """The duration of the attempt that gave these results."""
    attempts: int = 1
    """The number of attempts at the part."""
    identity: str = ""
    """A digest of engine, judge, prompts and scorers as they named themselves; "" where none could be reached."""
    rejected_lines: Sequence[str] = ()
    """The first 100 rejected lines: file, byte and reason."""
    digest: str = ""
    """The SHA-256 of the part's store."""


def totals_of(scored: Iterable[ScoredRun]) -> PartTotals:
    """Returns the counts of one part that holds these runs."""
    totals, reasons = PartTotals(parts=1), Counter[str]()
    for one in scored:
        totals.runs += 1
        totals.referenced += bool(one.run.references)
        totals.failed_runs += bool(one.failures)
        totals.scores += len(one.scores)
        totals.failures += len(one.failures)
        totals.usage = sum((score.usage for score in one.scores), totals.usage)
        reasons.update(f"{failure.scorer}, {failure.error}: {failure.message}" for failure in one.failures)
    totals.parts_with_failures = int(totals.failures > 0)
    totals.reasons = dict(reasons.most_common(MOST_REASONS))
    return totals

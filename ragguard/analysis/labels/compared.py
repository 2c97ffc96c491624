"""Compares two sets of runs by their means after correction by human labels: what changed, and whether it is more than
noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

from ragguard.analysis.labels.corrected import Corrections, corrected
from ragguard.analysis.labels.label_file import Label
from ragguard.analysis.verdict import interval_text
from ragguard.metrics.prediction_powered import CorrectedMean
from ragguard.storage.source import open_source

Side: TypeAlias = tuple[str | Path, range | None]
"""A store, and the `seq` of its runs; None: all."""


@dataclass(frozen=True, slots=True)
class CorrectedDifference:
    """The difference, after less before, with its 95 % interval as of two sides that were drawn and labelled apart."""

    value: float
    low: float
    high: float

    @property
    def shown(self) -> str:
        """The difference as text."""
        return f"{self.value:+z.3f}{interval_text(self.low, self.high)}"

    @property
    def verdict(self) -> str:
        """The verdict: that it differs, or that the labels do not decide it."""
        return "differs" if self.low > 0 or self.high < 0 else "not decisive"


@dataclass(frozen=True, slots=True)
class CorrectedChanges:
    """The corrected means of both sides."""

    before: Corrections
    after: Corrections

    @property
    def differences(self) -> dict[str, CorrectedDifference]:
        """The difference of each metric that is corrected on both sides."""
        return {
            name: _difference(mean, self.after.means[name])
            for name, mean in self.before.means.items()
            if name in self.after.means
        }

    @property
    def remarks(self) -> list[str]:
        """The facts that a reader of the numbers has to know of either side."""
        sides = (("before", self.before), ("after", self.after))
        return [f"{side}: {remark}" for side, found in sides for remark in found.remarks]

    def as_dict(self) -> dict[str, Any]:
        """Returns plain data for JSON."""
        differences = {name: asdict(found) for name, found in self.differences.items()}
        return {"before": self.before.as_dict(), "after": self.after.as_dict(), "differences": differences}


def corrected_changes(before: Side, after: Side, labels: Sequence[Label]) -> CorrectedChanges:
    """Returns the means of two stores, corrected by the labels of each."""
    sides = [corrected(open_source(*side).scored_runs(), labels, str(side[0])) for side in (before, after)]
    return CorrectedChanges(*sides)


def _difference(before: CorrectedMean, after: CorrectedMean) -> CorrectedDifference:
    gap = after.value - before.value
    below, above = math.hypot(before.above, after.below), math.hypot(before.below, after.above)
    return CorrectedDifference(gap, gap - below, gap + above)

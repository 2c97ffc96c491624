"""Says what a guard in shadow would have dropped, and what that would have meant by the scores."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from ragguard.scorers.run_facts import CLEAR
from ragguard.storage.sqlite.overview import SCALE, Overview

_SHOWN = 3
"""How many of the runs that would have lost a helpful passage are named."""


def would_drop(ranks: Sequence[int]) -> str:
    """Says which passages of a step a guard in shadow would have dropped, by their ranks; empty where none."""
    which = ", ".join(map(str, ranks))
    return f"the guard, in shadow, would drop passage{'s' if len(ranks) > 1 else ''} {which}" if ranks else ""


@dataclass(slots=True)
class ShadowReport:
    """The decisions of guards in shadow over many runs."""

    decisions: int = 0
    passages: int = 0
    dropped: int = 0
    """The passages that would have gone."""
    misleading: int = 0
    """The passages among them whose scored utility is under -0.2."""
    helpful: int = 0
    """The passages among them whose scored utility is at least 0.2."""
    unscored: int = 0
    lost_in: list[str] = field(default_factory=list)
    """The runs in which a helpful passage would have gone."""
    elapsed_ms: list[float] = field(default_factory=list)

    def add(self, overview: Overview) -> None:
        """Adds the decisions of a run."""
        shadowed = {
            step.seq: {rank for _, rank, *_ in step.decision["would_drop"]}
            for step in overview.steps
            if step.decision is not None and "would_drop" in step.decision
        }
        if not shadowed:
            return
        for step in overview.steps:
            if step.seq in shadowed and step.decision is not None:
                self.decisions += 1
                self.passages += len(step.decision["kept"])
                self.dropped += len(shadowed[step.seq])
                self.elapsed_ms.append(float(step.decision["elapsed_ms"] or 0))
        utilities = {
            (seq, rank): value / SCALE
            for seq, rank, name, value, *_ in json.loads(overview.summary.of_passages)
            if name == "utility" and rank in shadowed.get(seq, ())
        }
        self.misleading += sum(value < -CLEAR for value in utilities.values())
        helpful = sum(value >= CLEAR for value in utilities.values())
        self.helpful += helpful
        self.unscored += sum(map(len, shadowed.values())) - len(utilities)
        if helpful:
            self.lost_in.append(overview.line.id)

    def __str__(self) -> str:
        """Returns the counts in a few sentences; empty if no guard in shadow would have dropped anything."""
        if not self.decisions:
            return ""
        lines = [
            f"The guard, in shadow, would have dropped {self.dropped:,} of {self.passages:,} passages at "
            f"{self.decisions:,} step{'' if self.decisions == 1 else 's'}, in {median(self.elapsed_ms):.0f} ms each."
        ]
        scored = self.dropped - self.unscored
        if scored:
            neither = scored - self.misleading - self.helpful
            lines.append(
                f"By their scored utility {self.misleading:,} of these mislead, {neither:,} do neither, and "
                f"{self.helpful:,} help{'s' if self.helpful == 1 else ''}"
                + (f": look at {', '.join(self.lost_in[:_SHOWN])}." if self.lost_in else ".")
            )
        if self.unscored:
            lines.append(
                f"{self.unscored:,} of these have no utility: score the runs with the scorer `utility`."
            )
        return " ".join(lines)

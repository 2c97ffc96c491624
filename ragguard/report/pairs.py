"""Scored runs as one number a question and metric, so that two sets of runs can be paired."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from ragguard.metrics.answers import normalise
from ragguard.records import Level, Score
from ragguard.sinks.base import ScoredRun


class Series(NamedTuple):
    """What makes two numbers comparable: gold is never mixed with support, nor before the guard with after."""

    name: str
    level: Level
    reference_source: str
    stage: str

    @property
    def title(self) -> str:
        """As it is shown and as `--fail-if` names it."""
        support = ".support" if self.reference_source == "answer" else ""
        before = ".candidates" if self.stage == "candidates" else ""
        return f"{self.name}{support}{before}"


@dataclass(slots=True)
class Questions:
    """One side of a comparison."""

    values: dict[Series, dict[str, float]] = field(default_factory=dict)
    """Series → question → mean over its runs, of the mean over steps or passages."""
    asked: dict[str, str] = field(default_factory=dict)
    """Normalised question → as it was asked."""
    passages: float = 0.0
    """Passages a step, on average: UDCG shifts with it."""
    runs: int = 0
    failures: int = 0


def questions_of(runs: Iterable[ScoredRun]) -> Questions:
    """Reads scored runs once, keeping only numbers."""
    found = Questions()
    gathered: dict[Series, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    steps = passages = 0
    for scored in runs:
        question = normalise(scored.run.question)
        if not question:
            continue
        found.asked.setdefault(question, scored.run.question)
        found.runs += 1
        found.failures += len(scored.failures)
        steps += len(scored.run.steps)
        passages += sum(len(step.passages) for step in scored.run.steps)
        for series, values in _by_series(scored.scores).items():
            gathered[series][question].append(sum(values) / len(values))
    found.values = {
        series: {question: sum(values) / len(values) for question, values in by_question.items()}
        for series, by_question in gathered.items()
    }
    found.passages = passages / steps if steps else 0.0
    return found


def _by_series(scores: Iterable[Score]) -> dict[Series, list[float]]:
    found: dict[Series, list[float]] = defaultdict(list)
    for score in scores:
        stage = score.stage if score.level != "run" else "passages"
        found[Series(score.name, score.level, score.reference_source, stage)].append(score.value)
    return found

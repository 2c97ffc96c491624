"""Reduces scored runs to one number for each question and metric, so that two sets of runs can be paired."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from ragguard.answer_text import normalise
from ragguard.store.means import RunMeans, Series


@dataclass(slots=True)
class Questions:
    """One side of a comparison."""

    values: dict[Series, dict[str, float]] = field(default_factory=dict)
    """Series → question → mean over its runs, of the mean over steps or passages."""
    asked: dict[str, str] = field(default_factory=dict)
    """Normalised question → as it was asked."""
    origins: dict[Series, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Series → the engines, prompts and settings that scored it."""
    passages: float = 0.0
    """Passages per step, on average."""
    places: float = 0.0
    """Places in the prompt per step (K), on average; UDCG, RA-nWG and the like are computed on K."""
    failures: int = 0


def questions_of(runs: Iterable[RunMeans]) -> Questions:
    """Returns the means of each question over its runs; iterates over `runs` once."""
    found = Questions()
    gathered: dict[Series, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    steps = passages = places = 0
    for run in runs:
        question = normalise(run.question)
        if not question:
            continue
        found.asked.setdefault(question, run.question)
        found.failures += run.failures
        steps += run.steps
        passages += run.passages
        places += run.places
        for series, mean in run.means.items():
            gathered[series][question].append(mean)
            found.origins[series].add(run.origins[series])
    found.values = {
        series: {question: sum(values) / len(values) for question, values in by_question.items()}
        for series, by_question in gathered.items()
    }
    if steps:
        found.passages, found.places = passages / steps, places / steps
    return found

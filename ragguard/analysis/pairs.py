"""Reduces scored runs to one number for each question and metric, so that two sets of runs can be paired."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ragguard.storage.source import read_means
from ragguard.storage.sqlite.score_rows import RunMeans, Series
from ragguard.text.language import normalise


@dataclass(slots=True)
class Questions:
    """A side of a comparison: the means of each question, and facts about its scores."""

    values: dict[Series, dict[str, float]] = field(default_factory=dict)
    """The mean over runs of the mean over steps or passages, by series and question."""
    asked: dict[str, str] = field(default_factory=dict)
    """The question as it was asked, by the normalised question."""
    origins: dict[Series, set[str]] = field(default_factory=lambda: defaultdict(set))
    """The engines, prompts and settings that scored each series."""
    passages: float | None = None
    """The mean number of passages per step; None where no steps are known, as in a score file."""
    places: float | None = None
    """The mean number of places in the prompt per step (K); metrics such as UDCG and RA-nWG are computed on K. None
    where no steps are known."""
    failures: int = 0
    runs: int = 0
    empty: int = 0
    """Runs of which it is known that the model got no passage."""
    empty_scored: Counter[Series] = field(default_factory=Counter)
    """Series → how many of the empty runs have a score of it."""
    remarks: list[str] = field(default_factory=list)
    """The facts that a reader of the numbers has to know, such as runs that are missing."""


def read_questions(path: str | Path, span: range | None = None) -> Questions:
    """Returns one side of a comparison: the questions of a store or a span of its runs, a folder of parts or a score
    file."""
    remarks: list[str] = []
    found = questions_of(read_means(path, remarks, span))
    found.remarks = remarks
    return found


def questions_of(runs: Iterable[RunMeans]) -> Questions:
    """Returns the means of each question over its runs; iterates over `runs` once."""
    found = Questions()
    values: dict[Series, dict[str, float]] = defaultdict(dict)
    again: dict[Series, Counter[str]] = defaultdict(Counter)
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
        found.runs += 1
        if run.steps_known and not run.passages:
            found.empty += 1
            found.empty_scored.update(run.means.keys())
        for series, mean in run.means.items():
            if question in values[series]:
                values[series][question] += mean
                again[series][question] += 1
            else:
                values[series][question] = mean
            found.origins[series].add(run.origins[series])
    for series, times in again.items():
        for question, more in times.items():
            values[series][question] /= 1 + more
    found.values = dict(values)
    if steps:
        found.passages, found.places = passages / steps, places / steps
    return found

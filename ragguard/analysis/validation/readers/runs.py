"""Captured runs: the passages that the model had when it answered are one context."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from ragguard.analysis.validation.contexts import Context
from ragguard.errors import InvalidInput, RunFormatError
from ragguard.records import Passage, Run
from ragguard.scorers.grades import RELEVANT
from ragguard.storage.files.runfile import read_runs
from ragguard.storage.source import is_source, open_source

OUTCOME = "outcome"
"""The name in a run's metadata under which the quality of its answer may stand."""
_STATES = ("answer_correct", "response_grade")
"""The scores of a store that serve as the outcome; the first that exists."""


def read(path: str | Path, remarks: list[str] | None = None) -> Iterator[Context]:
    """Yields the runs of a run file, a store or a folder of parts as contexts; scores of the latter two are given
    numbers. `remarks`: see `readers.dataset.read_dataset`.
    """
    if not is_source(path):
        try:
            yield from map(context_of, read_runs(path))
        except RunFormatError as error:
            raise InvalidInput(f"{path}, {error.argument}", error.value, error.allowed) from error
        return
    source = open_source(path)
    for scored in source.scored_runs(level="run"):
        numbers = {score.name: score.value for score in scored.scores if not score.provisional}
        outcome = next((numbers[name] for name in _STATES if name in numbers), None)
        given = {name: value for name, value in numbers.items() if name not in _STATES}
        yield context_of(scored.run, outcome, given)
    if remarks is not None:
        remarks.extend(source.remarks)


def _retrieved(run: Run) -> bool:
    """Returns whether a retrieval of the run ended well, if only to find nothing."""
    return any(step.status == "ok" for step in run.steps)


def context_of(run: Run, outcome: float | None = None, given: dict[str, float] | None = None) -> Context:
    """Returns the final context of a run: all its passages in the order of its steps, each once."""
    passages: dict[tuple[str, str], Passage] = {}
    empty = sum(max(0, step.places - len(step.passages)) for step in run.steps)
    for step in run.steps:
        for passage in step.passages:
            passages.setdefault((passage.id, passage.text), passage)
    grades = [passage.grade for passage in passages.values()]
    said = run.metadata.get(OUTCOME)
    if said is not None:
        if not isinstance(said, (int, float)) or not math.isfinite(said):
            raise InvalidInput(f"run {run.id}, metadata.{OUTCOME}", said, "a number")
        outcome = float(said)
    return Context(
        id=run.id,
        question_id=run.question,
        question=run.question,
        passages=tuple(passages.values()),
        references=tuple(run.references or ()),
        relevance=None if None in grades or not (grades or _retrieved(run))
        else tuple(float(grade >= RELEVANT) for grade in grades if grade is not None),
        k=len(passages) + empty or None,
        answer=run.answer,
        outcome=outcome,
        sub_questions=tuple(run.sub_questions or ()),
        given=given or {},
    )  # fmt: skip

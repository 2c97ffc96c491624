"""Reads a data set as contexts: runs in a run file, a store or a folder of parts, or a folder of rankings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ragguard.errors import InvalidInput, RunFormatError
from ragguard.inputs.reading import RunReading
from ragguard.lab.validation.contexts import Context
from ragguard.lab.validation.rankings import outcome_of, qrel_files, read_rankings
from ragguard.records import Passage, Run
from ragguard.scorers.grades import RELEVANT
from ragguard.storage.files.jsonl import Fields
from ragguard.storage.files.partfolder import is_part_folder
from ragguard.storage.source import is_source, open_source

K = 10
"""The default number of passages that a context takes from a ranking."""
_STATES = ("answer_correct", "response_grade")
"""The scores of a store that serve as the outcome; the first that exists."""


def read_dataset(path: str | Path, k: int = K, *, remarks: list[str] | None = None) -> list[Context]:
    """Returns the contexts of a file or a folder. Two contexts with one id are an error.

    A context takes `k` passages from a ranking; `remarks` is given what a reader of the numbers has to know.
    """
    folder = Path(path)
    if not folder.is_dir() or is_part_folder(path):
        found = list(_captured(path, [] if remarks is None else remarks))
    elif qrel_files(folder):
        found = list(read_rankings(folder, k))
    else:
        allowed = "a run file, a store, or a folder of scored parts or of BEIR or TREC files with judgements"
        raise InvalidInput(str(path), "a folder of something else", allowed)
    if not found:
        allowed = "at least one context: a run, or judgements and *.run files of the same queries"
        raise InvalidInput(str(path), "nothing", allowed)
    ids: set[str] = set()
    for context in found:
        if context.id in ids:
            raise InvalidInput(f"{path}, id", context.id, "ids that differ; it is there twice")
        ids.add(context.id)
    return found


def _captured(path: str | Path, remarks: list[str]) -> Iterator[Context]:
    """Yields runs as contexts; the scores of a store or of a folder of parts are given numbers."""
    if not is_source(path):
        try:
            yield from map(_context_of, RunReading(path).runs())
        except RunFormatError as error:
            raise InvalidInput(f"{path}, {error.argument}", error.value, error.allowed) from error
        return
    source = open_source(path)
    for scored in source.scored_runs():
        final = (score for score in scored.scores if score.level == "run" and not score.provisional)
        numbers = {score.name: score.value for score in final}
        outcome = next((numbers[name] for name in _STATES if name in numbers), None)
        given = {name: value for name, value in numbers.items() if name not in _STATES}
        yield _context_of(scored.run, outcome, given)
    remarks.extend(source.remarks)


def _context_of(run: Run, outcome: float | None = None, given: dict[str, float] | None = None) -> Context:
    """Returns the final context of a run: all its passages in the order of its steps, each once."""
    passages: dict[tuple[str, str], Passage] = {}
    empty = sum(max(0, step.places - len(step.passages)) for step in run.steps)
    for step in run.steps:
        for passage in step.passages:
            passages.setdefault((passage.id, passage.text), passage)
    grades = [passage.grade for passage in passages.values()]
    # A retrieval that ended well may have found nothing.
    judged = None not in grades and (grades or any(step.status == "ok" for step in run.steps))
    said = outcome_of(Fields(run.metadata, f"run {run.id}, metadata"))
    return Context(
        id=run.id,
        question_id=run.question,
        question=run.question,
        passages=tuple(passages.values()),
        references=tuple(run.references or ()),
        relevance=tuple(float((grade or 0) >= RELEVANT) for grade in grades) if judged else None,
        k=len(passages) + empty or None,
        answer=run.answer,
        outcome=outcome if said is None else said,
        sub_questions=tuple(run.sub_questions or ()),
        given=given or {},
    )

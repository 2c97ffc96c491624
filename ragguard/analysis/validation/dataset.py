"""Reads a data set, and finds out what a path holds: lines of contexts, captured runs, or a folder of rankings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path

from ragguard.analysis.validation.contexts import Context
from ragguard.analysis.validation.fields import Fields, first, json_objects, passages_of
from ragguard.analysis.validation.rankings import (
    CORPUS,
    QUERIES,
    outcome_of,
    qrel_files,
    read_beir,
    read_trec,
)
from ragguard.errors import InvalidInput, RunFormatError, StoreError, UnknownName
from ragguard.records import Passage, Run
from ragguard.scorers.grades import RELEVANT
from ragguard.storage.files.partfolder import is_part_folder
from ragguard.storage.files.runfile import read_runs
from ragguard.storage.source import is_source, open_source
from ragguard.storage.sqlite.database import is_store

K = 10
"""The default number of passages that a context takes from a ranking."""
AUTO = "auto"
_HOLDS = (
    "lines of contexts (question, passages, outcome), run files, stores, or a folder of scored parts, BEIR or TREC "
    "files; say which with --format"
)

KNOWN = frozenset((
    "id", "question_id", "question", "passages", "references", "ideal", "answer", "outcome", "sub_questions",
    "given",
))  # fmt: skip


def _context_of_line(fields: Fields, number: int) -> Context:
    """Returns the context of a line. Unknown names are refused, so that a misspelt outcome is not taken for none."""
    for name in fields.data:
        if name not in KNOWN:
            raise fields.wrong(
                name, fields.data[name], f"no field of that name; there are {', '.join(sorted(KNOWN))}"
            )
    question = fields.text("question")
    passages = fields.objects("passages")
    grades = [passage.number("relevance") for passage in passages]
    known = [grade for grade in grades if grade is not None]
    for passage, grade in zip(passages, grades, strict=True):
        if grade is not None and grade < 0:
            raise passage.wrong("relevance", grade, "a grade of at least 0, which is irrelevant")
    if known and len(known) < len(grades):
        raise fields.wrong("passages", grades, "a relevance for every passage, or for none")
    ideal = fields.numbers("ideal") if fields.data.get("ideal") is not None else None
    given = fields.data.get("given") or {}
    numbers = Fields(given, f"{fields.where}, given")
    return Context(
        id=fields.text("id", default=str(number)),
        question_id=fields.text("question_id", default=question),
        question=question,
        passages=passages_of(passages),
        references=fields.texts("references"),
        relevance=tuple(known) if known or not passages else None,
        ideal=ideal,
        answer=fields.text("answer", default="") or None,
        outcome=outcome_of(fields),
        sub_questions=fields.texts("sub_questions"),
        given={str(name): value for name in given if (value := numbers.number(name)) is not None},
    )


OUTCOME = "outcome"
"""The name in a run's metadata under which the quality of its answer may stand."""
_STATES = ("answer_correct", "response_grade")
"""The scores of a store that serve as the outcome; the first that exists."""
FORMATS: Mapping[str, Callable[[Path, int], Iterator[Context]]] = {
    "contexts": lambda path, _: map(_context_of_line, json_objects(path), count(1)),
    "runs": lambda path, _: _read_captured(path),
    "beir": read_beir,
    "trec": read_trec,
}
"""The reader of each format: a function of the path and of how many passages a context takes from a ranking."""


def read_dataset(
    path: str | Path,
    format: str = AUTO,
    k: int = K,
    *,
    remarks: list[str] | None = None,
) -> list[Context]:
    """Returns the contexts of a file or a folder. Two contexts with one id are an error.

    A context takes `k` passages from a ranking; `remarks` is given what a reader of the numbers has to know.
    """
    if k < 1:
        raise InvalidInput("k", k, "1 or more")
    if format != AUTO and format not in FORMATS:
        raise UnknownName("format", format, f"{AUTO}, {', '.join(FORMATS)}")
    if format in (AUTO, "runs") and is_part_folder(path):
        found = list(_read_captured(path, remarks))
    else:
        found = list(_read(Path(path), format, k))
    if not found:
        raise InvalidInput(str(path), "nothing", "at least one context")
    ids: set[str] = set()
    for context in found:
        if context.id in ids:
            raise InvalidInput(f"{path}, id", context.id, "ids that differ; it is there twice")
        ids.add(context.id)
    return found


def _read(path: Path, format: str, k: int) -> Iterator[Context]:
    if not path.exists():
        raise StoreError(f"there is no {path}; check the path")
    if format != AUTO and path.is_dir() != (format in ("beir", "trec")):
        raise InvalidInput(
            "--format", format, f"another format: {path} is {'a folder' if path.is_dir() else 'a file'}"
        )
    return FORMATS[format_of(path) if format == AUTO else format](path, k)


def format_of(path: Path) -> str:
    """Returns the format of a path, from its file names or its first object."""
    if path.is_dir():
        return _format_of_folder(path)
    if is_store(path):
        return "runs"
    found = first(path)
    if "steps" in found or str(found.get("format", "")).startswith("ragguard.run/"):
        return "runs"
    if "passages" in found and "question" in found:
        return "contexts"
    raise InvalidInput(str(path), sorted(found) or "no JSON object at its beginning", _HOLDS)


def _format_of_folder(path: Path) -> str:
    if (path / CORPUS).exists() and (path / QUERIES).exists():
        return "beir"
    if qrel_files(path):
        return "trec"
    names = sorted(file.name for file in path.iterdir())[:8]
    raise InvalidInput(str(path), names or "an empty folder", _HOLDS)


def _read_captured(path: str | Path, remarks: list[str] | None = None) -> Iterator[Context]:
    """Yields the runs of a run file, a store or a folder of parts as contexts; scores of the latter two are given
    numbers. `remarks`: see `read_dataset`.
    """
    if not is_source(path):
        try:
            yield from map(_context_of_run, read_runs(path))
        except RunFormatError as error:
            raise InvalidInput(f"{path}, {error.argument}", error.value, error.allowed) from error
        return
    source = open_source(path)
    for scored in source.scored_runs(level="run"):
        numbers = {score.name: score.value for score in scored.scores if not score.provisional}
        outcome = next((numbers[name] for name in _STATES if name in numbers), None)
        given = {name: value for name, value in numbers.items() if name not in _STATES}
        yield _context_of_run(scored.run, outcome, given)
    if remarks is not None:
        remarks.extend(source.remarks)


def _context_of_run(run: Run, outcome: float | None = None, given: dict[str, float] | None = None) -> Context:
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
        # A retrieval that ended well may have found nothing.
        relevance=None if None in grades or not (grades or any(step.status == "ok" for step in run.steps))
        else tuple(float(grade >= RELEVANT) for grade in grades if grade is not None),
        k=len(passages) + empty or None,
        answer=run.answer,
        outcome=outcome,
        sub_questions=tuple(run.sub_questions or ()),
        given=given or {},
    )  # fmt: skip

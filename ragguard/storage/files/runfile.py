"""Reads and writes run files, one run a line, and score files, one score or failure a line, as JSON.
`docs/reference/run-format.md` describes both for users.

Reading goes line by line with bounded memory. A line that cannot be read becomes a problem with its
number and its reason, and the lines after it are read all the same.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, fields
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeGuard

from ragguard.errors import InvalidInput, RunFormatError, StoreError
from ragguard.records import Failure, Run, Score, ScoredRun
from ragguard.runtime.faults import describe
from ragguard.schema import Data, checked_run, data_of, read_record
from ragguard.storage.files.jsonl import (
    JsonValue,
    in_file,
    is_blank,
    json_value,
    json_values,
    opened,
    raw_lines,
    text_file,
)
from ragguard.storage.sqlite.layout import dump
from ragguard.text.plain import plain_metadata

FORMAT = "ragguard.run/1"


class Line(NamedTuple):
    """A line of a run file: its run, or the problem in its place."""

    number: int
    """The line's number in the file, from 1; for a line of a part of the input, its first byte or its row."""
    run: Run | None
    problem: RunFormatError | None


def read_lines(source: str | Path | IO[bytes]) -> Iterator[Line]:
    """Yields every line of a run file that is not blank, in order: its number, and its run or the error in its
    place.

    Args:
        source: A path (`-` is the standard input, `.gz` is unpacked), or a file that is open for bytes.
    """
    if isinstance(source, (str, Path)):
        with opened(source) as (file, _):
            yield from read_lines(file)
        return
    for value in json_values(raw_lines(source)):
        yield line_of_value(value)


def read_runs(source: str | Path | IO[bytes]) -> Iterator[Run]:
    """Yields the runs of a run file; raises the error of a line that cannot be read.

    Args:
        source: A path (`-` is the standard input, `.gz` is unpacked), or a file that is open for bytes.
    """
    for line in read_lines(source):
        if line.run is None:
            assert line.problem is not None
            raise line.problem
        yield line.run


def line_of(raw: bytes, size: int, number: int, unit: str = "line") -> Line | None:
    """Returns a line of `raw_lines`, of `size` bytes; None where it is blank. Errors name it by its number, or by its
    first byte where lines are not counted and the `unit` is `byte`."""
    return None if is_blank(raw, size) else line_of_value(json_value(raw, size, number), unit)


def line_of_value(value: JsonValue, unit: str = "line", run_of: Callable[[Any], Run] | None = None) -> Line:
    """Returns the line that holds a value; `run_of` makes a run of it, `run_of_data` unless another is given."""
    try:
        if value.problem is not None:
            raise value.problem
        return Line(value.number, (run_of or run_of_data)(value.data), None)
    except InvalidInput as wrong:
        argument = wrong.argument or "line"
        return Line(
            value.number, None, RunFormatError(value.number, argument, wrong.value, wrong.allowed, unit=unit)
        )


def run_of_data(data: object) -> Run:
    """Returns the run that the data of a line describe; raises InvalidInput for the first wrong field, by its path."""
    run = read_record(Run, _completed(data) if isinstance(data, dict) else data)
    if not run.question.strip():
        raise InvalidInput("question", run.question, "a question that is not empty")
    if run.status == "open":
        run.status = "abandoned"
    for index, step in enumerate(run.steps):
        step.run_id, step.index = run.id, index
        step.id = step.id or f"{run.id}-{index}"
        step.query = step.query or run.question
        step.candidates = step.candidates or list(step.passages)
    return run


def _completed(data: Data) -> Data:
    """Returns the data of a line with the id, the time and the steps' turns that it leaves out."""
    if data.get("format", FORMAT) != FORMAT:
        raise InvalidInput("format", data["format"], f"{FORMAT!r}, or none; a newer ragguard may know it")
    completed: Data = {"started_ns": 0} | _given(data)
    completed.pop("format", None)
    if completed.get("id", "") == "":
        canonical = json.dumps(data, sort_keys=True, ensure_ascii=True).encode("ascii")
        completed["id"] = hashlib.sha256(canonical).hexdigest()[:32]
    if is_question_file(asked := data.get("sub_questions")):
        raise InvalidInput(
            "sub_questions", asked, "the sub-questions themselves; only rg.run takes the name of a file"
        )
    if isinstance(steps := data.get("steps"), list):
        # A step without a turn follows the step before it.
        completed["steps"] = [
            {"id": "", "turn": turn} | _given(step) if isinstance(step, dict) else step
            for turn, step in enumerate(steps)
        ]
    return completed


def is_question_file(sub_questions: object) -> TypeGuard[str]:
    """Tells whether what stands in the place of sub-questions is the name of a file that has them."""
    return isinstance(sub_questions, str) and sub_questions.endswith((".jsonl", ".jsonl.gz"))


def sub_questions_in(path: str, question: str) -> list[str]:
    """Returns the sub-questions that a run file, such as `ragguard questions` writes, has for a question.

    Raises InvalidInput where the file cannot be read or has none for it.
    """
    try:
        found = os.stat(path)
        known = _by_question(path, found.st_mtime_ns, found.st_size)
    except (OSError, StoreError, RunFormatError) as error:
        raise InvalidInput(
            "sub_questions", path, f"a run file that can be read; {describe(error)}"
        ) from error
    asked = known.get(question.strip())
    if asked is None:
        raise InvalidInput("sub_questions", path, f"a file with sub-questions for {question.strip()[:80]!r}")
    return list(asked)


@lru_cache(maxsize=8)
def _by_question(path: str, changed_ns: int, size: int) -> Mapping[str, list[str]]:
    """Returns the sub-questions of a file by their question; read anew where the file has changed."""
    return {run.question.strip(): run.sub_questions for run in read_runs(path) if run.sub_questions}


def _given(data: Data) -> Data:
    return {name: value for name, value in data.items() if value is not None}


def data_of_run(run: Run) -> Data:
    """Returns the data of a run's line, without the fields that have their default values."""
    data: Data = {"format": FORMAT} | data_of(run)
    for step in data["steps"]:
        if step.get("candidates") == step["passages"]:
            del step["candidates"]
    return data


def write_runs(runs: Iterable[Run], path: str | Path) -> int:
    """Writes a run file and returns how many runs it holds.

    Args:
        runs: The runs.
        path: The file, packed if its name ends in `.gz`.
    """
    count = 0
    with text_file(path) as file:
        for run in runs:
            file.write(dump(data_of_run(checked_run(run))) + "\n")
            count += 1
    return count


SCORE_FORMAT = "ragguard.score/1"
_FIELDS = tuple(field.name for field in fields(Score) if field.name not in ("usage", "metadata"))


def score_lines(scored: ScoredRun) -> Iterator[str]:
    """Returns the scores and failures of a run as lines."""
    steps = {step.id: step.index for step in scored.run.steps}

    def about(step_id: str) -> Data:
        return {"format": SCORE_FORMAT, "question": scored.run.question, "step_index": steps.get(step_id)}

    for score in scored.scores:
        data = about(score.step_id) | {name: getattr(score, name) for name in _FIELDS}
        data |= {"usage": asdict(score.usage), "metadata": plain_metadata(score.metadata)}
        yield dump(data) + "\n"
    for failure in scored.failures:
        yield dump(about(failure.step_id) | {"failure": failure.error} | asdict(failure)) + "\n"


def write_scores(runs: Iterable[ScoredRun], path: str | Path) -> int:
    """Writes a score file and returns how many scores it holds.

    Args:
        runs: The scored runs.
        path: The file, packed if its name ends in `.gz`.
    """
    count = 0
    with text_file(path) as file:
        for scored in runs:
            file.writelines(score_lines(scored))
            count += len(scored.scores)
    return count


def read_score_file(path: str | Path) -> Iterator[ScoredRun]:
    """Yields the runs of a score file of JSON lines, packed or not, without steps and without provisional scores, which
    a sink appends while a run is open."""
    for (run_id, question), group in groupby(_records(path), key=lambda record: record[:2]):
        results = [result for _, _, result in group if not (isinstance(result, Score) and result.provisional)]
        if not results:  # a provisional score: the scores of the run's end come later in the file
            continue
        yield ScoredRun(
            Run(run_id, question),
            [result for result in results if isinstance(result, Score)],
            [result for result in results if isinstance(result, Failure)],
        )


def _records(path: str | Path) -> Iterator[tuple[str, str, Score | Failure]]:
    with opened(path) as (file, _):
        for value in json_values(raw_lines(file)):
            try:
                if value.problem is not None:
                    raise value.problem
                yield _record_of(value.data, path)
            except InvalidInput as wrong:
                raise in_file(wrong, f"{path}, line {value.number}") from None


def _record_of(data: object, path: str | Path) -> tuple[str, str, Score | Failure]:
    if not isinstance(data, dict):
        raise InvalidInput("", data, "an object")
    is_run = "format" not in data and "steps" in data
    written = str(data.pop("format", None))
    if is_run or written.startswith("ragguard.run/"):
        command = f"ragguard score {shlex.quote(str(path))} --store new.db"
        raise StoreError(f"{path} is a run file; score it first: `{command}`")
    if written != SCORE_FORMAT:
        raise InvalidInput("format", written, repr(SCORE_FORMAT))
    question = data.pop("question", None)
    if not isinstance(question, str):
        raise InvalidInput("question", question, "a text")
    data.pop("step_index", None)
    failed = data.pop("failure", None) is not None
    result: Score | Failure = read_record(Failure, data) if failed else read_record(Score, data)
    return result.run_id, question, result

"""Reads and writes score files: one score or failure a line, as JSON. `docs/reference/run-format.md` describes them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import asdict, fields
from itertools import groupby
from pathlib import Path

from ragguard.errors import InvalidInput, StoreError
from ragguard.records import Failure, Run, Score, ScoredRun
from ragguard.runtime.arguments import output_path
from ragguard.runtime.faults import why_unreadable
from ragguard.schema import read_record
from ragguard.storage.files.runfile import text_file
from ragguard.storage.sqlite.columns import Data, dump
from ragguard.text.plain import plain_metadata

FORMAT = "ragguard.score/1"
_FIELDS = tuple(field.name for field in fields(Score) if field.name not in ("usage", "metadata"))


def score_lines(scored: ScoredRun) -> Iterator[str]:
    """Returns the scores and failures of a run as lines."""
    steps = {step.id: step.index for step in scored.run.steps}

    def about(step_id: str) -> Data:
        return {"format": FORMAT, "question": scored.run.question, "step_index": steps.get(step_id)}

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
        path: The file, packed where its name ends in `.gz`.
    """
    count = 0
    with text_file(path) as file:
        for scored in runs:
            file.writelines(score_lines(scored))
            count += len(scored.scores)
    return count


def check_score_file(path: str | Path) -> None:
    """Raises InvalidInput where `write_scores` could not write to this path, before any work is done."""
    output_path("--out", path)
    if str(path).endswith(".parquet"):
        raise InvalidInput(
            "--out", str(path), "a file of JSON lines, which `pandas.read_json(…, lines=True)` reads"
        )


def read_score_file(path: str | Path) -> Iterator[ScoredRun]:
    """Yields the runs of a score file of JSON lines, without steps and without provisional scores, which a sink appends
    while a run is open."""
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
    try:
        with open(path, encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield _record(line, number, path)
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"{path} could not be read ({why_unreadable(error)}); check the path") from error


def _record(line: str, number: int, path: str | Path) -> tuple[str, str, Score | Failure]:
    try:
        return _record_of(json.loads(line), path)
    except InvalidInput as wrong:
        where = f", {wrong.argument}" if wrong.argument else ""
        raise InvalidInput(f"{path}, line {number}{where}", wrong.value, wrong.allowed) from None
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{path}, line {number}", line[:60], f"one JSON object; {error}") from error


def _record_of(data: object, path: str | Path) -> tuple[str, str, Score | Failure]:
    if not isinstance(data, dict):
        raise InvalidInput("", data, "an object")
    is_run = "format" not in data and "steps" in data
    written = str(data.pop("format", None))
    if is_run or written.startswith("ragguard.run/"):
        command = f"ragguard score {shlex.quote(str(path))} --store new.db"
        raise StoreError(f"{path} is a run file; score it first: `{command}`")
    if written != FORMAT:
        raise InvalidInput("format", written, repr(FORMAT))
    question = data.pop("question", None)
    if not isinstance(question, str):
        raise InvalidInput("question", question, "a text")
    data.pop("step_index", None)
    failed = data.pop("failure", None) is not None
    result: Score | Failure = read_record(Failure, data) if failed else read_record(Score, data)
    return result.run_id, question, result

"""Score files: one score or failure a line as JSON, or a Parquet table of scores. `docs/run-format.md` has both."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, fields
from itertools import groupby
from pathlib import Path
from typing import Any

from ragguard.errors import InvalidInput, MissingDependency, StoreError
from ragguard.plain import plain_metadata
from ragguard.records import Failure, Run, Score, ScoredRun, Usage
from ragguard.store.columns import Data, dump
from ragguard.store.files import is_store
from ragguard.store.means import RunMeans, means_of
from ragguard.store.runfile import text_file
from ragguard.store.store import Store

FORMAT = "ragguard.score/1"
_ROWS_AT_ONCE = 20_000
_USAGE = {f"usage_{field.name}": field.name for field in fields(Usage)}
"""Column → field: `prompts` is a prompt set in a score and a number in its usage."""
_SCORE = tuple(field.name for field in fields(Score) if field.name not in ("usage", "metadata"))


def score_lines(scored: ScoredRun) -> Iterator[str]:
    """Returns the scores and failures of a run as lines."""
    about = _about(scored.run)
    for score in scored.scores:
        data = about(score.step_id) | {name: getattr(score, name) for name in _SCORE}
        data |= {"usage": asdict(score.usage), "metadata": plain_metadata(score.metadata)}
        yield dump(data) + "\n"
    for failure in scored.failures:
        yield dump(about(failure.step_id) | {"failure": failure.error} | asdict(failure)) + "\n"


def write_scores(runs: Iterable[ScoredRun], path: str | Path) -> int:
    """Writes a score file and returns how many scores it holds.

    Args:
        runs: The scored runs.
        path: The file: Parquet where its name ends in `.parquet` (needs the extra `parquet`), JSON lines otherwise.
    """
    if str(path).endswith(".parquet"):
        return _write_parquet(runs, Path(path))
    count = 0
    with text_file(path) as file:
        for scored in runs:
            file.writelines(score_lines(scored))
            count += len(scored.scores)
    return count


def check_score_file(path: str | Path) -> None:
    """Raises what would keep `write_scores` from writing there, before any work is done."""
    if Path(path).is_dir() or not Path(path).absolute().parent.is_dir():
        raise StoreError(f"{path} could not be written (no such folder, or itself one); name another file")
    if str(path).endswith(".parquet"):
        _parquet()


def read_scored(path: str | Path) -> Iterator[ScoredRun]:
    """Yields scored runs from a store or from a score file of JSON lines; the runs of the latter have no steps, and
    no provisional scores, which a sink appends while a run is open.

    Args:
        path: The store or the score file.
    """
    if is_store(path):
        store = Store(path, read_only=True)
        try:
            yield from store.scored_runs(texts=False)
        finally:
            store.close()
        return
    for (run_id, question), group in groupby(_records(path), key=lambda record: record[:2]):
        results = [result for _, _, result in group if not (isinstance(result, Score) and result.provisional)]
        if not results:  # a run that was open when this was written; what its end said comes later
            continue
        yield ScoredRun(
            Run(run_id, question),
            [result for result in results if isinstance(result, Score)],
            [result for result in results if isinstance(result, Failure)],
        )


def read_means(path: str | Path) -> Iterator[RunMeans]:
    """Yields scored runs as `read_scored` does, each as one mean a metric: much quicker from a store."""
    if not isinstance(path, str | Path):
        raise InvalidInput("path", path, "the path of a store or of a score file")
    if not is_store(path):
        yield from map(means_of, read_scored(path))
        return
    store = Store(path, read_only=True)
    try:
        yield from store.means()
    finally:
        store.close()


def _records(path: str | Path) -> Iterator[tuple[str, str, Score | Failure]]:
    try:
        with open(path, encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield _record(line, number, path)
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"{path} could not be read ({error}); check the path") from error


def _about(run: Run) -> Any:
    steps = {step.id: step.index for step in run.steps}

    def about(step_id: str) -> Data:
        return {"format": FORMAT, "question": run.question, "step_index": steps.get(step_id)}

    return about


def _record(line: str, number: int, path: str | Path) -> tuple[str, str, Score | Failure]:
    try:
        data = json.loads(line)
        found = data.pop("format")
        if str(found).startswith("ragguard.run/"):
            raise StoreError(f"{path} is a run file; score it first: `ragguard score {path} --store new.db`")
        if found != FORMAT:
            raise ValueError(f"its format is not {FORMAT!r}")
        question = data.pop("question")
        data.pop("step_index")
        if data.pop("failure", None) is not None:
            return data["run_id"], question, Failure(**data)
        data["usage"] = Usage(**data["usage"])
        return data["run_id"], question, Score(**data)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InvalidInput(
            f"{path}, line {number}", line[:60], f"a line of a score file; {error!r}"
        ) from error


def _parquet() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingDependency("pyarrow", "writing Parquet", "parquet") from error
    return pyarrow, parquet


def _write_parquet(runs: Iterable[ScoredRun], path: Path) -> int:
    pa, parquet = _parquet()
    schema = score_schema(pa)
    count = 0
    try:
        with parquet.ParquetWriter(path, schema) as writer:
            rows: list[Data] = []
            for row in (row for scored in runs for row in score_rows(scored)):
                rows.append(row)
                if len(rows) >= _ROWS_AT_ONCE:
                    writer.write_table(pa.Table.from_pylist(rows, schema=schema))
                    count, rows = count + len(rows), []
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))
    except OSError as error:
        raise StoreError(f"{path} could not be written ({error}); name another file") from error
    return count + len(rows)


def score_rows(scored: ScoredRun) -> Iterator[Data]:
    """Yields the scores of a run as rows of a table with `score_schema`."""
    about = _about(scored.run)
    for score in scored.scores:
        row = about(score.step_id) | {name: getattr(score, name) for name in _SCORE}
        row |= {column: getattr(score.usage, name) for column, name in _USAGE.items()}
        row["metadata"] = json.dumps(plain_metadata(score.metadata)) if score.metadata else None
        yield row


def score_schema(pa: Any) -> Any:
    """Returns the columns of a table of scores; `format` in each row is their version.

    Args:
        pa: The module pyarrow.
    """
    numbers = {"value", "stderr", "expectation", "usage_seconds"}
    whole = {"step_index", "position", "sub_question", *_USAGE} - numbers
    names = ["format", "question", "step_index", *_SCORE, *_USAGE, "metadata"]
    kinds = [
        pa.float64() if name in numbers else pa.int64() if name in whole else pa.string() for name in names
    ]
    return pa.schema(list(zip(names, kinds, strict=True)))

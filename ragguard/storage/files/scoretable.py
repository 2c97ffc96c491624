"""The table of scores: its columns, its rows, and a Parquet file of it.
`docs/reference/run-format.md` describes it for users."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from ragguard.errors import StoreError
from ragguard.records import Run, Score, ScoredRun, Usage
from ragguard.storage.files.filesystems import pyarrow_for
from ragguard.storage.sqlite.columns import Data
from ragguard.text.plain import plain_metadata

FORMAT = "ragguard.score/1"
USAGE = {f"usage_{field.name}": field.name for field in fields(Usage)}
"""The field of a usage for each column: `prompts` is a prompt set in a score and a number in its usage."""
FIELDS = tuple(field.name for field in fields(Score) if field.name not in ("usage", "metadata"))
"""The fields of a score that are columns of the same name."""
_ROWS_AT_ONCE = 20_000


def about_steps(run: Run) -> Callable[[str], Data]:
    """Returns a function that takes a step's id and returns the columns about that step, which each of its scores
    and failures has beside its own fields."""
    steps = {step.id: step.index for step in run.steps}
    return lambda step_id: {
        "format": FORMAT, "question": run.question, "step_index": steps.get(step_id)
    }  # fmt: skip


def score_rows(scored: ScoredRun) -> Iterator[Data]:
    """Yields the scores of a run as rows of a table with `score_schema`."""
    about = about_steps(scored.run)
    for score in scored.scores:
        row = about(score.step_id) | {name: getattr(score, name) for name in FIELDS}
        row |= {column: getattr(score.usage, name) for column, name in USAGE.items()}
        row["metadata"] = json.dumps(plain_metadata(score.metadata)) if score.metadata else None
        yield row


def score_schema(pa: Any) -> Any:
    """Returns the columns of a table of scores; `format` in each row is their version."""
    numbers = {"value", "stderr", "expectation", "usage_seconds"}
    whole = {"step_index", "position", "sub_question", *USAGE} - numbers
    names = ["format", "question", "step_index", *FIELDS, *USAGE, "metadata"]
    kinds = [
        pa.float64() if name in numbers else pa.int64() if name in whole else pa.string() for name in names
    ]
    return pa.schema(list(zip(names, kinds, strict=True)))


def write_table(runs: Iterable[ScoredRun], path: Path) -> int:
    """Writes a Parquet file of scores and returns how many it holds."""
    pa = pyarrow_for("writing Parquet")
    schema = score_schema(pa)
    count = 0
    try:
        with pa.parquet.ParquetWriter(path, schema) as writer:
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

"""Leaves out runs with rows that cannot be read, since a column or a body has the wrong content; all other runs are
read.

SQLite takes any value in any column, and a file may have been written by another program.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from ragguard.records import Failure, RetrievalStep, Run
from ragguard.runtime.faults import describe
from ragguard.runtime.notices import NOTICES
from ragguard.schema import stored_types

T = TypeVar("T")

_Types: TypeAlias = Mapping[str, tuple[type, ...]]
_RUN: _Types = stored_types(Run, "id", "name", "question", "answer", "status", "started_ns", "ended_ns")
_STEP: _Types = stored_types(
    RetrievalStep, "id", "turn", "query", "status", "tool", "started_ns", "ended_ns", "k"
) | {"idx": (int,)}
_FAILURE: _Types = stored_types(Failure, "scorer", "error", "message", "step_id", "attempts", "occurred_ns")
_BODY: _Types = {
    **stored_types(Run, "references", "sub_questions", "pool", "metadata", "trace"),
    **stored_types(RetrievalStep, "passages", "candidates", "sub_steps", "decision", "advice", "error"),
    "items": (list,),
}  # fmt: skip
_NAMED = 5
_MOST_KEPT = 1000
FAULTS = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""The errors that reading a damaged row raises."""


class LeftOut:
    """The runs of a store that readers left out, and why; at most 1,000 of them."""

    def __init__(self) -> None:
        self.reasons: dict[str, str] = {}

    def add(self, run_id: str, error: BaseException) -> None:
        """Notes a run that cannot be read."""
        if len(self.reasons) < _MOST_KEPT:
            self.reasons[run_id] = describe(error)

    def warn(self, store: str) -> None:
        """Logs which runs were left out, if any were."""
        if self.reasons:
            NOTICES.warn(f"unreadable rows in {store}", f"{store}: {self}")

    def __str__(self) -> str:
        named = ", ".join(f"{run!r} ({why})" for run, why in list(self.reasons.items())[:_NAMED])
        more = f" and {len(self.reasons) - _NAMED} more" if len(self.reasons) > _NAMED else ""
        count = len(self.reasons)
        return f"{count} {'run' if count == 1 else 'runs'} cannot be read, left out: {named}{more}"


def read_each(
    connection: sqlite3.Connection,
    seqs: Sequence[int],
    read: Callable[[sqlite3.Connection, Sequence[int]], dict[int, T]],
    left_out: LeftOut,
) -> dict[int, T]:
    """Reads the runs with these `seq` at once; where that fails, one by one, leaving out those that fail."""
    try:
        return read(connection, seqs)
    except (*FAULTS, sqlite3.OperationalError) as error:
        if not _is_of_a_row(error):
            raise
    found: dict[int, T] = {}
    for seq in seqs:
        try:
            found.update(read(connection, [seq]))
        except (*FAULTS, sqlite3.OperationalError) as error:
            if not _is_of_a_row(error):
                raise
            left_out.add(_id_at(connection, seq), error)
    return found


def check_run(row: sqlite3.Row, body: Mapping[str, Any]) -> None:
    """Raises where a column of a run's row, or a value of its body, is of a type that it cannot be of."""
    _check(row, _RUN, "runs")
    _check_body(body, "runs")


def check_step(row: sqlite3.Row, body: Mapping[str, Any]) -> None:
    """Raises where a column of a step's row, or a value of its body, is of a type that it cannot be of."""
    _check(row, _STEP, "steps")
    _check_body(body, "steps")
    decision = body.get("decision")
    if decision is not None and not isinstance(decision["elapsed_ms"], int | float | None):
        raise TypeError(f"steps.body.decision.elapsed_ms is {_kind(decision['elapsed_ms'])}")


def check_failure(row: sqlite3.Row) -> None:
    """Raises where a column of a failure's row is of a type that it cannot be of."""
    _check(row, _FAILURE, "failures")


def check_text(value: object, column: str) -> None:
    """Raises where a score's column holds something else than a text."""
    if not isinstance(value, str):
        raise TypeError(f"scores.{column} is {_kind(value)}")


def check_number(value: object, column: str) -> None:
    """Raises where a score's column holds something else than a finite number."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise TypeError(f"scores.{column} is {_kind(value)}")


WRONG_SCORES = (
    "count(*) FILTER (WHERE typeof(value) NOT IN ('real', 'integer') OR abs(value) > 1e300 "
    "OR typeof(stderr) NOT IN ('real', 'integer', 'null') OR typeof(position) NOT IN ('integer', 'null') "
    "OR typeof(scores.name) <> 'text' OR typeof(scores.level) <> 'text' OR typeof(scores.stage) <> 'text')"
)
"""SQL: how many rows of a group of scores hold something else than a number or a text where they should hold one."""


def check_scores(wrong: int) -> None:
    """Raises an error where `WRONG_SCORES` has counted wrong columns."""
    if wrong:
        raise TypeError(f"scores: {wrong} hold something else than a number or a text")


def _check(row: sqlite3.Row, columns: _Types, table: str) -> None:
    for column, kinds in columns.items():
        if not isinstance(row[column], kinds):
            raise TypeError(f"{table}.{column} is {_kind(row[column])}")


def _check_body(body: Mapping[str, Any], table: str) -> None:
    if not isinstance(body, dict):
        raise TypeError(f"{table}.body is {_kind(body)}")
    for key, value in body.items():
        if key in _BODY and value is not None and not isinstance(value, _BODY[key]):
            raise TypeError(f"{table}.body.{key} is {_kind(value)}")
    for key in ("references", "sub_questions"):
        for text in body.get(key) or ():
            if not isinstance(text, str):
                raise TypeError(f"{table}.body.{key} holds {_kind(text)}")


def _kind(value: object) -> str:
    return type(value).__name__ if not isinstance(value, float) else repr(value)


def _is_of_a_row(error: BaseException) -> bool:
    """Returns whether an error comes from the content of a row, and not from the disk."""
    if not isinstance(error, sqlite3.OperationalError):
        return True
    return "JSON" in str(error) or "decode" in str(error)


def _id_at(connection: sqlite3.Connection, seq: int) -> str:
    row = connection.execute("SELECT CAST(id AS BLOB) FROM runs WHERE seq = ?", (seq,)).fetchone()
    return "" if row is None else bytes(row[0]).decode("utf-8", "replace")

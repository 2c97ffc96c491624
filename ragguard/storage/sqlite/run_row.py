"""The row of a run that a transaction makes or changes, with the steps that it adds; written once, at the end."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final

from ragguard.capture.events import CALLER_ID
from ragguard.records import FEEDBACK, Run
from ragguard.storage.sqlite.passages import PassageTable
from ragguard.storage.sqlite.rows import StepRow, run_body
from ragguard.storage.sqlite.schema import Data, dump, storable

_COLUMNS: Final = (
    "seq", "id", "name", "question", "answer", "status", "started_ns", "ended_ns", "revision", "owner", "due_ns",
    "queued_ns", "attempts", "body",
)  # fmt: skip
_values_of = attrgetter(*_COLUMNS[:-1])
"""Returns the columns of a run's row, without its body."""
WRITE_RUN: Final = (
    f"INSERT INTO runs ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))}) "
    f"ON CONFLICT (seq) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in _COLUMNS[2:])}"
)


@dataclass(slots=True, kw_only=True)
class RunRow:
    """A row of the table `runs` that this transaction has made or changes, with the steps that it adds."""

    seq: int
    id: str
    name: str
    question: str
    answer: str | None = None
    status: str
    started_ns: int
    ended_ns: int = 0
    body: Data
    revision: int = 1
    owner: str | None = None
    due_ns: int | None = None
    queued_ns: int | None = None
    attempts: int = 0
    is_new: bool = False
    steps: dict[str, StepRow] = field(default_factory=dict)
    """The steps that are not in the tables yet, by their ids; a step that is reported twice counts once."""
    names: list[tuple[str, str]] = field(default_factory=list)
    """The names to be noted, each with its kind."""
    digests: list[bytes] = field(default_factory=list)
    """The texts that were put into the body."""

    def table(self, texts: dict[bytes, str]) -> PassageTable:
        """Takes the passages out of the body, to add some; `put_back` ends that."""
        return PassageTable(texts, self.body.pop("items", ()))

    def put_back(self, table: PassageTable) -> None:
        """Puts the passages into the body, behind everything else."""
        self.body = table.within(self.body)
        self.digests += table.digests

    def begin(self, run: Run, texts: dict[bytes, str]) -> None:
        """Takes what the start of a run says of it."""
        table = PassageTable(texts)
        self.name, self.question, self.started_ns = storable(run.name), storable(run.question), run.started_ns
        self.body = run_body(run, table)
        self.digests = []
        self.put_back(table)
        if caller_id := run.metadata.get(CALLER_ID):
            self.names.append((storable(str(caller_id)), "caller"))

    def make_due(self, owner: str, now: int) -> None:
        """Marks the run as to be scored by its owner."""
        self.owner, self.due_ns, self.queued_ns = owner, now, now

    def columns(self) -> tuple[Any, ...]:
        """Returns the values that `WRITE_RUN` takes."""
        return (*_values_of(self), dump(self.body))

    def captured(self) -> tuple[object, ...]:
        """Returns what makes a run another one: all that was captured of it, without feedback."""
        body: Data = json.loads(dump(self.body))
        body.get("metadata", {}).pop(FEEDBACK, None)
        return self.name, self.question, self.answer, self.status, self.started_ns, self.ended_ns, body


def stored_row(stored: sqlite3.Row) -> RunRow:
    """Returns the row of a stored run."""
    return RunRow(**{name: stored[name] for name in _COLUMNS} | {"body": json.loads(stored["body"])})

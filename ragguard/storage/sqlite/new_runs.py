"""Collects the runs that begin in one transaction, and writes each once, as one row. Most runs also end in it.

Writing the start, the steps and the end one after the other takes several times as long: the end reads, changes and
indexes the row again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from ragguard.capture.events import RunEnded
from ragguard.records import Run
from ragguard.runtime.threads import TimeSlice
from ragguard.storage.sqlite.columns import maybe, storable
from ragguard.storage.sqlite.passages import NeededTexts, PassageTable
from ragguard.storage.sqlite.rows import STEP_COLUMNS, StepRow, add_end, run_data

INSERT_STEP: Final = (
    f"INSERT INTO steps ({', '.join(STEP_COLUMNS)}, run) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
INSERT_RUN: Final = (
    "INSERT INTO runs (seq, id, name, question, answer, status, started_ns, ended_ns, body, owner, due_ns, queued_ns) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


@dataclass(slots=True)
class NewRun:
    """A run that begins in the present transaction, with its steps and its end so far."""

    run: Run
    """The run without its steps: as it began, or as it ended."""
    steps: dict[str, StepRow] = field(default_factory=dict)
    """Id → step; a step that is reported twice counts once."""
    end: RunEnded | None = None

    @property
    def is_open(self) -> bool:
        """True for a run that has not ended."""
        return self.end is None and self.run.status == "open"


def insert_new(
    db: sqlite3.Connection, new: Iterable[NewRun], needed: NeededTexts, owner: str, now: int, *, scored: bool
) -> range:
    """Writes new runs of an owner and their steps; returns the `seq` of each run. Their texts are noted in `needed`.

    A run that has ended is due to be scored; with `scored=False` it belongs to nobody.
    """
    first = _next_seq(db)
    runs: list[tuple[Any, ...]] = []
    steps: list[tuple[Any, ...]] = []
    time_slice = TimeSlice()
    opened = (owner, None, None)
    due = (owner, now, now) if scored else (None, None, None)
    for seq, one in enumerate(new, first):
        runs.append((seq, *_columns(one, needed, now), *(opened if one.is_open else due)))
        for step in one.steps.values():
            steps.append((*step.columns, seq))
            needed.add(step.digests)
        time_slice.rest_if_used()
    db.executemany(INSERT_RUN, runs)
    db.executemany(INSERT_STEP, steps)
    return range(first, first + len(runs))


def _columns(new: NewRun, needed: NeededTexts, now: int) -> tuple[Any, ...]:
    """Returns the columns of a run from `id` to `body`; notes its texts in `needed`."""
    run, end, table = new.run, new.end, PassageTable(needed.texts)
    body = run_data(run, table)
    question, answer, status, ended_ns = storable(run.question), run.answer, run.status, run.ended_ns
    if end is not None:
        add_end(body, end, table)
        question = storable(end.question) or question
        answer = answer if end.answer is None else end.answer
        status, ended_ns = end.status, end.ended_ns or now
    needed.add(table.digests)
    return (
        storable(run.id), storable(run.name), question, maybe(answer), status, run.started_ns, ended_ns,
        table.body(body),
    )  # fmt: skip


def _next_seq(db: sqlite3.Connection) -> int:
    """Returns the `seq` that SQLite would give to the next run."""
    last: int = db.execute(
        "SELECT max(coalesce((SELECT max(seq) FROM runs), 0), "
        "coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'runs'), 0))"
    ).fetchone()[0]
    return last + 1

"""Writes captured events and whole runs into the tables, inside the caller's transaction.

The rows of runs are kept in memory until the end of the transaction, and each is written once: most runs begin and end
in one. Writing the same thing again changes nothing, so a batch that was interrupted can be repeated.

Beside a run's id stand the id that the application gave, which later runs may have too, and the thread that an
interrupted run waits for. A part that goes on with a stored run is captured under an id of its own, often by another
process; its steps are written behind those that the run had before.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, TypeAlias

from ragguard.capture.events import CALLER_ID, RunEnded, RunNames, RunStarted, StepAmended
from ragguard.errors import InvalidInput
from ragguard.records import FEEDBACK, Run
from ragguard.runtime.deadline import now_ns
from ragguard.runtime.faults import NOTICES
from ragguard.runtime.threads import TimeSlice
from ragguard.schema import data_of
from ragguard.storage.sqlite.ledger import delete_runs, find_run
from ragguard.storage.sqlite.passages import PassageTable, change_uses, digests_in
from ragguard.storage.sqlite.rows import MORE_OF_RUN, RUN_FORMS, STEP_COLUMNS, StepRow, amend, step_row, take
from ragguard.storage.sqlite.schema import Data, dump, storable

EventRow: TypeAlias = RunStarted | StepRow | StepAmended | RunEnded
"""An event on its way into the tables. Steps are rows already, without their passages as records."""

_NOT_THERE = (
    "resume: no run {!r} is in this store, so one begins here. To go on with one, take the id that it was given, or "
    "else its own, and the store that it is in (`ragguard report` lists them); a first part is begun with id="
)
_NOT_DUE: Final = {"owner": None, "due_ns": None, "queued_ns": None}
_EMPTY_RUN: Final = {
    "seq": 0, "id": "", "name": "", "question": "", "answer": None, "status": "open", "started_ns": 0, "ended_ns": 0,
    "revision": 1, "attempts": 0, **_NOT_DUE,
}  # fmt: skip
"""The columns of a run's row beside its body, with the values of a run of which nothing is known."""
_WRITE_RUN: Final = (
    f"INSERT INTO runs ({', '.join(_EMPTY_RUN)}, body) VALUES ({'?, ' * len(_EMPTY_RUN)}?) "
    "ON CONFLICT (seq) DO UPDATE SET "
    f"{', '.join(f'{name} = excluded.{name}' for name in (*[*_EMPTY_RUN][2:], 'body'))}"
)
_READ_STEPS: Final = f"SELECT {', '.join(STEP_COLUMNS)} FROM steps WHERE run = ?"
_WRITE_STEP: Final = (
    f"INSERT INTO steps (run, {', '.join(STEP_COLUMNS)}) VALUES (?, {', '.join('?' * len(STEP_COLUMNS))}) "
    "ON CONFLICT (run, id) DO UPDATE SET body = excluded.body, status = excluded.status, k = excluded.k"
)
_NO_PASSAGES: Final = PassageTable({})
_PART = "part"
"""Key in a run's body: the number of its latest part, where the run has gone on."""


@dataclass(slots=True)
class EventBatch:
    """Captured events as rows, with the texts that they need under their digests."""

    rows: list[EventRow] = field(default_factory=list)
    texts: dict[bytes, str] = field(default_factory=dict)


@dataclass(slots=True)
class RunRow:
    """A row of the table `runs` that this transaction has made or changes, with the steps that it adds."""

    columns: dict[str, Any]
    """The values of the columns beside the body."""
    body: Data
    is_new: bool = False
    steps: dict[str, StepRow] = field(default_factory=dict)
    """The steps that are not in the tables yet, by their ids; a step that is reported twice counts once."""
    names: list[tuple[str, str]] = field(default_factory=list)
    """The names to be noted, each with its kind."""

    def captured(self) -> tuple[object, ...]:
        """Returns what makes a run another one: all that was captured of it, without feedback."""
        body: Data = json.loads(dump(self.body))
        body.get("metadata", {}).pop(FEEDBACK, None)
        names = ("name", "question", "answer", "status", "started_ns", "ended_ns")
        return body, *(self.columns[name] for name in names)


class StoredPart(NamedTuple):
    """The run that the events of one captured run, or of a part that goes on, are written to: its row, the number of
    the part (0 for a run as it began), and the steps and turns that the run had before the part."""

    row: RunRow
    number: int = 0
    steps: int = 0
    turns: int = 0


class Writing:
    """Writes the captured data of one transaction; `finish` ends it. With `scored=False` nobody scores the runs."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        owner: str,
        *,
        texts: dict[bytes, str] | None = None,
        scored: bool = True,
    ) -> None:
        self._db, self._owner, self._scored = connection, owner, scored
        self._now = now_ns()
        self._parts: dict[str, StoredPart] = {}
        """The runs that events are written to, by the id under which they were captured."""
        self._rows: dict[int, RunRow] = {}
        self._last_seq = 0
        self.changed: set[str] = set()
        """The ids, in the store, of the open runs of which a step ended or was amended."""
        self.ended = 0
        """The number of runs that ended in this transaction and were open before."""
        self.texts: dict[bytes, str] = {} if texts is None else texts
        """The texts of the written passages, by digest."""
        self._uses: Counter[bytes] = Counter()
        """The change in how many rows need a text, by its digest."""

    def write(self, events: Iterable[EventRow]) -> None:
        """Takes events; `finish` writes them."""
        time_slice = TimeSlice()
        for event in events:
            match event:
                case StepRow():
                    self._step_ended(event)
                case RunStarted():
                    resumed = event.names.resumes and self._goes_on(event.run, event.names)
                    if not resumed and self._part(event.run.id) is None:
                        self._new(event.run, self._owner)
                case RunEnded():
                    self._ended(event)
                case StepAmended():
                    self._amended(event)
            time_slice.rest_if_used()

    def write_run(self, run: Run, *, due: bool = False) -> RunRow:
        """Takes a whole run in place of the stored one of its id; returns its row, which `finish` writes.

        With `due` the run is to be scored where something is different; feedback alone changes no score.
        """
        part = self._part(run.id)
        if part is None or part.number:
            row, is_other = self._new(run), True
            self._replace_steps(row, run)
        else:
            row, columns = part.row, part.row.columns
            if columns["status"] != "open" and columns["question"] not in ("", storable(run.question)):
                allowed = (
                    f"an id that no run with another question has; it is that of {columns['question']!r}"
                )
                raise InvalidInput("run.id", run.id, allowed)
            if (feedback := row.body.get("metadata", {}).get(FEEDBACK)) and FEEDBACK not in run.metadata:
                run = replace(run, metadata={**run.metadata, FEEDBACK: feedback})  # it came after the run
            before = row.captured()
            is_other = self._replace_steps(row, run)
            self._fill(row, run)
            is_other |= before != row.captured()
            if is_other:
                columns |= {"revision": columns["revision"] + 1, "attempts": 0}
        if due and is_other:
            self.make_due(row)
        return row

    def make_due(self, row: RunRow, queued_ns: int | None = None) -> None:
        """Marks a run as to be scored by its owner."""
        row.columns |= {"owner": self._owner, "due_ns": self._now, "queued_ns": queued_ns or self._now}

    def finish(self) -> None:
        """Writes the runs, their texts, and how often each is needed; deletes texts that nobody needs any more."""
        self._write_rows()
        change_uses(self._db, self._uses, self.texts)

    def _goes_on(self, run: Run, names: RunNames) -> bool:
        """Opens the stored run that a captured one goes on with, so that this process can append to it; its question
        stays. Returns False where there is none."""
        self._write_rows()
        if self._part(run.id) is not None:
            return True  # the batch is repeated, or a step has opened the run
        waiting = "SELECT max(run) FROM names WHERE name = ? AND kind = 'thread'"
        seq = self._db.execute(waiting, (storable(names.thread),)).fetchone()[0] if names.thread else None
        if seq is None and names.caller_id:
            seq = find_run(self._db, names.caller_id)
            if seq is None:
                NOTICES.warn("a run that is not there to go on with", _NOT_THERE.format(names.caller_id))
        if seq is None:
            return False
        number, steps, turns = self._db.execute(
            f"SELECT coalesce(json_extract(body, '$.{_PART}'), 0) + 1, "
            "(SELECT coalesce(max(idx) + 1, 0) FROM steps WHERE run = runs.seq), "
            "(SELECT coalesce(max(turn) + 1, 0) FROM steps WHERE run = runs.seq) FROM runs WHERE seq = ?",
            (seq,),
        ).fetchone()
        self._db.execute("DELETE FROM names WHERE run = ? AND kind = 'thread'", (seq,))
        self._db.execute(
            "INSERT INTO names (name, kind, run, part, steps, turns) VALUES (?, 'part', ?, ?, ?, ?)",
            (storable(run.id), seq, number, steps, turns),
        )
        row = self._opened(run.id).row
        metadata = {**run.metadata, **row.body.get("metadata", {})}
        row.body = self._with(row.body, replace(run, metadata=metadata, trace=None)) | {_PART: number}
        row.columns |= {**_NOT_DUE, "owner": self._owner, "status": "open", "attempts": 0}
        row.columns["question"] = row.columns["question"] or storable(run.question)
        row.columns["revision"] += 1
        return True

    def _step_ended(self, step: StepRow) -> None:
        part = self._opened(step.run_id)
        row, (id, index, turn, *rest) = part.row, step.columns
        if self._step(row, id) is not None:
            return
        if part.number:
            step = step._replace(columns=(id, index + part.steps, turn + part.turns, *rest))
        row.steps[id] = step
        self._step_changed(row)

    def _ended(self, event: RunEnded) -> None:
        part = self._opened(event.run_id)
        row, columns = part.row, part.row.columns
        if event.void and not part.number:
            del self._rows[columns["seq"]], self._parts[event.run_id]
            self._uses.subtract(digests_in(row.body) if row.is_new else ())
            if not row.is_new:
                delete_runs(self._db, [columns["seq"]])
            return
        if row.body.get(_PART, 0) > part.number:
            return  # another process, or another call, has gone on with it since
        self.ended += columns["status"] == "open"
        self.changed.discard(columns["id"])
        row.body = self._with(row.body, event)
        if event.waits_for:
            row.names.append((storable(event.waits_for), "thread"))
        if event.question and not (part.number and columns["question"]):
            columns["question"] = storable(event.question)
        if event.answer is not None:
            columns["answer"] = storable(event.answer)
        columns["revision"] += columns["due_ns"] is not None or columns["owner"] is None
        columns |= {"status": event.status, "ended_ns": event.ended_ns or self._now, "attempts": 0}
        self.make_due(row)

    def _amended(self, event: StepAmended) -> None:
        part = self._opened(event.run_id)
        id = storable(event.step_id)
        columns = self._step(part.row, id)
        if columns is None:
            return
        step = dict(zip(STEP_COLUMNS, columns, strict=True))
        body: Data = json.loads(step["body"])
        table = PassageTable(self.texts, body.pop("items", ()))
        step["k"] = amend(body, event, table, step["k"])
        step["body"] = dump(table.within(body))
        if event.error is not None:
            step["status"] = "error"
        known = part.row.steps.get(id)
        digests = (*(known.digests if known else ()), *table.digests)
        part.row.steps[id] = StepRow(event.run_id, tuple(step.values()), digests)
        self._step_changed(part.row)

    def _step_changed(self, row: RunRow) -> None:
        """Notes that a step of an open run has changed; makes an ended one due again."""
        if row.columns["status"] == "open":
            self.changed.add(row.columns["id"])
            return
        row.columns |= {"revision": row.columns["revision"] + 1, "attempts": 0}
        self.make_due(row, row.columns["queued_ns"])

    def _opened(self, run_id: str) -> StoredPart:
        """Returns the run; opens one whose start was lost."""
        if (part := self._part(run_id)) is None:
            self._new(Run(run_id, status="open"), self._owner)
            part = self._parts[run_id]
        return part

    def _part(self, run_id: str) -> StoredPart | None:
        """Returns the run, or the part of a run, that was captured under this id; None where there is none."""
        if (part := self._parts.get(run_id)) is not None:
            return part
        # Most runs are new: a query of few columns is the quicker one where it finds nothing.
        found = self._db.execute(
            "SELECT seq, 0, 0, 0 FROM runs WHERE id = ?1 UNION ALL "
            "SELECT run, part, steps, turns FROM names WHERE name = ?1 AND kind = 'part'",
            (storable(run_id),),
        ).fetchone()
        if found is None:
            return None
        seq, *place = found
        if (row := self._rows.get(seq)) is None:  # always the same object for the same run
            statement = f"SELECT body, {', '.join(_EMPTY_RUN)} FROM runs WHERE seq = ?"
            columns = dict(self._db.execute(statement, (seq,)).fetchone())
            row = self._rows[seq] = RunRow(columns, json.loads(columns.pop("body")))
        part = self._parts[run_id] = StoredPart(row, *place)
        return part

    def _new(self, run: Run, owner: str | None = None) -> RunRow:
        """Returns the row of a run that is not in the tables; with an owner, the run is open."""
        if not self._last_seq:
            self._last_seq = self._db.execute(
                "SELECT max(coalesce((SELECT max(seq) FROM runs), 0), "
                "coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'runs'), 0))"
            ).fetchone()[0]
        self._last_seq += 1
        columns = {**_EMPTY_RUN, "seq": self._last_seq, "id": storable(run.id), "owner": owner}
        row = self._rows[self._last_seq] = RunRow(columns, {}, is_new=True)
        self._fill(row, run)
        self._parts[run.id] = StoredPart(row)
        return row

    def _fill(self, row: RunRow, run: Run) -> None:
        """Puts what a run says in place of what was known of it."""
        columns = row.columns
        columns["name"], columns["question"] = storable(run.name), storable(run.question)
        columns["answer"], columns["status"] = run.answer and storable(run.answer), run.status
        columns["started_ns"], columns["ended_ns"] = run.started_ns, run.ended_ns
        before, row.body = row.body, self._with(data_of(run, MORE_OF_RUN) if MORE_OF_RUN else {}, run)
        if _PART in before:
            row.body[_PART] = before[_PART]
        if "items" in before:
            self._uses.subtract(digests_in(before))
        if caller_id := run.metadata.get(CALLER_ID):
            row.names.append((storable(str(caller_id)), "caller"))

    def _with(self, body: Data, record: Run | RunEnded) -> Data:
        """Returns the body of a run with the values that a record has."""
        if record.pool is None:
            take(body, record, RUN_FORMS, _NO_PASSAGES)
            return body
        table = PassageTable(self.texts, body.pop("items", ()))
        take(body, record, RUN_FORMS, table)
        self._uses.update(table.digests)
        return table.within(body)

    def _step(self, row: RunRow, id: str) -> tuple[Any, ...] | None:
        """Returns the columns of a step of a run; None where the run has none of this id."""
        if (step := row.steps.get(id)) is not None or row.is_new:
            return step and step.columns
        stored = self._db.execute(f"{_READ_STEPS} AND id = ?", (row.columns["seq"], id)).fetchone()
        return None if stored is None else tuple(stored)

    def _replace_steps(self, row: RunRow, run: Run) -> bool:
        """Puts the steps of a whole run in place of those that are there; returns False where they are the same."""
        steps = {storable(step.id): step_row(step, self.texts) for step in run.steps}
        stored = self._db.execute(f"{_READ_STEPS} ORDER BY idx, seq", (row.columns["seq"],)).fetchall()
        there = [*map(tuple, stored), *(step.columns for step in row.steps.values())]
        if there == [step.columns for step in steps.values()]:
            return False
        for one in stored:
            self._uses.subtract(digests_in(json.loads(one["body"])))
        self._db.execute("DELETE FROM steps WHERE run = ?", (row.columns["seq"],))
        row.steps = steps
        return True

    def _write_rows(self) -> None:
        """Writes the rows of runs, in the order of their starts, and of their new steps."""
        runs: list[tuple[Any, ...]] = []
        steps: list[tuple[Any, ...]] = []
        names: list[tuple[str, str, int]] = []
        digests: list[bytes] = []
        time_slice = TimeSlice()
        for seq, row in self._rows.items():
            columns = row.columns
            if not self._scored and columns["status"] != "open" and columns["owner"] == self._owner:
                columns |= _NOT_DUE
            runs.append((*columns.values(), dump(row.body)))
            for step in row.steps.values():
                steps.append((seq, *step.columns))
                digests += step.digests
            names += [(*name, seq) for name in row.names]
            time_slice.rest_if_used()
        self._uses.update(digests)
        self._rows, self._parts = {}, {}  # what comes later reads them again
        self._db.executemany(_WRITE_RUN, runs)
        self._db.executemany(_WRITE_STEP, steps)
        self._db.executemany("INSERT OR IGNORE INTO names (name, kind, run) VALUES (?, ?, ?)", names)

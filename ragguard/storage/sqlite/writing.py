"""Writes captured events and whole runs into the tables, inside the caller's transaction.

The rows of runs are kept in memory until the end of the transaction, and each is written once: most runs begin and end
in one. Writing the same thing again changes nothing, so a batch that was interrupted can be repeated.

A run has one invocation, or several: a run that was interrupted is resumed later, often by another process. Each
invocation is captured under an id of its own. The id of the first one is the run's id. `RunStarted.names` says that an
invocation resumes a run, and by which name the run is found; from then on its events are written to the row of that
run, its steps behind those that the run had before.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, NamedTuple

from ragguard.capture.events import CALLER_ID, EarlierStepsRead, RunEnded, RunNames, RunStarted, StepAmended
from ragguard.errors import InvalidInput
from ragguard.records import FEEDBACK, Run
from ragguard.runtime.deadline import now_ns
from ragguard.runtime.faults import NOTICES
from ragguard.runtime.threads import TimeSlice
from ragguard.storage.sqlite.layout import Data, dump, storable
from ragguard.storage.sqlite.ledger import delete_runs
from ragguard.storage.sqlite.passages import PassageTable, change_uses, digests_in
from ragguard.storage.sqlite.rows import (
    RUN,
    RUN_BODY,
    STEP_COLUMNS,
    EventRow,
    StepRow,
    comparable_step,
    merged,
    own_digests,
    run_values,
    step_row,
    step_to_amend,
    unread_steps,
)
from ragguard.storage.sqlite.run_names import (
    CALLER,
    LATEST_INVOCATION,
    THREAD,
    add_names,
    find_invocation,
    find_run,
    resume,
    waiting_run,
)

_NOT_THERE = (
    "resume: no run {!r} is in this store, so a new run begins. To continue a run, give the id that you gave it, or "
    "its own, and use the store that has it (`ragguard report` lists them)"
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
    "ON CONFLICT (run, id) DO UPDATE SET idx = excluded.idx, body = excluded.body, status = excluded.status, "
    "k = excluded.k"
)
_END_BODY: Final = tuple(one.name for one in fields(RunEnded) if one.name in RUN_BODY)
"""The fields of a run's body that the end of an invocation may say."""


@dataclass(slots=True)
class RunRow:
    """A row of the table `runs` that this transaction has made or changes, with the steps that it adds."""

    columns: dict[str, Any]
    """The values of the columns beside the body."""
    body: Data
    invocations: int = 0
    """The number of the latest invocation that resumed the run; 0 where none did."""
    is_new: bool = False
    """True where the run is not in the tables yet."""
    steps: dict[str, StepRow] = field(default_factory=dict)
    """The new and changed steps by their ids."""
    names: list[tuple[str, str]] = field(default_factory=list)
    """The names to be noted, each with its kind."""

    def captured(self) -> tuple[object, ...]:
        """Returns what makes a run another one: all that was captured of it, without feedback."""
        body: Data = json.loads(dump(self.body))
        body.get("metadata", {}).pop(FEEDBACK, None)
        names = ("name", "question", "answer", "status", "started_ns", "ended_ns")
        return run_values(body, own_digests(body)), *(self.columns[name] for name in names)


class StoredInvocation(NamedTuple):
    """An invocation whose events are written, and where: the row of its run, its number (0 for the first one of the
    run), and how many steps and turns the run had before it."""

    row: RunRow
    number: int = 0
    steps_before: int = 0
    turns_before: int = 0


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
        self._invocations: dict[str, StoredInvocation] = {}
        """The invocations whose events are written, by their ids."""
        self._rows: dict[int, RunRow] = {}
        """The rows of runs that this transaction makes or changes, by their `seq`."""
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
                    resumed = event.names.resumes and self._resumed(event.run, event.names)
                    if not resumed and self._invocation(event.run.id) is None:
                        self._new(event.run, self._owner)
                case RunEnded():
                    self._ended(event)
                case StepAmended():
                    self._amended(event)
                case EarlierStepsRead():
                    self._earlier_read(event)
            time_slice.rest_if_used()

    def write_run(self, run: Run, *, due: bool = False, amends: bool = False) -> RunRow:
        """Takes a whole run in place of the stored one of its id; returns its row, which `finish` writes.

        With `due` the run is to be scored if something is different; feedback alone changes no score. Unless it
        `amends`, a run with another question than the stored one of its id is refused.
        """
        invocation = self._invocation(run.id)
        if invocation is None or invocation.number:
            row, is_other = self._new(run), True
            self._replace_steps(row, run)
        else:
            row, columns = invocation.row, invocation.row.columns
            changed = columns["status"] != "open" and columns["question"] not in ("", storable(run.question))
            if changed and not amends:
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

    def _resumed(self, run: Run, names: RunNames) -> bool:
        """Opens the stored run that an invocation resumes, so that this process can append to it; its question stays.
        Returns False where there is no such run.

        Args:
            run: What was captured when the invocation began; its id is the invocation's.
            names: The thread that the stored run waits for, or the id that the application gave it.
        """
        self._write_rows()
        if self._invocation(run.id) is not None:
            return True  # the batch is repeated, or a step has opened the run
        seq = waiting_run(self._db, names.thread)
        if seq is None and names.caller_id:
            seq = find_run(self._db, names.caller_id)
            if seq is None:
                NOTICES.warn("a run that is not there to go on with", _NOT_THERE.format(names.caller_id))
        if seq is None:
            return False
        resume(self._db, seq, run.id)
        row = self._opened(run.id).row
        # What the run said of itself before counts, and the trace of its first invocation stays.
        before = row.body.get("metadata", {})
        row.body = self._with_values(
            row.body, replace(run, metadata={**run.metadata, **before}, trace=None), RUN_BODY
        )
        row.columns |= {**_NOT_DUE, "owner": self._owner, "status": "open", "attempts": 0}
        row.columns["question"] = row.columns["question"] or storable(run.question)
        row.columns["revision"] += 1
        return True

    def _step_ended(self, step: StepRow) -> None:
        invocation = self._opened(step.run_id)
        row, (id, index, turn, *rest) = invocation.row, step.columns
        if self._step(row, id) is not None:
            return
        if invocation.number:
            place = (index + invocation.steps_before, turn + invocation.turns_before)
            step = step._replace(columns=(id, *place, *rest))
        row.steps[id] = step
        self._step_changed(row)

    def _ended(self, event: RunEnded) -> None:
        invocation = self._opened(event.run_id)
        row, columns = invocation.row, invocation.row.columns
        if event.void and not invocation.number:
            del self._rows[columns["seq"]], self._invocations[event.run_id]
            self._uses.subtract(digests_in(row.body) if row.is_new else ())
            if not row.is_new:
                delete_runs(self._db, [columns["seq"]])
            return
        if row.invocations > invocation.number:
            return  # another process, or another call, has resumed the run since
        self.ended += columns["status"] == "open"
        self.changed.discard(columns["id"])
        row.body = self._with_values(row.body, event, _END_BODY)
        if event.waits_for:
            row.names.append((storable(event.waits_for), THREAD))
        if event.question and not (invocation.number and columns["question"]):
            columns["question"] = storable(event.question)
        if event.answer is not None:
            columns["answer"] = storable(event.answer)
        columns["revision"] += columns["due_ns"] is not None or columns["owner"] is None
        columns |= {"status": event.status, "ended_ns": event.ended_ns or self._now, "attempts": 0}
        self.make_due(row)

    def _earlier_read(self, event: EarlierStepsRead) -> None:
        """Corrects what the models read of the run's earlier retrievals, where that was not known yet."""
        invocation = self._opened(event.run_id)
        seq, before = invocation.row.columns["seq"], invocation.steps_before
        for step_id, read in event.read(unread_steps(self._db, seq, before)).items():
            self._amended(StepAmended(event.run_id, step_id, read.passages, metadata=read.metadata))

    def _amended(self, event: StepAmended) -> None:
        row = self._opened(event.run_id).row
        id = storable(event.step_id)
        columns = self._step(row, id)
        if columns is None:
            return
        step, table = step_to_amend(columns, event.run_id, self.texts)
        amended = step_row(event.applied_to(step), table)
        if (known := row.steps.get(id)) is not None:
            amended = amended._replace(digests=(*known.digests, *amended.digests))
        row.steps[id] = amended
        self._step_changed(row)

    def _step_changed(self, row: RunRow) -> None:
        """Notes that a step of an open run has changed; makes an ended one due again."""
        if row.columns["status"] == "open":
            self.changed.add(row.columns["id"])
            return
        row.columns |= {"revision": row.columns["revision"] + 1, "attempts": 0}
        self.make_due(row, row.columns["queued_ns"])

    def _opened(self, id: str) -> StoredInvocation:
        """Returns the invocation with this id; opens a run where its start was lost."""
        if (invocation := self._invocation(id)) is None:
            self._new(Run(id, status="open"), self._owner)
            invocation = self._invocations[id]
        return invocation

    def _invocation(self, id: str) -> StoredInvocation | None:
        """Returns the invocation that was captured under this id; None where nothing was."""
        if (invocation := self._invocations.get(id)) is not None:
            return invocation
        found = find_invocation(self._db, id)
        if found is None:
            return None
        seq, *place = found
        if (row := self._rows.get(seq)) is None:  # always the same object for the same run
            statement = f"SELECT body, {LATEST_INVOCATION}, {', '.join(_EMPTY_RUN)} FROM runs WHERE seq = ?"
            columns = dict(self._db.execute(statement, (seq,)).fetchone())
            body, invocations = json.loads(columns.pop("body")), columns.pop("invocations")
            row = self._rows[seq] = RunRow(columns, body, invocations)
        invocation = self._invocations[id] = StoredInvocation(row, *place)
        return invocation

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
        self._invocations[run.id] = StoredInvocation(row)
        return row

    def _fill(self, row: RunRow, run: Run) -> None:
        """Puts what a run says in place of what was known of it."""
        columns = row.columns
        columns["name"], columns["question"] = storable(run.name), storable(run.question)
        columns["answer"], columns["status"] = run.answer and storable(run.answer), run.status
        columns["started_ns"], columns["ended_ns"] = run.started_ns, run.ended_ns
        before, row.body = row.body, self._with_values({}, run, RUN_BODY)
        if "items" in before:
            self._uses.subtract(digests_in(before))
        if caller_id := run.metadata.get(CALLER_ID):
            row.names.append((storable(str(caller_id)), CALLER))

    def _with_values(self, body: Data, record: Run | RunEnded, names: Iterable[str]) -> Data:
        """Returns the body of a run with the values of a record's fields, but for those that say nothing."""
        items = () if record.pool is None else body.pop("items", ())
        table = PassageTable(self.texts, items)
        body = merged(body, RUN.write(record, names, table))
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
        steps = {storable(step.id): step_row(step, PassageTable(self.texts)) for step in run.steps}
        stored = self._db.execute(f"{_READ_STEPS} ORDER BY idx, seq", (row.columns["seq"],)).fetchall()
        there = [*map(tuple, stored), *(step.columns for step in row.steps.values())]
        new = [step.columns for step in steps.values()]
        if there == new or (
            len(there) == len(new) and [*map(comparable_step, there)] == [*map(comparable_step, new)]
        ):
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
        self._rows, self._invocations = {}, {}  # what comes later reads them again
        self._db.executemany(_WRITE_RUN, runs)
        self._db.executemany(_WRITE_STEP, steps)
        add_names(self._db, names)

"""Writes captured events and whole runs into the tables, inside the caller's transaction.

Writing the same thing again changes nothing, so a batch that was interrupted can be repeated.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from ragguard.capture.events import (
    Event,
    OneStepRun,
    RunEnded,
    RunStarted,
    StepAmended,
    StepEnded,
)
from ragguard.errors import InvalidInput
from ragguard.records import FEEDBACK, Run
from ragguard.runtime.deadline import now_ns
from ragguard.runtime.faults import NOTICES
from ragguard.runtime.threads import TimeSlice
from ragguard.storage.sqlite.owners import make_due
from ragguard.storage.sqlite.passages import NeededTexts, PassageTable, digests_in
from ragguard.storage.sqlite.rows import STEP_COLUMNS, StepRow, add_end, amend, run_data, step_row
from ragguard.storage.sqlite.schema import Data, dump, maybe, storable
from ragguard.storage.sqlite.stored_runs import (
    INSERT_RUN,
    INSERT_STEP,
    PART,
    NewRun,
    StoredPart,
    delete_runs,
    find_part,
    forget_deleted,
    go_on,
    insert_new,
    note_caller_id,
    note_waiting,
    was_deleted,
)

EventRow: TypeAlias = NewRun | RunStarted | StepRow | StepAmended | RunEnded
"""An event on its way into the tables. Steps are rows already, without their passages as records."""


_NOT_THERE = (
    "resume: no run {!r} is in this store, so one begins here. Where it should go on with one: take the id that the "
    "run was given, or else its own, and the store that it is in (`ragguard report` lists them); a first part that "
    "begins with id= says nothing of this"
)
UNANNOUNCED = "unannounced"
"""Key in the body of a run that a step has opened, while the run's start is not known."""


@dataclass(slots=True)
class EventBatch:
    """Captured events as rows, with the texts that they need under their digests."""

    rows: list[EventRow] = field(default_factory=list)
    texts: dict[bytes, str] = field(default_factory=dict)


def event_row(event: Event, texts: dict[bytes, str]) -> EventRow:
    """Returns the event as rows; adds the texts that it needs to `texts`, under their digests."""
    match event:
        case StepEnded():
            row = step_row(event.step, texts)
            return row._replace(turn_open=True) if event.turn_open else row
        case OneStepRun():
            return NewRun(event.run, {event.step.id: step_row(event.step, texts)})
    return event


class Writing:
    """Writes the captured data of one transaction; `finish` ends it."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        owner: str,
        *,
        texts: dict[bytes, str] | None = None,
        scored: bool = True,
    ) -> None:
        """Takes the `texts` of the events' passages, under their digests. With `scored=False` nobody is to score the
        runs."""
        self._db, self._scored = connection, scored
        self._owner = owner
        self._now = now_ns()
        self._parts: dict[str, StoredPart] = {}
        """The stored runs that events are written to, by the id under which they were captured."""
        self._open: set[int] = set()
        """The `seq` of runs that are known to be open."""
        self._new: dict[str, NewRun] = {}
        """Runs that began in this transaction and are not in the tables yet, by id."""
        self.changed: dict[str, bool] = {}
        """The open runs of which a step ended or was amended, by their ids in the store; True where other steps of the
        last step's turn are still open."""
        self.ended = 0
        """The number of runs that ended in this transaction and were open before."""
        self.of_deleted = 0
        """The number of steps and amendments of runs that were deleted while they were open."""
        self.texts: dict[bytes, str] = {} if texts is None else texts
        """The texts of the written passages, by digest."""
        self._needed = NeededTexts(self.texts)

    def write(self, events: Iterable[EventRow]) -> None:
        """Writes events; `finish` writes the texts that they need."""
        time_slice = TimeSlice()
        for event in events:
            self.event(event)
            time_slice.rest_if_used()

    def event(self, event: EventRow) -> None:
        """Writes one event."""
        match event:
            case NewRun():
                self._new_run(event)
            case StepRow():
                self._step_ended(event)
            case RunStarted():
                if not event.names.resumes or not self._goes_on(event):
                    self._started(event.run)
            case RunEnded():
                self._ended(event)
            case StepAmended():
                self._amended(event)

    def write_run(self, run: Run) -> bool:
        """Writes a whole run in place of the stored one of its id; returns False where nothing is different, or
        feedback alone, which changes no score. `finish` writes the texts that it needs."""
        ids = [step.id for step in run.steps]
        if len(set(ids)) < len(ids):
            raise InvalidInput("run.steps", ids, "steps with different ids")
        found = self._db.execute(
            "SELECT seq, name, question, answer, status, started_ns, ended_ns, body FROM runs WHERE id = ?",
            (storable(run.id),),
        ).fetchone()
        known_body: Data = {} if found is None else json.loads(found["body"])
        feedback = known_body.get("metadata", {}).get(FEEDBACK)
        if feedback is not None and FEEDBACK not in run.metadata:  # it came after the run
            run = replace(run, metadata={**run.metadata, FEEDBACK: feedback})
        table = PassageTable(self.texts)
        body = table.body(run_data(run, table))
        columns = (
            storable(run.name), storable(run.question), maybe(run.answer), run.status, run.started_ns, run.ended_ns
        )  # fmt: skip
        steps = [step_row(step, self.texts) for step in run.steps]
        if found is None:
            seq = self._insert(run, body)
            note_caller_id(self._db, seq, run)
            self._needed.add(table.digests)
            for step in steps:
                self._step(seq, step)
            return True
        seq, *known, _ = found
        if known[3] != "open" and known[1] not in ("", columns[1]):
            raise InvalidInput(
                "run.id", run.id, f"an id that no run with another question has; it is that of {known[1]!r}"
            )
        self._open.discard(seq)
        replaced = self._replace(seq, steps)
        same, new_body = not replaced and tuple(known) == columns, json.loads(body)
        if same and known_body == new_body:
            return False
        same = same and _but_feedback(known_body) == _but_feedback(new_body)
        self._needed.remove(digests_in(known_body))
        self._needed.add(table.digests)
        self._db.execute(
            "UPDATE runs SET name = ?, question = ?, answer = ?, status = ?, started_ns = ?, ended_ns = ?, "
            "body = ?, revision = revision + ?, attempts = 0 WHERE seq = ?",
            (*columns, body, not same, seq),
        )
        note_caller_id(self._db, seq, run)
        return not same

    def finish(self) -> None:
        """Writes the new runs, their texts, and how often each is needed; deletes texts that nobody needs any more."""
        self._insert_new()
        self._needed.write(self._db)

    def _new_run(self, new: NewRun) -> None:
        run = new.run
        if run.id not in self._new and self._part(run.id) is None:
            self._new[run.id] = new
            self.ended += 1
            return
        self._started(replace(run, status="open", ended_ns=0))
        for step in new.steps.values():
            self._step_ended(step)
        self._ended(RunEnded(run.id, run.status, run.answer, run.question, ended_ns=run.ended_ns))

    def _goes_on(self, event: RunStarted) -> bool:
        """Opens the stored run that a captured one goes on with; returns False where there is none."""
        self._insert_new()
        if self._part(event.run.id) is not None:
            return False  # the batch is repeated, or a step has opened the run
        part = go_on(self._db, event.run, event.names, self._owner)
        if part is None:
            if caller_id := event.names.caller_id:
                NOTICES.warn("a run that is not there to go on with", _NOT_THERE.format(caller_id))
            return False
        self._parts[event.run.id] = part
        self._open.add(part.seq)
        return True

    def _step_ended(self, step: StepRow) -> None:
        if (new := self._new.get(step.run_id)) is not None:
            if new.is_open and new.steps.setdefault(step.id, step).columns == step.columns:
                self.changed[step.run_id] = step.turn_open
                return
            self._insert_new()
        part = self._opened(step.run_id)
        if part is None:
            self.of_deleted += 1
        elif self._step(part.seq, part.step_behind(step)):
            self._step_changed(part, turn_open=step.turn_open)

    def _started(self, run: Run) -> None:
        if run.id in self._new:
            return
        part = self._part(run.id)
        if part is None:
            self._new[run.id] = NewRun(run)
            return
        # A step that came before the start has opened the run.
        if not part.number and UNANNOUNCED in self._body("runs", part.seq):
            table = PassageTable(self.texts)
            body = table.body(run_data(run, table))
            self._db.execute(
                "UPDATE runs SET name = ?, question = ?, started_ns = ?, body = ? WHERE seq = ?",
                (storable(run.name), storable(run.question), run.started_ns, body, part.seq),
            )
            self._needed.add(table.digests)
            note_caller_id(self._db, part.seq, run)

    def _ended(self, event: RunEnded) -> None:
        new = self._new.get(event.run_id)
        if new is not None and event.void:
            del self._new[event.run_id]
            return
        if new is not None and new.is_open and not event.waits_for:
            new.end = event
            self.ended += 1
            self.changed.pop(event.run_id, None)
            return
        self._insert_new()
        part = self._opened(event.run_id)
        if part is None:
            forget_deleted(self._db, event.run_id)
            return
        if event.void and not part.number:
            delete_runs(self._db, [part.seq])
            return
        body = self._body("runs", part.seq)
        if body.get(PART, 0) > part.number:  # another process, or another call, has gone on with it since
            return
        self.ended += part.seq in self._open
        self._open.discard(part.seq)
        self.changed.pop(part.run_id, None)
        table = PassageTable(self.texts, body.pop("items", ()))
        add_end(body, event, table, part.number)
        self._needed.add(table.digests)
        if event.waits_for:
            note_waiting(self._db, part.seq, event.waits_for)
        question = storable(event.question)
        self._db.execute(
            "UPDATE runs SET status = ?, answer = coalesce(?, answer), "
            "question = CASE WHEN ? = '' OR (? AND question <> '') THEN question ELSE ? END, "
            "ended_ns = ?, body = ?, attempts = 0, "
            "revision = revision + (due_ns IS NOT NULL OR owner IS NULL) WHERE seq = ?",
            (
                event.status, maybe(event.answer), question, part.number > 0, question,
                event.ended_ns or self._now, table.body(body), part.seq,
            ),
        )  # fmt: skip
        make_due(self._db, part.seq, self._owner, self._now)

    def _amended(self, event: StepAmended) -> None:
        self._insert_new()
        part = self._opened(event.run_id)
        if part is None:
            self.of_deleted += 1
            return
        step = self._db.execute(
            "SELECT seq, body, k FROM steps WHERE run = ? AND id = ?", (part.seq, storable(event.step_id))
        ).fetchone()
        if step is None:
            return
        body: Data = json.loads(step["body"])
        table = PassageTable(self.texts, body.pop("items", ()))
        k = amend(body, event, table, step["k"])
        self._needed.add(table.digests)
        failed = None if event.error is None else "error"
        self._db.execute(
            "UPDATE steps SET body = ?, status = coalesce(?, status), k = ? WHERE seq = ?",
            (table.body(body), failed, k, step["seq"]),
        )
        self._step_changed(part, turn_open=self.changed.get(part.run_id, False))

    def _body(self, table: str, seq: int) -> Data:
        row = self._db.execute(f"SELECT body FROM {table} WHERE seq = ?", (seq,)).fetchone()
        body: Data = json.loads(row[0])
        return body

    def _part(self, run_id: str) -> StoredPart | None:
        """Returns where the events that were captured under this id are written; None where that is not known yet."""
        part = self._parts.get(run_id)
        if part is None:
            found = find_part(self._db, run_id)
            if found is None:
                return None
            part, is_open = found
            self._parts[run_id] = part
            if is_open:
                self._open.add(part.seq)
        return part

    def _opened(self, run_id: str) -> StoredPart | None:
        """Returns the stored run; opens one whose start was not reported. None: it was deleted while open."""
        part = self._part(run_id)
        if part is None and not was_deleted(self._db, run_id):
            seq = self._insert(Run(run_id), dump({UNANNOUNCED: True}), self._owner)
            part = self._parts[run_id] = StoredPart(seq, run_id)
            self._open.add(seq)
        return part

    def _insert(self, run: Run, body: str, owner: str | None = None) -> int:
        """Inserts a run and returns its `seq`; with an owner, the run is open."""
        seq = self._db.execute(
            INSERT_RUN,
            (
                None, storable(run.id), storable(run.name), storable(run.question), maybe(run.answer),
                "open" if owner else run.status, run.started_ns, run.ended_ns, body, owner, None, None,
            ),
        ).lastrowid  # fmt: skip
        assert seq is not None
        return seq

    def _insert_new(self) -> None:
        """Puts the new runs into the tables, in the order of their starts."""
        if not self._new:
            return
        new, self._new = self._new, {}
        seqs = insert_new(self._db, new.values(), self._needed, self._owner, self._now, scored=self._scored)
        for seq, (run_id, one) in zip(seqs, new.items(), strict=True):
            self._parts[run_id] = StoredPart(seq, run_id)
            note_caller_id(self._db, seq, one.run)
            if one.is_open:
                self._open.add(seq)

    def _step(self, run: int, step: StepRow) -> bool:
        """Writes a step's row; False where it was there already."""
        added = self._db.execute(f"{INSERT_STEP} ON CONFLICT (run, id) DO NOTHING", (*step.columns, run))
        if added.rowcount:
            self._needed.add(step.digests)
        return added.rowcount > 0

    def _replace(self, run: int, steps: Sequence[StepRow]) -> bool:
        """Replaces the stored steps of a run; returns False where they are the same."""
        rows = self._db.execute(
            f"SELECT {', '.join(STEP_COLUMNS)} FROM steps WHERE run = ? ORDER BY idx, seq", (run,)
        ).fetchall()
        if [tuple(row) for row in rows] == [step.columns for step in steps]:
            return False
        for row in rows:
            self._needed.remove(digests_in(json.loads(row["body"])))
        self._db.execute("DELETE FROM steps WHERE run = ?", (run,))
        for step in steps:
            self._step(run, step)
        return True

    def _step_changed(self, part: StoredPart, *, turn_open: bool) -> None:
        """Notes that a step of an open run has changed; makes an ended one due again."""
        if part.seq in self._open:
            self.changed[part.run_id] = turn_open
            return
        self._db.execute(
            "UPDATE runs SET revision = revision + 1, attempts = 0, owner = ?, due_ns = ?, "
            "queued_ns = coalesce(queued_ns, ?) WHERE seq = ? AND status <> 'open'",
            (self._owner, self._now, self._now, part.seq),
        )


def _but_feedback(body: Data) -> Data:
    metadata = {name: value for name, value in body.get("metadata", {}).items() if name != FEEDBACK}
    return {**body, "metadata": metadata}

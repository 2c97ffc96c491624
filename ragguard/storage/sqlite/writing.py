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
    renamed_step,
)
from ragguard.errors import InvalidInput
from ragguard.records import Run
from ragguard.runtime.deadline import now_ns
from ragguard.runtime.notices import NOTICES
from ragguard.storage.sqlite.columns import Data, dump, maybe, storable
from ragguard.storage.sqlite.continued import (
    TIMES_CONTINUED,
    UNANNOUNCED,
    ContinuedRuns,
    forget_deleted,
    wait,
    was_deleted,
)
from ragguard.storage.sqlite.new_runs import INSERT_RUN, INSERT_STEP, NewRun, insert_new
from ragguard.storage.sqlite.owners import make_due
from ragguard.storage.sqlite.passage_table import PassageTable, digests_in
from ragguard.storage.sqlite.rows import STEP_COLUMNS, StepRow, add_end, amend, run_data, step_row
from ragguard.storage.sqlite.texts import NeededTexts
from ragguard.storage.sqlite.time_slice import TimeSlice

EventRow: TypeAlias = NewRun | RunStarted | StepRow | StepAmended | RunEnded
"""An event on its way into the tables. Steps are rows already, without their passages as records."""


_STARTED, _ENDED = map(STEP_COLUMNS.index, ("started_ns", "ended_ns"))


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
        continued: ContinuedRuns | None = None,
        *,
        texts: dict[bytes, str] | None = None,
        scored: bool = True,
    ) -> None:
        """Takes the `continued` runs of the process, where events are written as they are captured, and the `texts` of
        the events' passages, under their digests. With `scored=False` nobody is to score the runs."""
        self._db, self._scored = connection, scored
        self._continued = ContinuedRuns() if continued is None else continued
        self._owner = owner
        self._now = now_ns()
        self._seqs: dict[str, int] = {}
        self._open: set[int] = set()
        """The `seq` of runs that are known to be open."""
        self._new: dict[str, NewRun] = {}
        """Runs that began in this transaction and are not in the tables yet, by id."""
        self.changed: dict[str, bool] = {}
        """The open runs of which a step ended or was amended, by their ids in the store; True where other steps of the
        last step's turn are still open."""
        self.ended: set[str] = set()
        """The runs that ended in this transaction, by their ids in the store."""
        self.ended_again = 0
        """The number of ends of runs whose earlier end this process wrote, too."""
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
                if event.identity is not None:  # the run that it may continue is looked up in the tables
                    self._insert_new()
                self._started(self._continued.begin(self._db, self._owner, event))
            case RunEnded():
                self._ended(event)
            case StepAmended():
                self._amended(event)

    def write_run(self, run: Run) -> bool:
        """Writes a whole run in place of the stored one of its id; returns False where nothing is different. `finish`
        writes the texts that it needs."""
        ids = [step.id for step in run.steps]
        if len(set(ids)) < len(ids):
            raise InvalidInput("run.steps", ids, "steps with different ids")
        table = PassageTable(self.texts)
        body = table.body(run_data(run, table))
        columns = (
            storable(run.name), storable(run.question), maybe(run.answer), run.status,
            run.started_ns, run.ended_ns, body,
        )  # fmt: skip
        steps = [step_row(step, self.texts) for step in run.steps]
        found = self._db.execute(
            "SELECT seq, name, question, answer, status, started_ns, ended_ns, body FROM runs WHERE id = ?",
            (storable(run.id),),
        ).fetchone()
        if found is None:
            seq = self._insert(run, body)
            self._needed.add(table.digests)
            for step in steps:
                self._step(seq, step)
            return True
        seq, *known = found
        if known[1] not in ("", columns[1]):
            raise InvalidInput(
                "run.id", run.id, f"an id that no run with another question has; it is that of {known[1]!r}"
            )
        self._open.discard(seq)
        replaced = self._replace(seq, steps)
        if not replaced and tuple(known) == columns:
            return False
        self._needed.remove(digests_in(json.loads(known[-1])))
        self._needed.add(table.digests)
        self._db.execute(
            "UPDATE runs SET name = ?, question = ?, answer = ?, status = ?, started_ns = ?, ended_ns = ?, "
            "body = ?, revision = revision + 1, attempts = 0 WHERE seq = ?",
            (*columns, seq),
        )
        return True

    def finish(self) -> None:
        """Writes the new runs, their texts, and how often each is needed; deletes texts that nobody needs any more."""
        self._insert_new()
        self._needed.write(self._db)

    def _new_run(self, new: NewRun) -> None:
        run = new.run
        if self._continued.get(run.id) is None and run.id not in self._new and self._seq(run.id) is None:
            self._new[run.id] = new
            return
        self._started(replace(run, status="open", ended_ns=0))
        for step in new.steps.values():
            self._step_ended(step)
        self._ended(RunEnded(run.id, run.status, run.answer, run.question, ended_ns=run.ended_ns))

    def _step_ended(self, step: StepRow) -> None:
        if (stored := self._continued.get(step.run_id)) is not None:
            if stored.dropped:
                return
            if stored.unwritten is not None:
                self._started(self._continued.begin_unwritten(stored))
            else:
                step = stored.step_behind(step)
        if (new := self._new.get(step.run_id)) is not None:
            if new.is_open and _times_of(new.steps.setdefault(step.id, step)) == _times_of(step):
                self.changed[step.run_id] = step.turn_open
                return
            self._insert_new()
        seq = self._opened(step.run_id)
        if seq is None:
            self.of_deleted += 1
            return
        if not self._step(seq, step) and not self._step_with_own_id(seq, step):
            return
        if seq in self._open:
            self.changed[step.run_id] = step.turn_open
        else:
            self._changed(seq)

    def _step_with_own_id(self, run: int, step: StepRow) -> bool:
        """Writes a step whose id another step of its run has, such as one from before the run was continued; returns
        False where it is the same step, which was written before."""
        there = self._db.execute(
            "SELECT started_ns, ended_ns FROM steps WHERE run = ? AND id = ?", (run, step.columns[0])
        ).fetchone()
        if tuple(there) == _times_of(step):
            return False
        own = f"{step.id}~{_times_of(step)[0]}"
        NOTICES.warn("step id used twice", renamed_step(step.run_id, step.id, own), pause=1.0)
        return self._step(run, step._replace(id=own, columns=(own, *step.columns[1:])))

    def _find_step(self, run: int, step_id: str) -> sqlite3.Row | None:
        """Returns `seq`, `idx` and `k` of the step that was written last under this id, or under one of its own
        in place of this id; None where there is none."""
        asked = storable(step_id)
        found = self._db.execute(
            "SELECT seq, idx, k FROM steps WHERE run = ? AND (id = ? OR id >= ? AND id < ?) ORDER BY seq DESC",
            (run, asked, f"{asked}~0", f"{asked}~:"),
        )
        row: sqlite3.Row | None = found.fetchone()
        return row

    def _started(self, run: Run | None) -> None:
        if run is None or run.id in self._new:
            return
        seq = self._seq(run.id)
        if seq is None:
            self._new[run.id] = NewRun(run)
            return
        # A step that came before the start has opened the run.
        if UNANNOUNCED in self._body("runs", seq):
            table = PassageTable(self.texts)
            body = table.body(run_data(run, table))
            self._db.execute(
                "UPDATE runs SET name = ?, question = ?, started_ns = ?, body = ? WHERE seq = ?",
                (storable(run.name), storable(run.question), run.started_ns, body, seq),
            )
            self._needed.add(table.digests)

    def _ended(self, event: RunEnded) -> None:
        stored = self._continued.get(event.run_id)
        if stored is not None and (stored.dropped or stored.unwritten is not None):
            return
        new = self._new.get(event.run_id)
        run_id = event.run_id if stored is None else stored.run_id
        if new is not None and new.is_open and stored is None and not event.waits_for:
            new.end = event
            self.ended.add(run_id)
            self.changed.pop(run_id, None)
            return
        self._insert_new()
        seq = self._opened(run_id)
        if seq is None:
            forget_deleted(self._db, run_id)
            return
        body = self._body("runs", seq)
        times_continued = 0 if stored is None else stored.times_continued
        if (
            body.get(TIMES_CONTINUED, 0) > times_continued
        ):  # another process, or another call, has continued it since
            return
        self._open.discard(seq)
        self.changed.pop(run_id, None)
        self.ended_again += run_id in self.ended or self._continued.has_ended(run_id)
        self.ended.add(run_id)
        table = PassageTable(self.texts, body.pop("items", ()))
        add_end(body, event, table, times_continued)
        self._needed.add(table.digests)
        if event.waits_for:
            wait(self._db, event.waits_for, run_id)
        question = storable(event.question)
        self._db.execute(
            "UPDATE runs SET status = ?, answer = coalesce(?, answer), "
            "question = CASE WHEN ? = '' OR (? AND question <> '') THEN question ELSE ? END, "
            "ended_ns = ?, body = ?, attempts = 0, "
            "revision = revision + (due_ns IS NOT NULL OR owner IS NULL) WHERE seq = ?",
            (
                event.status, maybe(event.answer), question, times_continued > 0, question,
                event.ended_ns or self._now, table.body(body), seq,
            ),
        )  # fmt: skip
        make_due(self._db, seq, self._owner, self._now)

    def _amended(self, event: StepAmended) -> None:
        stored = self._continued.get(event.run_id)
        if stored is not None and (stored.dropped or stored.unwritten is not None):
            return
        self._insert_new()
        run_id = event.run_id if stored is None else stored.run_id
        seq = self._opened(run_id)
        if seq is None:
            self.of_deleted += 1
            return
        step = self._find_step(seq, event.step_id)
        if step is None:
            return
        body = self._body("steps", step[0])
        table = PassageTable(self.texts, body.pop("items", ()))
        k = amend(body, event, table, step[2])
        self._needed.add(table.digests)
        failed = None if event.error is None else "error"
        self._db.execute(
            "UPDATE steps SET body = ?, status = coalesce(?, status), k = ? WHERE seq = ?",
            (table.body(body), failed, k, step[0]),
        )
        if seq in self._open:
            self.changed.setdefault(run_id, False)
        else:
            self._changed(seq)

    def _body(self, table: str, seq: int) -> Data:
        row = self._db.execute(f"SELECT body FROM {table} WHERE seq = ?", (seq,)).fetchone()
        body: Data = json.loads(row[0])
        return body

    def _seq(self, run_id: str) -> int | None:
        seq = self._seqs.get(run_id)
        if seq is None:
            row = self._db.execute(
                "SELECT seq, status FROM runs WHERE id = ?", (storable(run_id),)
            ).fetchone()
            if row is None:
                return None
            seq = self._seqs[run_id] = row[0]
            if row[1] == "open":
                self._open.add(row[0])
        return seq

    def _opened(self, run_id: str) -> int | None:
        """Returns the `seq` of a run; opens one whose start was not reported. None: it was deleted while open."""
        seq = self._seq(run_id)
        if seq is not None:
            return seq
        if was_deleted(self._db, run_id):
            return None
        return self._insert(Run(run_id), dump({UNANNOUNCED: True}), self._owner)

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
        self._seqs[run.id] = seq
        if owner:
            self._open.add(seq)
        return seq

    def _insert_new(self) -> None:
        """Puts the new runs into the tables, in the order of their starts."""
        if not self._new:
            return
        new, self._new = self._new, {}
        seqs = insert_new(self._db, new.values(), self._needed, self._owner, self._now, scored=self._scored)
        for seq, (run_id, one) in zip(seqs, new.items(), strict=True):
            self._seqs[run_id] = seq
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

    def _changed(self, run: int) -> None:
        """Makes an ended run due again, since its steps have changed."""
        self._db.execute(
            "UPDATE runs SET revision = revision + 1, attempts = 0, owner = ?, due_ns = ?, "
            "queued_ns = coalesce(queued_ns, ?) WHERE seq = ? AND status <> 'open'",
            (self._owner, self._now, self._now, run),
        )


def _times_of(step: StepRow) -> tuple[int, int]:
    """Returns when the step began and ended, which tells it from another step of the same id."""
    return step.columns[_STARTED], step.columns[_ENDED]

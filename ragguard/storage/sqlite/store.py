"""The store, which keeps runs in one SQLite file, or in memory, behind plain calls that any thread may make.

Every call is one short transaction. Knows no engine, no queue and no event loop.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from ragguard.capture.events import Event, StepEnded
from ragguard.errors import Closed, InvalidInput, StoreError, StoreUnavailable
from ragguard.records import Failure, Run, Score, ScoredRun, new_id
from ragguard.runtime.arguments import file_path, one_of
from ragguard.runtime.deadline import now_ns
from ragguard.runtime.faults import NOTICES, describe
from ragguard.runtime.threads import TimeSlice
from ragguard.storage.sqlite import ledger, rows
from ragguard.storage.sqlite.database import Database
from ragguard.storage.sqlite.layout import storable
from ragguard.storage.sqlite.ledger import Claim, Left, ScoringOutcome
from ragguard.storage.sqlite.passages import PassageTable
from ragguard.storage.sqlite.reader import StoreReader
from ragguard.storage.sqlite.rows import EventBatch
from ragguard.storage.sqlite.run_names import find_run, find_runs
from ragguard.storage.sqlite.score_rows import add_costs, insert_scores
from ragguard.storage.sqlite.writing import Writing
from ragguard.text.plain import plain_metadata
from ragguard.text.secret_filter import logger

Durability = Literal["fast", "full"]
_log = logger("ragguard")

_DROPPED = (
    "{:,} runs so far were dropped without scores: more than {:,} waited, which is the limit without a store. Raise "
    "queue_size=, score a share with score_rate=, score runs that you have with rg.score_runs(...), which waits, or "
    "give RagGuard a store, which drops nothing"
)


class Store(StoreReader):
    """Keeps runs with their scores and failures in a file; where `path` is None, in memory and within bounds.

    A store belongs to the process that made it: a forked child makes its own.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        durability: Durability = "fast",
        most_waiting: int = 1024,
        scored: bool = True,
    ) -> None:
        """Opens the store; a file that cannot be used, or cannot be written, raises StoreError.

        In memory at most `most_waiting` runs wait to be scored. With `scored=False` captured runs are kept, and nobody
        has to score them.
        """
        one_of("durability", durability, ("fast", "full"))
        self._most_waiting, self._scored = most_waiting, scored
        self._owner = new_id()
        self.counts: Counter[str] = Counter()
        """The counters of this process."""
        self._counting = threading.RLock()  # reentrant: a garbage collection may run a hook inside a hook
        self._claimed: dict[str, int] = {}
        """The runs that are being scored or delivered, by their ids, each with its `seq`."""
        self._unwiped: set[str] = set()
        """Runs that were deleted, whose texts may still be in the log; "" stands for those that grew old."""
        self.outage = ""
        """The reason why the last change could not be written; '' where it was."""
        self.path = None if path is None else file_path("store", path)
        self._db = Database(self.path, full=durability == "full")
        try:
            with self._transaction():  # a disk that takes nothing is an error at the start
                pass
        except StoreUnavailable as error:
            if getattr(error.__cause__, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_BUSY:
                self._db.close()
                raise StoreError(f"{error}; free the disk, or name another file") from error

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Yields the connection for one change."""
        try:
            with self._db.transaction() as db:
                ledger.renew(db, self._owner, only_new=True)
                yield db
        except StoreUnavailable as error:
            self.outage = str(error)
            raise
        self.outage = ""

    def record(self, events: Iterable[Event]) -> set[str]:
        """Writes captured events in one transaction, as `write` does."""
        return self.write(self.prepare(events))

    def prepare(self, events: Iterable[Event]) -> EventBatch:
        """Returns captured events as rows. Each event is read once, and not kept; one that cannot be read is left out
        and counted."""
        batch, time_slice = EventBatch(), TimeSlice()
        for event in events:
            try:
                # The passages of a step become a row at once.
                row = (
                    rows.step_row(event.step, PassageTable(batch.texts))
                    if isinstance(event, StepEnded)
                    else event
                )
                batch.rows.append(row)
            except BaseException as error:  # noqa: BLE001 - a value of the user's may raise anything when it is read
                self._refuse(error)
            time_slice.rest_if_used()
        return batch

    def write(self, batch: EventBatch) -> set[str]:
        """Writes captured events in one transaction, which is durable when this returns.

        Returns the ids of the open runs of which steps ended or were amended. Raises StoreUnavailable where the disk
        takes nothing now, and has written nothing.
        """
        try:
            return self._write(batch)
        except (Closed, StoreUnavailable):
            raise
        except BaseException:  # noqa: BLE001 - one event that cannot be written must not take the others with it
            changed: set[str] = set()
            while batch.rows:
                try:
                    changed |= self._write(EventBatch(batch.rows[:1], batch.texts))
                except (Closed, StoreUnavailable):
                    raise
                except BaseException as error:  # noqa: BLE001 - a value of the user's may raise anything
                    self._refuse(error)
                del batch.rows[0]  # written, or refused: it is not tried again
            return changed

    def _refuse(self, error: BaseException) -> None:
        """Counts an event that is left out."""
        if not self.counts["events_refused"]:
            _log.error("an event could not be stored and is left out: %s", describe(error))
        self.count("events_refused")

    def _write(self, batch: EventBatch) -> set[str]:
        dropped = 0
        with self._transaction() as db:
            writing = Writing(db, self._owner, texts=batch.texts, scored=self._scored)
            writing.write(batch.rows)
            writing.finish()
            if self.path is None:
                dropped = ledger.drop_waiting(db, self._owner, self._most_waiting, self._claimed)
                ledger.evict_done(db)
        self.count("runs_captured", writing.ended)
        if dropped:
            self.count("runs_dropped", dropped)
            said = _DROPPED.format(self.counts["runs_dropped"], self._most_waiting)
            NOTICES.warn(f"dropped {id(self)}", said)
        return writing.changed

    def submit(self, run: Run, identity: str) -> Claim:
        """Writes a whole run in place of the stored one of its id, and claims it, to be scored by the caller; it is not
        claimed, and not to be scored, where the same settings have scored it already, or another living process has to
        score it; then nothing is written."""
        with self._transaction() as db:
            if elsewhere := ledger.scored_elsewhere(db, self._owner, run.id):
                return Claim(run, 0, 0, 0, score=False, elsewhere=elsewhere)
            writing = Writing(db, self._owner)
            row = writing.write_run(run)
            seq, revision = row.columns["seq"], row.columns["revision"]
            finished = "SELECT 1 FROM scorings WHERE run = ? AND revision = ? AND identity = ? AND finished"
            scored = db.execute(finished, (seq, revision, identity)).fetchone() is not None
            if not scored:
                writing.make_due(row)
                row.columns["attempts"] = 0
            writing.finish()
        if not scored:
            self._claimed[run.id] = seq
        return Claim(run, seq, revision, row.columns["attempts"], score=not scored)

    def add_scored(self, scored: Iterable[ScoredRun]) -> None:
        """Writes whole runs with their scores and failures in one transaction. A run that is there gets more scores."""
        with self._transaction() as db:
            for one in scored:
                writing = Writing(db, self._owner)  # one a run, so that the texts of one run are in memory
                seq = writing.write_run(one.run).columns["seq"]
                writing.finish()
                insert_scores(db, seq, one.scores)
                ledger.insert_failures(db, seq, "", one.failures)

    def content(self) -> bytes:
        """Returns the content of a file that holds this store."""
        with self._transaction() as db:
            self._resign(db)
        with self._db.snapshot() as db:
            return db.serialize()

    def add_due(self, runs: Iterable[Run], *, amend: bool = False) -> dict[str, InvalidInput]:
        """Writes whole runs in place of the stored ones of their ids; those that are new or different become due.
        Returns the errors of those that cannot be written, by id; with `amend` a run may have another question."""
        refused: dict[str, InvalidInput] = {}
        with self._transaction() as db:
            writing = Writing(db, self._owner, scored=self._scored)
            for run in runs:
                try:
                    writing.write_run(run, due=self._scored, amends=amend)
                except InvalidInput as error:
                    refused[run.id] = error
            writing.finish()
        return refused

    def add_metadata(self, run_id: str, metadata: Mapping[str, Any], *, due: bool = False) -> bool:
        """Adds metadata to a run, open or not; returns False where it is not there. With `due` a run that has ended is
        due again, as for a sink that sends the metadata on."""
        with self._transaction() as db:
            seq = find_run(db, run_id)
            if seq is not None:
                ledger.change_body(db, seq, {"metadata": plain_metadata(metadata)})
            if seq is not None and due:
                ledger.make_due(db, self._owner, seq)
        self.count("runs_noted", seq is not None)
        return seq is not None

    def claim(self, limit: int) -> tuple[list[Claim], int | None]:
        """Returns the next runs to be scored or delivered, at most `limit`, and claims them; also the time at which the
        next one is due, which is past where all that are due are claimed already."""
        claims: list[Claim] = []
        unreadable: list[tuple[int, Failure]] = []
        with self._db.snapshot() as db:
            found, later = ledger.due(db, self._owner, limit + len(self._claimed))
            free = [row for row in found if row["id"] not in self._claimed][:limit]
            for seq, run_id, revision, attempts, score in free:
                try:
                    run = rows.runs_at(db, [seq])[seq]
                    unsent = rows.scores_at(db, {seq: run_id}, unsent=True)[seq]
                    claims.append(Claim(run, seq, revision, attempts, score=bool(score), unsent=unsent))
                except rows.UNREADABLE as error:
                    reason = f"the run cannot be read from the store ({describe(error)}), so it is not scored"
                    unreadable.append((seq, Failure("store", "StoreError", reason, run_id=run_id)))
        self._claimed |= {claim.run.id: claim.seq for claim in claims}
        if unreadable:  # they would be claimed again and again
            with self._transaction() as db:
                for seq, failure in unreadable:
                    ledger.give_up(db, seq, failure)
            self.count("runs_failed", len(unreadable))
        return claims, 0 if found and not free else later

    def retry_now(self) -> None:
        """Makes the runs that wait for another attempt due at once, as the engine answers again."""
        with self._transaction() as db:
            ledger.retry_now(db, self._owner)

    def release(self, run_id: str) -> None:
        """Releases a claimed run without a result."""
        self._claimed.pop(run_id, None)

    def store_outcome(self, outcome: ScoringOutcome) -> list[Score]:
        """Stores the result of scoring a run; returns the new scores."""
        with self._transaction() as db:
            new = ledger.store_outcome(db, outcome)
        if outcome.retry_ns is None:
            scored = "runs_scored" if outcome.scores else "runs_unscored"
            self.count("runs_failed" if outcome.failures else scored)
        return new

    def store_provisional(
        self,
        run_id: str,
        scores: Sequence[Score],
        failures: Sequence[Failure],
        references: Sequence[str] | None,
    ) -> list[Score] | None:
        """Stores the provisional results of an open run; returns the scores that are new or have changed. Returns
        None if the run has ended since; its final scores then get the costs of these."""
        with self._transaction() as db:
            find = "SELECT seq, status, due_ns FROM runs WHERE id = ?"
            head = db.execute(find, (storable(run_id),)).fetchone()
            if head is None:
                return None
            if head["status"] != "open":
                add_costs(db, scores)
                if head["due_ns"] is not None:  # scoring the end replaces these, and adds their costs
                    insert_scores(db, head["seq"], scores)
                return None
            db.execute("DELETE FROM failures WHERE run = ?", (head["seq"],))
            ledger.insert_failures(db, head["seq"], "", failures)
            if references is not None:
                ledger.change_body(db, head["seq"], {"references": list(references)})
            new = insert_scores(db, head["seq"], scores)
        self.count("scores_provisional", len(new))
        return new

    def keep_unscored(self, claim: Claim, *, emit: bool) -> None:
        """Marks a run as not to be scored now; later it can be. With `emit` it is still delivered to the sinks."""
        with self._transaction() as db:
            ledger.keep_unscored(db, claim, emit=emit)
        self.count("runs_unscored")

    def emitted(self, run_id: str) -> None:
        """Marks a run as delivered to the sinks."""
        with self._transaction() as db:
            if (seq := find_run(db, run_id)) is not None:
                db.execute("UPDATE runs SET emit_after = NULL WHERE seq = ?", (seq,))
                ledger.let_go(db, seq)

    def left(self, queued_until_ns: int | None = None) -> Left:
        """Returns how much this process has still to do for the runs that were queued until `queued_until_ns`."""
        with self._db.snapshot() as db:
            return ledger.left(db, self._owner, queued_until_ns)

    def count(self, name: str, by: int = 1) -> None:
        """Adds to a counter."""
        with self._counting:
            self.counts[name] += by

    def housekeep(
        self, *, run_ttl: float | None = None, retention: float | None = None, engine_answers: bool = True
    ) -> None:
        """Renews the lease, takes over the runs of dead processes, ends runs that nothing else will end, and removes
        old ones.

        `run_ttl` and `retention` are in seconds. While no `engine_answers`, other processes may score the runs that
        are not claimed.
        """
        now = min(now_ns(), time.time_ns())  # a machine's clock that was set forward must not make a run old
        abandoned = 0
        with self._transaction() as db:
            ledger.renew(db, self._owner, tries=None if engine_answers else [*self._claimed.values()])
            if self._scored:
                ledger.adopt(db, self._owner)
            if run_ttl is not None:
                idle_since_ns = now - int(run_ttl * 1e9)
                abandoned = ledger.abandon_overdue(db, self._owner, idle_since_ns, due=self._scored)
        self.count("runs_captured", abandoned)  # a later end of theirs is not counted
        if retention is not None:
            self.prune(now - int(retention * 1e9))
        if self._unwiped:
            self._wipe()

    def delete(self, run_id: str) -> bool:
        """Removes a run, or all that are called so, with steps, scores and texts for good; False where it is not there.

        Raises a StoreError for a run that is open, and while a text may still be on the disk; the same call says later
        whether it is gone.
        """
        with self._db.transaction() as db:
            seqs = find_runs(db, run_id)
            still_open = f"SELECT 1 FROM runs WHERE status = 'open' AND seq IN ({', '.join(map(str, seqs))})"
            if db.execute(still_open).fetchone() is not None:
                raise StoreError(f"the run {run_id!r} is open, and more of it may come: end it first")
            ledger.delete_runs(db, seqs)
        with self._db.lock:
            if seqs:
                self._unwiped.add(run_id)
            if run_id not in self._unwiped:
                return False
            if not self._wipe():
                raise StoreError(
                    f"{run_id!r} is deleted, but its texts are still in the log of {self.path}, which another process "
                    "is reading; they are removed within seconds of its end: call again to check"
                )
        return True

    def prune(self, ended_before_ns: int) -> int:
        """Removes all runs that ended before `ended_before_ns`, scored or not; returns how many."""
        ended = "SELECT seq FROM runs WHERE ended_ns < ? AND status <> 'open' ORDER BY ended_ns LIMIT ?"
        total, seqs = 0, [0]
        while seqs:
            with self._db.transaction() as db:
                seqs = [seq for (seq,) in db.execute(ended, (ended_before_ns, ledger.REMOVED_AT_ONCE))]
                ledger.delete_runs(db, seqs)
            total += len(seqs)
        if total:
            self._unwiped.add("")
            self._wipe()
        return total

    def _wipe(self) -> bool:
        """Empties the log of the texts of deleted runs; where that cannot be done yet, `housekeep` tries again."""
        if wiped := self._db.wipe():
            self._unwiped.clear()
        return wiped

    def close(self) -> None:
        """Leaves unfinished work to the next process and closes the file. Safe to call twice."""
        if not self._db.closed:
            try:
                with self._transaction() as db:
                    self._resign(db)
            except StoreError as error:
                _log.warning("%s", error)
        self._db.close()

    def _resign(self, db: sqlite3.Connection) -> None:
        """Ends the lease, so that other processes take over the runs that are not done."""
        db.execute("DELETE FROM leases WHERE owner = ?", (self._owner,))

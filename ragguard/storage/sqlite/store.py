"""The store keeps runs in one SQLite file, or in memory, behind plain calls that any thread may make.

Every call is one short transaction. Knows no engine, no queue and no event loop.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

from ragguard.capture.events import Event
from ragguard.errors import Closed, InvalidInput, StoreError, StoreUnavailable
from ragguard.records import Failure, Level, Run, Score, ScoredRun, new_id
from ragguard.runtime.arguments import file_path
from ragguard.runtime.deadline import now_ns
from ragguard.runtime.faults import NOTICES, describe
from ragguard.runtime.threads import TimeSlice
from ragguard.storage.sqlite import ledger, owners, reading
from ragguard.storage.sqlite.database import Database
from ragguard.storage.sqlite.ledger import (
    Claim,
    Due,
    Left,
    ScoringOutcome,
    Submission,
    add_metadata,
    write_due,
    write_scored,
)
from ragguard.storage.sqlite.overview import Overview, overviews_at
from ragguard.storage.sqlite.owners import make_due
from ragguard.storage.sqlite.reading import UNREADABLE, get_run, iter_runs, read_runs
from ragguard.storage.sqlite.schema import storable
from ragguard.storage.sqlite.score_rows import RunMeans, means_at
from ragguard.storage.sqlite.stored_runs import Removals
from ragguard.storage.sqlite.writing import EventBatch, Writing, event_row
from ragguard.text.secret_filter import logger

Durability = Literal["fast", "full"]
_log = logger("ragguard")

_DELETED = (
    "a run was deleted while it was open: what is captured in it later is not stored, and is counted. End the run "
    "before rg.delete(run), or begin another one for what follows"
)


class Store:
    """Keeps runs with their scores and failures in a file; where `path` is None, in memory and within bounds.

    A store belongs to the process that made it: a forked child makes its own.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        durability: Durability = "fast",
        most_waiting: int = 1024,
        read_only: bool = False,
        scored: bool = True,
    ) -> None:
        """Opens the store; a file that cannot be used, or cannot be written, raises StoreError.

        In memory at most `most_waiting` runs wait to be scored. With `scored=False` captured runs are kept, and nobody
        has to score them.
        """
        if not isinstance(durability, str) or durability not in ("fast", "full"):
            raise InvalidInput("durability", durability, "'fast' or 'full'")
        self._most_waiting, self._scored, self._read_only = most_waiting, scored, read_only
        self._process = owners.this_process(new_id())
        self.counts: Counter[str] = Counter()
        """The counters of this process."""
        self._counting = threading.RLock()  # reentrant: a garbage collection may run a hook inside a hook
        self._claimed: set[str] = set()
        """The runs that are being scored or delivered."""
        self.outage = ""
        """The reason why the last change could not be written; '' where it was."""
        file = None if path is None else file_path("store", path)
        self._db = Database(file, full=durability == "full", read_only=read_only)
        self._removals = Removals(self._db)
        if not read_only:
            self._take_lease()

    def _take_lease(self) -> None:
        """Writes for the first time, so that a disk that takes nothing is an error at the start."""
        try:
            with self._transaction():
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
                owners.hold(db, self._process)
                yield db
        except StoreUnavailable as error:
            self.outage = str(error)
            raise
        self.outage = ""
        if self._db.files_lost:
            self.count("files_lost", self._db.files_lost)
            self._db.files_lost = 0

    @property
    def path(self) -> Path | None:
        """The path of the file; None in memory."""
        return self._db.path

    @property
    def remarks(self) -> list[str]:
        """The facts that a reader of the numbers has to know: which runs a process that has ended left unfinished."""
        with self._db.snapshot() as db:
            unfinished, are_open = owners.left_behind(db)
        if not unfinished:
            return []
        opened = f", {are_open:,} of them open" if are_open else ""
        return [
            f"runs left unfinished by a process that has ended: {unfinished:,}{opened}; the next RagGuard on this "
            "store finishes them"
        ]

    def record(self, events: Iterable[Event]) -> dict[str, bool]:
        """Writes captured events in one transaction, as `write` does."""
        return self.write(self.prepare(events))

    def prepare(self, events: Iterable[Event]) -> EventBatch:
        """Returns captured events as rows. Each event is read once, and not kept; one that cannot be read is left out
        and counted."""
        batch, time_slice = EventBatch(), TimeSlice()
        for event in events:
            try:
                batch.rows.append(event_row(event, batch.texts))
            except BaseException as error:  # noqa: BLE001 - a value of the user's may raise anything when it is read
                self._refuse(error)
            time_slice.rest_if_used()
        return batch

    def write(self, batch: EventBatch) -> dict[str, bool]:
        """Writes captured events in one transaction, which is durable when this returns.

        Returns the ids of the open runs of which steps ended or were amended, each with whether other steps of the
        same turn are still open. Raises StoreUnavailable where the disk takes nothing now, and has written nothing.
        """
        try:
            return self._write(batch)
        except (Closed, StoreUnavailable):
            raise
        except BaseException:  # noqa: BLE001 - one event that cannot be written must not take the others with it
            changed: dict[str, bool] = {}
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

    def _write(self, batch: EventBatch) -> dict[str, bool]:
        owner = self._process.owner
        with self._transaction() as db:
            writing = Writing(db, owner, texts=batch.texts, scored=self._scored)
            writing.write(batch.rows)
            writing.finish()
            if not self._scored:
                ledger.keep_all_unscored(db, owner)
            dropped = self._keep_bounds(db) if self.path is None else 0
        self.count("runs_captured", writing.ended)
        if dropped:
            self.count("runs_dropped", dropped)
            ledger.warn_of_dropped(self, self.counts["runs_dropped"], self._most_waiting)
        if writing.of_deleted:
            self.count("events_of_deleted", writing.of_deleted)
            NOTICES.warn("events of a deleted run", _DELETED)
        return writing.changed

    def _keep_bounds(self, memory: sqlite3.Connection) -> int:
        """Removes the runs beyond the bounds of memory: runs that wait beyond the bound go unscored, then the oldest
        that are done go. Returns how many went unscored."""
        dropped = ledger.drop_waiting(memory, self._process.owner, self._most_waiting, self._claimed)
        if ledger.is_full(memory):
            ledger.evict_done(memory)
        return dropped

    def submit(self, run: Run, identity: str) -> Submission:
        """Writes a whole run in place of the stored one of its id, and claims it for scoring."""
        with self._transaction() as db:
            write_scored(db, [ScoredRun(run, [], [])], self._process.owner)
            head = db.execute(
                "SELECT seq, revision, attempts FROM runs WHERE id = ?", (storable(run.id),)
            ).fetchone()
            scored = ledger.is_scored(db, head["seq"], identity)
            if not scored:
                make_due(db, head["seq"], self._process.owner, now_ns())
        if not scored:
            self._claimed.add(run.id)
        return Submission(Due(head["seq"], run.id, head["revision"], head["attempts"], score=True), scored)

    def add_scored(self, scored: Iterable[ScoredRun]) -> None:
        """Writes whole runs with their scores and failures in one transaction. A run that is there gets more scores."""
        with self._transaction() as db:
            write_scored(db, scored, self._process.owner)

    def content(self) -> bytes:
        """Returns the content of a file that holds this store."""
        with self._transaction() as db:
            owners.resign(db, self._process.owner)
        with self._db.snapshot() as db:
            return db.serialize()

    def add_due(self, runs: Iterable[Run]) -> dict[str, InvalidInput]:
        """Writes whole runs, which are due to be scored; returns the errors of those that cannot be written, by id."""
        with self._transaction() as db:
            return write_due(db, runs, self._process.owner, scored=self._scored)

    def add_metadata(self, run_id: str, metadata: Mapping[str, Any], *, due: bool = False) -> bool:
        """Adds metadata to a run, open or not; returns False where it is not there. With `due` a run that has ended is
        due again, as for a sink that sends the metadata on."""
        with self._transaction() as db:
            known = add_metadata(db, run_id, metadata, due_with=self._process.owner if due else "")
        self.count("runs_noted", known)
        return known

    def claim(self, limit: int) -> tuple[list[Claim], int | None]:
        """Returns the next runs to be scored or delivered, at most `limit`, and claims them; also the time at which the
        next one is due, which is past where all that are due are claimed already."""
        claims: list[Claim] = []
        unreadable: list[tuple[Due, str]] = []
        with self._db.snapshot() as db:
            found = ledger.due(db, self._process.owner, limit + len(self._claimed))
            free = [due for due in found if due.run_id not in self._claimed][:limit]
            for due in free:
                try:
                    claims.append(ledger.claim_of(db, due))
                except UNREADABLE as error:
                    unreadable.append((due, describe(error)))
            next_ns = 0 if found and not free else ledger.next_due(db, self._process.owner)
        self._claimed.update(claim.run.id for claim in claims)
        if unreadable:  # they would be claimed again and again
            with self._transaction() as db:
                for due, reason in unreadable:
                    ledger.give_up(db, due, reason)
            self.count("runs_failed", len(unreadable))
        return claims, next_ns

    def release(self, run_id: str) -> None:
        """Releases a claimed run without a result."""
        self._claimed.discard(run_id)

    def store_outcome(self, outcome: ScoringOutcome) -> list[Score]:
        """Stores the result of scoring a run; returns the new scores."""
        with self._transaction() as db:
            return ledger.store_outcome(db, outcome)

    def store_provisional(
        self,
        run_id: str,
        scores: Sequence[Score],
        failures: Sequence[Failure],
        references: Sequence[str] | None,
    ) -> list[Score] | None:
        """Stores the provisional results of an open run; returns the scores that are new or have changed. Returns
        None and stores nothing where the run has ended since."""
        with self._transaction() as db:
            new = ledger.store_provisional(db, run_id, scores, failures, references)
        self.count("scores_provisional", len(new or ()))
        return new

    def keep_unscored(self, due: Due, *, emit: bool) -> None:
        """Marks a run as not to be scored now; with `emit` it is still delivered to the sinks."""
        with self._transaction() as db:
            ledger.keep_unscored(db, due, emit=emit)

    def emitted(self, run_id: str) -> None:
        """Marks a run as delivered to the sinks."""
        with self._transaction() as db:
            ledger.emitted(db, run_id)

    def left(self, queued_until_ns: int | None = None) -> Left:
        """Returns how much this process has still to do for the runs that were queued until `queued_until_ns`."""
        with self._db.snapshot() as db:
            return ledger.left(db, self._process.owner, queued_until_ns)

    def count(self, name: str, by: int = 1) -> None:
        """Adds to a counter."""
        with self._counting:
            self.counts[name] += by

    def housekeep(self, *, run_ttl: float | None = None, retention: float | None = None) -> None:
        """Renews the lease, takes over the runs of dead processes, ends runs that nothing else will end, and removes
        old ones.

        `run_ttl` and `retention` are in seconds.
        """
        now = min(now_ns(), time.time_ns())  # a machine's clock that was set forward must not make a run old
        abandoned = 0
        with self._transaction() as db:
            owners.renew(db, self._process)
            if self._scored:
                owners.adopt(db, self._process.owner)
            if run_ttl is not None:
                abandoned = owners.abandon_overdue(db, self._process.owner, now - int(run_ttl * 1e9))
            if not self._scored:
                ledger.keep_all_unscored(db, self._process.owner)
        self.count("runs_captured", abandoned)  # a later end of theirs is not counted
        if retention is not None:
            self.prune(now - int(retention * 1e9))
        self._removals.wipe_rest()

    def delete(self, run_id: str) -> bool:
        """Removes a run, its steps, scores and texts for good; False where it is not there.

        Raises a StoreError while a text may still be on the disk; the same call says later whether it is gone.
        """
        return self._removals.delete(run_id)

    def prune(self, ended_before_ns: int) -> int:
        """Removes all runs that ended before `ended_before_ns`, scored or not; returns how many."""
        return self._removals.prune(ended_before_ns)

    def run_count(self) -> int:
        """Returns how many runs the store has."""
        with self._db.snapshot() as db:
            return reading.count_runs(db)

    def run_ids(self) -> list[str]:
        """Returns the ids of all runs in the order in which they were captured."""
        with self._db.snapshot() as db:
            return reading.run_ids(db)

    def run(self, run_id: str) -> Run | None:
        """Returns one run; None where the store does not have it."""
        return get_run(self._db, run_id, lambda db, runs: reading.runs_at(db, [*runs]), None)

    def open_run(self, run_id: str) -> Run | None:
        """Returns a run that has not ended; None for any other."""
        run = self.run(run_id)
        return run if run is not None and run.status == "open" else None

    def scores(self, run_id: str) -> list[Score]:
        """Returns the scores of a run, in the order in which they were stored."""
        return get_run(self._db, run_id, reading.scores_at, [])

    def failures(self, run_id: str) -> list[Failure]:
        """Returns the failures of a run."""
        return get_run(self._db, run_id, reading.failures_at, [])

    def scored_run(self, run_id: str) -> ScoredRun | None:
        """Returns one run with its scores and failures; None where the store does not have it."""
        return get_run(self._db, run_id, lambda db, runs: reading.scored_at(db, [*runs]), None)

    def runs(self) -> Iterator[Run]:
        """Yields all runs in the order in which they were captured."""
        return iter_runs(self._db, reading.runs_at)

    def runs_by_rank(self, start: int, count: int) -> list[Run]:
        """Returns `count` runs from position `start`."""
        with self._db.snapshot() as db:
            seqs = reading.seqs_by_rank(db, start, count)
            return list(read_runs(self._db, db, seqs, reading.runs_at).values())

    def latest(self, count: int) -> list[ScoredRun]:
        """Returns the runs that were captured last, the latest last, with their results and without texts."""
        read = partial(reading.scored_at, texts=False)
        with self._db.snapshot() as db:
            return list(read_runs(self._db, db, reading.last_seqs(db, count), read).values())

    def scored_runs(
        self, *, texts: bool = True, level: Level | None = None, span: range | None = None
    ) -> Iterator[ScoredRun]:
        """Yields all runs with their failures and their scores, of one level where one is named."""
        return iter_runs(self._db, partial(reading.scored_at, texts=texts, level=level), span)

    def overviews(self, misleads: float, *, texts: bool = True) -> Iterator[Overview]:
        """Yields all runs for a report; a passage that the model got counts as misleading where its
        utility is under `misleads`. Without `texts` it is quicker, as for a list of runs."""
        return iter_runs(self._db, partial(overviews_at, misleads=misleads, texts=texts))

    def means(self, span: range | None = None) -> Iterator[RunMeans]:
        """Yields all runs, or those with a `seq` of a span, for a comparison."""
        return iter_runs(self._db, means_at, span)

    def close(self) -> None:
        """Leaves unfinished work to the next process and closes the file. Safe to call twice."""
        if not self._read_only and not self._db.closed:
            try:
                with self._transaction() as db:
                    owners.resign(db, self._process.owner)
            except StoreError as error:
                _log.warning("%s", error)
        self._db.close()

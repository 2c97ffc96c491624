"""The store keeps runs in one SQLite file, or in memory, behind plain calls that any thread may make.

Every call is one short transaction. Knows no engine, no queue and no event loop.
"""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

from ragguard.capture.events import Event
from ragguard.errors import Closed, InvalidInput, StoreError
from ragguard.records import Failure, Level, Run, Score, ScoredRun
from ragguard.runtime.arguments import file_path
from ragguard.runtime.clock import now_ns
from ragguard.runtime.faults import describe
from ragguard.runtime.notices import NOTICES
from ragguard.storage.sqlite import bounds, ledger, owners, paging, reading
from ragguard.storage.sqlite.bounds import Bound
from ragguard.storage.sqlite.columns import storable
from ragguard.storage.sqlite.counting import counters_of
from ragguard.storage.sqlite.database import Database
from ragguard.storage.sqlite.ledger import Claim, Due, Left, ScoringOutcome, Submission
from ragguard.storage.sqlite.means import RunMeans, means_at
from ragguard.storage.sqlite.overview import Overview, RunLine, overviews_at
from ragguard.storage.sqlite.process_state import ProcessState
from ragguard.storage.sqlite.removal import Removals
from ragguard.storage.sqlite.time_slice import TimeSlice
from ragguard.storage.sqlite.unreadable import LeftOut, read_each
from ragguard.storage.sqlite.writing import EventRow, Writing, event_row, make_due
from ragguard.text.secret_filter import logger

T = TypeVar("T")
Durability = Literal["fast", "full"]

_log = logger("ragguard")

_DELETED = (
    "a run was deleted while it was open: what is captured in it later is not stored, and is counted. End the run "
    "before rg.delete(run), or begin another one for what follows"
)
_PATIENCE = 0.5
"""The most seconds that a disk that failed may take to open, when it is tried again."""
_LAST_PATIENCE = 1.0
"""The most seconds that a store which is closed waits for a disk that failed, before what is in memory is lost."""


class Store:
    """Keeps runs with their scores and failures in a file; where `path` is None, in memory and within bounds."""

    has_texts = True
    """True, as in every store: runs come with the texts of their passages."""

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        durability: Durability = "fast",
        bound: Bound | None = None,
        read_only: bool = False,
        scored: bool = True,
    ) -> None:
        """Opens the store. With `scored=False` captured runs are kept, and nobody has to score them."""
        if not isinstance(durability, str) or durability not in ("fast", "full"):
            raise InvalidInput("durability", durability, "'fast' or 'full'")
        self._bound, self._scored = bound or Bound(), scored
        self._own = ProcessState()
        file = None if path is None else file_path("store", path)
        self._db = Database(file, self._own, full=durability == "full", read_only=read_only)
        self._removals = Removals(self._db)
        self._read_only = read_only
        self.left_out = LeftOut()
        """The runs that readers left out, since a row of theirs cannot be read."""

    @property
    def counts(self) -> Counter[str]:
        """The counters of this process; `counters()` has the sums over all processes."""
        return self._own.counts

    @property
    def path(self) -> Path | None:
        """The path of the file; None in memory."""
        return self._db.path

    @property
    def in_memory(self) -> bool:
        """True where nothing reaches a disk."""
        return self._db.in_memory

    @property
    def degraded(self) -> bool:
        """True while memory stands in for a disk that failed."""
        return self._db.degraded

    @property
    def remarks(self) -> list[str]:
        """The facts that a reader of the numbers has to know: which runs were left out, since they cannot be read, and
        which a process that has ended left unfinished."""
        found = [str(self.left_out)] if self.left_out.reasons else []
        unfinished, are_open = self._db.read(owners.left_behind)
        if unfinished:
            opened = f", {are_open:,} of them open" if are_open else ""
            found.append(
                f"runs left unfinished by a process that has ended: {unfinished:,}{opened}; the next RagGuard on this "
                "store finishes them"
            )
        return found

    def record(self, events: Iterable[Event]) -> dict[str, bool]:
        """Writes captured events in one transaction, which is durable when this returns. Each event is read once, and
        not kept.

        Returns the ids of the open runs of which steps ended or were amended, each with whether other steps of the
        same turn are still open.
        """
        texts: dict[bytes, str] = {}
        rows: list[EventRow] = []
        time_slice = TimeSlice()
        for event in events:
            try:
                rows.append(event_row(event, texts))
            except BaseException as error:  # noqa: BLE001 - a value of the user's may raise anything when it is read
                self._refuse(error)
            time_slice.rest_if_used()
        try:
            return self._record(rows, texts)
        except Closed:
            raise
        except BaseException:  # noqa: BLE001 - one event that cannot be written must not take the others with it
            changed: dict[str, bool] = {}
            for row in rows:
                try:
                    changed |= self._record([row], texts)
                except BaseException as error:  # noqa: BLE001 - a value of the user's may raise anything
                    self._refuse(error)
            return changed

    def _refuse(self, error: BaseException) -> None:
        """Counts an event that is left out."""
        if not self.counts["events_refused"]:
            _log.error("an event could not be stored and is left out: %s", describe(error))
        self.count("events_refused")

    def _record(self, rows: Sequence[EventRow], texts: dict[bytes, str]) -> dict[str, bool]:
        def write(db: sqlite3.Connection) -> Writing:
            self._own.segments.in_memory = self.degraded
            writing = Writing(db, self._own.owner, self._own.segments, texts=texts, scored=self._scored)
            writing.write(rows)
            if writing.made_due and not self._scored:
                ledger.keep_all_unscored(db, self._own.owner)
            return writing

        writing = self._change(write)
        self._own.segments.keep_ended(writing.ended)
        if writing.ended_again:
            self.count("runs_captured", -writing.ended_again)
        if self.degraded:
            self._own.failover.recorded(len(rows), writing.unplaced)
        if writing.ended_in_place:
            self.count("runs_captured", writing.ended_in_place)
        if writing.of_deleted:
            self.count("events_of_deleted", writing.of_deleted)
            NOTICES.warn("events of a deleted run", _DELETED)
        if self.in_memory:
            self._keep_bounds()
        return writing.changed

    def _change(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Runs `work` in a transaction that also writes the counters."""

        def change(db: sqlite3.Connection) -> tuple[T, dict[str, int]]:
            return work(db), self._own.counting.write(db)

        with self._db.lock:  # so that no other thread writes the same counts
            result, counts = self._db.change(change)
            self._own.counting.written(counts)
        return result

    def submit(self, run: Run, identity: str) -> Submission:
        """Writes a whole run in place of the stored one of its id, and claims it for scoring."""

        def put(db: sqlite3.Connection) -> Submission:
            Writing(db, self._own.owner).put(run)
            head = db.execute(
                "SELECT seq, revision, attempts FROM runs WHERE id = ?", (storable(run.id),)
            ).fetchone()
            settled = ledger.is_settled(db, head["seq"], identity)
            if not settled:
                make_due(db, head["seq"], self._own.owner, now_ns())
                self._own.claimed.add(run.id)
            return Submission(
                Due(head["seq"], run.id, head["revision"], head["attempts"], score=True), settled
            )

        return self._put_whole(run, put)

    def put(self, run: Run) -> bool:
        """Writes a whole run that is not to be scored; returns False where the store has it already."""
        return self._put_whole(run, lambda db: Writing(db, self._own.owner).put(run))

    def _put_whole(self, run: Run, put: Callable[[sqlite3.Connection], T]) -> T:
        result = self._change(put)
        if self.degraded:
            self._own.failover.put(storable(run.id))
        return result

    def claim(self, limit: int) -> list[Claim]:
        """Returns the next runs to be scored or delivered, at most `limit`, and claims them."""

        def take(db: sqlite3.Connection) -> list[Claim]:
            found = ledger.due(db, self._own.owner, limit + len(self._own.claimed))
            free = [due for due in found if due.run_id not in self._own.claimed][:limit]
            claims = read_each(db, [due.seq for due in free], partial(ledger.claims_at, free), left_out)
            self._own.claimed.update(claim.run.id for claim in claims.values())
            return list(claims.values())

        left_out = LeftOut()
        claims = self._db.read(take)
        if left_out.reasons:
            self._give_up(left_out)
        return claims

    def _give_up(self, unreadable: LeftOut) -> None:
        """Marks runs that cannot be read as done: they would be claimed again and again."""
        self._change(lambda db: ledger.give_up(db, unreadable.reasons))
        self.count("runs_failed", len(unreadable.reasons))
        self.left_out.reasons.update(unreadable.reasons)
        unreadable.warn(self._db.name)

    def release(self, run_id: str) -> None:
        """Releases a claimed run without a result."""
        self._own.claimed.discard(run_id)

    def settle(self, outcome: ScoringOutcome) -> list[Score]:
        """Stores the result of scoring a run; returns the new scores."""

        return self._change(lambda db: ledger.settle(db, outcome))

    def settle_open(
        self,
        run_id: str,
        scores: Sequence[Score],
        failures: Sequence[Failure],
        references: Sequence[str] | None,
    ) -> list[Score] | None:
        """Stores the provisional results of an open run; returns the scores that are new or have changed. Returns
        None and stores nothing where the run has ended since."""
        return self._change(lambda db: ledger.settle_open(db, run_id, scores, failures, references))

    def keep_unscored(self, due: Due, *, emit: bool) -> None:
        """Marks a run as not to be scored now; with `emit` it is still delivered to the sinks."""
        self._change(lambda db: ledger.keep_unscored(db, due, emit=emit))

    def emitted(self, run_id: str) -> None:
        """Marks a run as delivered to the sinks."""
        self._db.change(lambda db: ledger.emitted(db, run_id))

    def left(self, queued_until_ns: int | None = None) -> Left:
        """Returns how much this process has still to do for the runs that were queued until `queued_until_ns`."""
        return self._db.read(lambda db: ledger.left(db, self._own.owner, queued_until_ns))

    def count(self, name: str, by: int = 1) -> None:
        """Adds to a counter; the sum reaches the disk with the next write."""
        self._own.count(name, by)

    def housekeep(self, *, run_ttl: float | None = None, retention: float | None = None) -> None:
        """Renews the lease, takes over the runs of dead processes, ends runs that nothing else will end, and removes
        old ones.

        `run_ttl` and `retention` are in seconds.
        """
        now = min(now_ns(), time.time_ns())  # a machine's clock that was set forward must not make a run old
        self.recover()

        def keep(db: sqlite3.Connection) -> None:
            owners.renew(db, self._own.process)
            if self._scored:
                owners.adopt(db, self._own.owner)
            if run_ttl is not None:
                owners.abandon_overdue(db, self._own.owner, now - int(run_ttl * 1e9))
            if not self._scored:
                ledger.keep_all_unscored(db, self._own.owner)

        self._change(keep)
        if retention is not None:
            self.prune(now - int(retention * 1e9))
        self._removals.wipe_rest()

    def recover(self) -> None:
        """Goes back to the disk where memory stands in for one that works again."""
        self._db.recover(_PATIENCE)

    def _keep_bounds(self) -> None:
        """Removes the runs beyond the bounds of memory, and counts them.

        Where there is no file, runs beyond the bound go unscored, then the oldest that are settled go. While memory
        stands in for a file, runs go only beyond what memory may hold.
        """
        if not self.degraded:
            owner, claimed, bound = self._own.owner, self._own.claimed, self._bound
            if dropped := self._db.change(lambda db: bounds.drop_waiting(db, owner, bound, claimed)):
                self.count("runs_dropped", dropped)
                bounds.warn_of_dropped(self, self.counts["runs_dropped"], bound)
            if self._db.read(bounds.is_full):
                self._db.change(bounds.evict_settled)
        elif lost := self._db.change(lambda db: self._own.failover.evict_surplus(db, self._own.claimed)):
            if not self.counts["runs_lost"]:
                _log.error("memory is full while %s cannot be written: the oldest runs are lost", self.path)
            self.count("runs_lost", lost)

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
        return self._db.read(reading.count_runs)

    def run_ids(self) -> list[str]:
        """Returns the ids of all runs in the order in which they were captured."""
        return self._db.read(reading.run_ids)

    def run(self, run_id: str) -> Run | None:
        """Returns one run; None where the store does not have it."""
        return paging.one(self._db, run_id, lambda db, runs: reading.runs_at(db, [*runs]), None)

    def open_run(self, run_id: str) -> Run | None:
        """Returns a run that has not ended; None for any other."""
        run = self.run(run_id)
        return run if run is not None and run.status == "open" else None

    def scores(self, run_id: str) -> list[Score]:
        """Returns the scores of a run, in the order in which they were stored."""
        return paging.one(self._db, run_id, reading.scores_at, [])

    def failures(self, run_id: str) -> list[Failure]:
        """Returns the failures of a run."""
        return paging.one(self._db, run_id, reading.failures_at, [])

    def scored_run(self, run_id: str) -> ScoredRun | None:
        """Returns one run with its scores and failures; None where the store does not have it."""
        return paging.one(self._db, run_id, lambda db, runs: reading.scored_at(db, [*runs]), None)

    def runs(self) -> Iterator[Run]:
        """Yields all runs in the order in which they were captured."""
        return paging.every(self._db, reading.runs_at, self.left_out)

    def runs_by_rank(self, start: int, count: int) -> list[Run]:
        """Returns `count` runs from position `start`, without those that cannot be read."""
        seqs = partial(reading.seqs_by_rank, start=start, count=count)
        found = paging.some(self._db, seqs, reading.runs_at, self.left_out)
        self.left_out.warn(self._db.name)
        return found

    def latest(self, count: int) -> list[ScoredRun]:
        """Returns the runs that were captured last, the latest last, with their results and without texts."""
        read = partial(reading.scored_at, texts=False)
        return paging.some(self._db, partial(reading.last_seqs, count=count), read, self.left_out)

    def scored_runs(self, *, texts: bool = True, level: Level | None = None) -> Iterator[ScoredRun]:
        """Yields all runs with their failures and their scores, of one level where one is named."""
        read = partial(reading.scored_at, texts=texts, level=level)
        return paging.every(self._db, read, self.left_out)

    def overviews(self, misleads: float, *, texts: bool = True) -> Iterator[Overview]:
        """Yields all runs for a report; a passage that the model got counts as misleading where its
        utility is under `misleads`."""
        read = partial(overviews_at, misleads=misleads, texts=texts)
        return paging.every(self._db, read, self.left_out)

    def lines(self, misleads: float) -> Iterator[RunLine]:
        """Yields all runs for a list of them; quicker than `overviews`, as no text is read."""
        return (overview.line for overview in self.overviews(misleads, texts=False))

    def means(self) -> Iterator[RunMeans]:
        """Yields all runs for a comparison."""
        return paging.every(self._db, means_at, self.left_out)

    def counters(self) -> dict[str, int]:
        """Returns the counters, summed over all processes."""
        return self._db.read(counters_of)

    def close(self) -> None:
        """Leaves unfinished work to the next process and closes the file. Safe to call twice."""
        if not self._read_only and not self._db.closed:
            self._db.recover(_LAST_PATIENCE)
            try:
                self._change(lambda db: owners.resign(db, self._own.owner))
            except StoreError as error:
                _log.warning("%s", error)
            if self.degraded and (lost := self._own.failover.events):
                self.count("events_lost", lost)
                _log.error(
                    "%d events captured since %s failed are lost: it could not be written until the end",
                    lost, self.path,
                )  # fmt: skip
        self._db.close()

"""Keeps account of the runs that a process has still to score or deliver, and stores the results of scoring, each score
once. In memory it drops what is beyond the bounds.

A run belongs to one process, and the others leave it to that one. While a process works on a store it holds a lease.
Once the process is gone, the next one that checks takes over its runs. While its engine does not answer, the lease
names the runs that it tries, and the others may take the rest. So no run is scored by two processes at a time, and none
is left unscored.
"""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import time
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ragguard.records import Failure, Run, Score
from ragguard.runtime.deadline import now_ns
from ragguard.storage.sqlite.cause_rows import note_causes
from ragguard.storage.sqlite.layout import Data, dump, storable
from ragguard.storage.sqlite.passages import change_uses, digests_in
from ragguard.storage.sqlite.rows import merged
from ragguard.storage.sqlite.score_rows import delete_outdated, insert_scores

LEASE_SECONDS = 30.0
REMOVED_AT_ONCE = 200
"""The number of runs that one transaction removes."""
MEMORY_RUNS = 10_000
MEMORY_BYTES = 256 * 2**20
_UNSENT = "coalesce(emit_after, (SELECT coalesce(max(seq), 0) FROM scores WHERE run = runs.seq))"
"""The `seq` of the last score that the sinks have received, or need not receive."""
_DROPPED = (
    "dropped without scores, because more runs waited than queue_size allows without a store; with one, "
)
"nothing is dropped"


class OtherProcess(NamedTuple):
    """A living process that has runs of the store to score."""

    name: str
    """The process id, with the host if that is another one."""
    runs: int
    """The number of runs that it has to score."""


class Claim(NamedTuple):
    """A run to be scored or delivered; nobody else gets the run until it is stored or released."""

    run: Run
    seq: int
    revision: int
    attempts: int
    score: bool
    """False where the run is scored, and at most to be delivered to the sinks."""
    unsent: Sequence[Score] = ()
    """The scores of the run that no sink has received yet."""
    elsewhere: OtherProcess | None = None
    """The other living process that has to score the run, so that nothing is claimed."""


class Left(NamedTuple):
    """The number of runs that a process has still to score or deliver."""

    pending: int
    open: int
    next_ns: int | None
    """The time at which the first of the pending runs is due."""
    retrying: int = 0
    """The number of pending runs that failed before and are tried again."""
    undelivered: int = 0
    """The number of pending runs that are scored, or kept without a score, and still to be delivered to the sinks."""


@dataclass(frozen=True, slots=True)
class ScoringOutcome:
    """The result of scoring one revision of a run."""

    run_id: str
    identity: str
    revision: int
    scores: Sequence[Score] = ()
    failures: Sequence[Failure] = ()
    retry_ns: int | None = None
    """The time at which to score the run again; None where nothing is left to score."""
    emit: bool = False
    """True where the result is to be delivered to the sinks."""
    attempts: int = 1
    references: Sequence[str] | None = None
    """References that were found while scoring; kept with the run."""
    finished: bool = True
    """False where asking again later may give scores that are missing now, such as those that an engine failed in."""
    uncertain: Collection[tuple[str, str]] = ()
    """The scorers, each with a step's id or "", that could not give all their scores for now; their provisional
    scores of the open run stay until they can."""

    @property
    def says_something(self) -> bool:
        """True where sinks get the run although no score is new: with failures, and once for a run that has no
        scores at all, such as one whose retrieval failed."""
        return bool(self.failures) or (not self.scores and self.attempts == 1)


def due(db: sqlite3.Connection, owner: str, limit: int) -> tuple[list[sqlite3.Row], int | None]:
    """Returns the first runs that a process has to score or deliver (seq, id, revision, attempts, and whether it is to
    be scored), and the first time after now at which another is to be scored; None where there is none."""
    now = now_ns()
    found = db.execute(
        "SELECT seq, id, revision, attempts, due_ns IS NOT NULL FROM runs "
        "WHERE owner = ? AND (due_ns <= ? OR emit_after IS NOT NULL) ORDER BY due_ns, seq LIMIT ?",
        (owner, now, limit),
    ).fetchall()
    later = db.execute("SELECT min(due_ns) FROM runs WHERE owner = ? AND due_ns > ?", (owner, now)).fetchone()
    return found, later[0]


def left(db: sqlite3.Connection, owner: str, queued_until_ns: int | None = None) -> Left:
    """Returns what a process still has to do, of the runs that were queued until that time."""
    until = queued_until_ns if queued_until_ns is not None else now_ns()
    pending = "WHERE (due_ns IS NOT NULL OR emit_after IS NOT NULL) AND queued_ns <= ?1"
    counts = db.execute(
        f"SELECT count(*) FILTER ({pending}), count(*) FILTER (WHERE status = 'open'), "
        f"min(due_ns) FILTER ({pending}), count(*) FILTER ({pending} AND due_ns IS NOT NULL AND attempts > 0), "
        f"count(*) FILTER ({pending} AND due_ns IS NULL) FROM runs WHERE owner = ?2",
        (until, owner),
    )
    return Left(*counts.fetchone())


def store_outcome(db: sqlite3.Connection, outcome: ScoringOutcome) -> list[Score]:
    """Stores scores, each once, and failures in place of those of the last attempt; returns the new scores."""
    head = db.execute("SELECT seq, revision FROM runs WHERE id = ?", (storable(outcome.run_id),)).fetchone()
    if head is None:
        return []  # deleted meanwhile
    run, identity, revision = head["seq"], outcome.identity, outcome.revision
    last = db.execute("SELECT coalesce(max(seq), 0) FROM scores WHERE run = ?", (run,)).fetchone()[0]
    earlier = "SELECT 1 FROM scorings WHERE run = ? AND identity = ? AND revision < ?"
    revised = db.execute(earlier, (run, identity, revision)).fetchone() is not None
    delete_outdated(db, run, outcome.scores, outcome.uncertain, revised=revised)
    new = insert_scores(db, run, outcome.scores)
    db.execute("DELETE FROM failures WHERE run = ? AND identity IN (?, '')", (run, identity))
    insert_failures(db, run, identity, outcome.failures)
    db.execute(
        "INSERT OR REPLACE INTO scorings (run, identity, revision, finished) VALUES (?, ?, ?, ?)",
        (run, identity, revision, outcome.finished and outcome.retry_ns is None),
    )
    if outcome.emit and (new or outcome.says_something):
        db.execute("UPDATE runs SET emit_after = coalesce(emit_after, ?) WHERE seq = ?", (last, run))
    if outcome.references is not None:
        change_body(db, run, {"references": list(outcome.references)})
    note_causes(db, [run])
    if revision == head["revision"]:
        retry = (outcome.retry_ns, outcome.attempts, run)
        # A run that is not due any more was taken over and done by another process.
        db.execute("UPDATE runs SET due_ns = iif(due_ns IS NULL, NULL, ?), attempts = ? WHERE seq = ?", retry)
    let_go(db, run)
    return new


def retry_now(db: sqlite3.Connection, owner: str) -> None:
    """Makes the runs that wait for another attempt due at once."""
    db.execute(
        "UPDATE runs SET due_ns = ?1 WHERE owner = ?2 AND due_ns > ?1 AND attempts > 0", (now_ns(), owner)
    )


def make_due(db: sqlite3.Connection, owner: str, run: int) -> None:
    """Makes a run due that has ended."""
    db.execute(
        "UPDATE runs SET revision = revision + 1, attempts = 0, owner = ?1, due_ns = ?2, queued_ns = ?2 "
        "WHERE seq = ?3 AND status <> 'open'",
        (owner, now_ns(), run),
    )


def keep_unscored(db: sqlite3.Connection, claim: Claim, *, emit: bool) -> None:
    """Marks a run as not to be scored now; with `emit` it is still delivered to the sinks."""
    emit_after = _UNSENT if emit else "emit_after"
    db.execute(
        f"UPDATE runs SET due_ns = NULL, emit_after = {emit_after} WHERE seq = ? AND revision = ?",
        (claim.seq, claim.revision),
    )
    let_go(db, claim.seq)


def give_up(db: sqlite3.Connection, run: int, failure: Failure) -> None:
    """Marks a run as one that is neither scored nor delivered, for the reason that the failure says."""
    insert_failures(db, run, "", [failure])
    db.execute("UPDATE runs SET due_ns = NULL, emit_after = NULL WHERE seq = ?", (run,))
    let_go(db, run)


def insert_failures(db: sqlite3.Connection, run: int, identity: str, failures: Sequence[Failure]) -> None:
    """Writes failures of a run."""
    rows = [
        (
            run, identity, storable(one.step_id), storable(one.scorer), storable(one.error),
            storable(one.message), one.will_retry, one.attempts, one.occurred_ns,
        )
        for one in failures
    ]  # fmt: skip
    columns = "run, identity, step_id, scorer, error, message, will_retry, attempts, occurred_ns"
    db.executemany(f"INSERT INTO failures ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)


def let_go(db: sqlite3.Connection, run: int) -> None:
    """Ends the ownership of a run for which nothing is left to do."""
    db.execute(
        "UPDATE runs SET owner = NULL, queued_ns = NULL WHERE seq = ? AND due_ns IS NULL "
        "AND emit_after IS NULL AND status <> 'open'",
        (run,),
    )


def change_body(db: sqlite3.Connection, run: int, change: Data) -> None:
    """Puts values into the body of a run; metadata are added to those that are there."""
    body: Data = json.loads(db.execute("SELECT body FROM runs WHERE seq = ?", (run,)).fetchone()[0])
    db.execute("UPDATE runs SET body = ? WHERE seq = ?", (dump(merged(body, change)), run))


def drop_waiting(memory: sqlite3.Connection, owner: str, most: int, claimed: Collection[str]) -> int:
    """Drops the owner's oldest runs that wait to be scored beyond `most`, with a failure each; returns how many."""
    surplus = left(memory, owner).pending - most
    if surplus <= 0:
        return 0
    rows = memory.execute(
        "SELECT seq, id FROM runs WHERE owner = ? AND due_ns IS NOT NULL ORDER BY queued_ns, seq LIMIT ?",
        (owner, surplus + len(claimed)),
    ).fetchall()
    dropped = [row for row in rows if row["id"] not in claimed][:surplus]
    for seq, run_id in dropped:
        give_up(memory, seq, Failure("queue", "QueueFull", _DROPPED, run_id=run_id))
    return len(dropped)


def evict_done(memory: sqlite3.Connection) -> None:
    """Removes the oldest runs for which nothing is left to do, where memory holds more runs or bytes than it may."""
    pages, free, size, runs = memory.execute(
        "SELECT page_count, freelist_count, page_size, (SELECT count(*) FROM runs) "
        "FROM pragma_page_count, pragma_freelist_count, pragma_page_size"
    ).fetchone()
    if runs > MEMORY_RUNS or (pages - free) * size > MEMORY_BYTES:
        done = memory.execute(
            "SELECT seq FROM runs WHERE owner IS NULL ORDER BY seq LIMIT ?", (REMOVED_AT_ONCE,)
        )
        delete_runs(memory, [seq for (seq,) in done])


def renew(
    db: sqlite3.Connection, owner: str, *, only_new: bool = False, tries: Collection[int] | None = None
) -> None:
    """Renews the lease of this process, or gives it one where it has none.

    Args:
        tries: The runs that this process tries while its engine does not answer. None: it answers.
    """
    expires_ns = time.time_ns() + int(LEASE_SECONDS * 1e9)
    change = "NOTHING" if only_new else "UPDATE SET expires_ns = excluded.expires_ns, born = excluded.born"
    db.execute(
        "INSERT INTO leases (owner, place, pid, born, expires_ns) VALUES (?, ?, ?, ?, ?) "
        f"ON CONFLICT (owner) DO {change}",
        (owner, _machine(), os.getpid(), "" if tries is None else dump([*tries]), expires_ns),
    )


def scored_elsewhere(db: sqlite3.Connection, owner: str, run_id: str) -> OtherProcess | None:
    """Returns the other living process that has to score a run; None where there is none, or the run waits there for
    another attempt."""
    found = db.execute(
        "SELECT seq, leases.*, (SELECT count(*) FROM runs AS others WHERE others.owner = leases.owner AND "
        "others.due_ns IS NOT NULL) AS due FROM runs JOIN leases USING (owner) WHERE id = ? AND owner <> ? "
        "AND (due_ns <= ? OR (due_ns IS NOT NULL AND attempts = 0)) AND expires_ns >= ?",
        (storable(run_id), owner, now_ns(), time.time_ns()),
    ).fetchone()
    if found is None or _is_gone(found["place"], found["pid"]):
        return None
    if found["born"] and found["seq"] not in json.loads(found["born"]):
        return None
    host = "" if found["place"] == _machine() else f" on {found['place'].partition('/')[0]}"
    return OtherProcess(f"{found['pid']}{host}", found["due"])


@cache
def _machine() -> str:
    """Returns the names of the machine, its boot and the process namespace, in which a process id is unique."""
    parts = [socket.gethostname(), "", ""]
    with suppress(OSError):  # no Linux
        parts[1] = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        parts[2] = os.readlink("/proc/self/ns/pid")
    return "/".join(parts)


def _is_gone(machine: str, pid: int) -> bool:
    """Returns True for a process of this machine that has ended; of others only the end of the lease tells."""
    try:
        if machine == _machine():
            os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, ProcessLookupError)  # else it is another user's
    return False


def adopt(db: sqlite3.Connection, owner: str) -> None:
    """Takes over the runs of dead processes; those that were open end as abandoned."""
    now = now_ns()
    owners = db.execute(
        "SELECT DISTINCT runs.owner, place, pid FROM runs "
        "LEFT JOIN leases ON leases.owner = runs.owner AND expires_ns >= ? WHERE runs.owner <> ?",
        (time.time_ns(), owner),
    ).fetchall()
    for one, machine, pid in owners:
        if pid is not None and not _is_gone(machine, pid):
            continue
        _abandon(db, "owner = ?", (one,), due=True)
        # All are due at once: by a clock that was ahead they would be due far too late.
        db.execute(
            "UPDATE runs SET owner = ?1, queued_ns = min(queued_ns, ?2), due_ns = min(due_ns, ?2) WHERE owner = ?3",
            (owner, now, one),
        )
        db.execute("DELETE FROM leases WHERE owner = ?", (one,))


def abandon_overdue(db: sqlite3.Connection, owner: str, idle_since_ns: int, *, due: bool) -> int:
    """Ends the open runs that began before `idle_since_ns` and had no step since then; returns how many. They are to be
    scored where they are `due`."""
    return _abandon(
        db,
        "owner = ? AND started_ns < ? AND NOT EXISTS "
        "(SELECT 1 FROM steps WHERE steps.run = runs.seq AND steps.ended_ns >= ?)",
        (owner, idle_since_ns, idle_since_ns),
        due=due,
    )


def _abandon(db: sqlite3.Connection, condition: str, values: tuple[str | int, ...], *, due: bool) -> int:
    return db.execute(
        "UPDATE runs SET status = 'abandoned', ended_ns = ?1, due_ns = iif(?2, ?1, NULL), "
        "queued_ns = iif(?2, ?1, NULL), owner = iif(?2, owner, NULL) "
        f"WHERE status = 'open' AND {condition}",
        (now_ns(), due, *values),
    ).rowcount


def delete_runs(connection: sqlite3.Connection, seqs: Sequence[int]) -> None:
    """Removes runs with their steps, scores and failures, and the texts that no other run needs."""
    uses: Counter[bytes] = Counter()
    for seq in seqs:
        for table, column in (("runs", "seq"), ("steps", "run")):
            for row in connection.execute(f"SELECT body FROM {table} WHERE {column} = ?", (seq,)):
                uses.subtract(_digests(row[0]))
        for table in ("steps", "scores", "failures", "scorings", "names", "causes"):
            connection.execute(f"DELETE FROM {table} WHERE run = ?", (seq,))
        connection.execute("DELETE FROM runs WHERE seq = ?", (seq,))
    change_uses(connection, uses, {})


def _digests(body: str) -> list[bytes]:
    """Returns the digests of the texts that a row needs; none where another program has made the row unreadable: its
    texts stay, as nothing says which they are."""
    try:
        return digests_in(json.loads(body))
    except (ValueError, TypeError, AttributeError, LookupError):
        return []

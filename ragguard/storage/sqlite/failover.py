"""Copies runs between the file and the memory that stands in for it, with steps, scores, failures and state.

Each copy runs inside the caller's transaction on the target, so that one that fails leaves no half of it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from ragguard.capture.events import RunEnded, RunIdentity, RunStarted, StepAmended, StepEnded
from ragguard.records import Run
from ragguard.storage.sqlite.bounds import evict_ended, is_full
from ragguard.storage.sqlite.counting import add_to_counters, counters_of
from ragguard.storage.sqlite.ledger import INSERT_SCORING, insert_failures
from ragguard.storage.sqlite.reading import (
    chunks,
    failures_of_settings,
    find_seqs,
    runs_at,
    scores_at,
    seq_of,
)
from ragguard.storage.sqlite.score_rows import insert_scores
from ragguard.storage.sqlite.segments import RESUMES, UNANNOUNCED
from ragguard.storage.sqlite.time_slice import TimeSlice
from ragguard.storage.sqlite.writing import Writing, event_row

CHUNK = 10
"""The number of runs that are read at once. An event loop waits for Python's lock while a chunk's records are built."""


class Failover:
    """The state of a store from the failure of its file until everything is in the file again."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        """Starts with nothing in memory."""
        self._copied: set[str] = set()
        """The runs that came from the file; memory has all of their data, which replaces that of the file."""
        self._replaced: set[str] = set()
        """The runs that a caller put in as a whole; where a run is the same, scores that only the file has stay."""
        self._amendments: list[StepAmended] = []
        """The amendments to steps that only the file has."""
        self.events = 0
        """The number of events that only memory holds."""

    def to_memory(self, disk: sqlite3.Connection | None, memory: sqlite3.Connection, owner: str) -> None:
        """Begins to write to memory, with copies of the runs in the file on which this process has work left."""
        self._begin()
        if disk is not None:
            self._copied = copy_unfinished(disk, memory, owner)

    def recorded(self, events: int, unplaced: Sequence[StepAmended]) -> None:
        """Notes how many events went to memory; `unplaced` are amendments to steps that memory does not have."""
        self.events += events
        self._amendments += unplaced

    def put(self, run_id: str) -> None:
        """Notes a run that was put into memory as a whole."""
        self._replaced.add(run_id)
        self.events += 1

    def evict_surplus(self, memory: sqlite3.Connection, claimed: Collection[str]) -> int:
        """Removes the oldest ended runs where memory is full; returns how many of them the file lacks."""
        evicted = evict_ended(memory, claimed) if is_full(memory) else ()
        return sum(run_id not in self._copied for run_id in evicted)

    def to_disk(self, memory: sqlite3.Connection, disk: sqlite3.Connection, owner: str) -> list[str]:
        """Copies every run from memory to the file; returns what could not be copied, and why, one text a run.

        Of a run that the file has as well, and that was neither copied from it nor put in as a whole, memory has only
        what came late, which is added to it, and the run is due again.
        """

        def copy(chunk: Sequence[int]) -> None:
            runs = runs_at(memory, chunk)
            late = {
                seq: there
                for seq, run in runs.items()
                if run.id not in self._copied and run.id not in self._replaced
                if (there := seq_of(disk, run.id)) is not None or RESUMES in run.metadata
            }
            whole = {seq: run for seq, run in runs.items() if seq not in late}
            _copy_whole(memory, disk, owner, whole, keep_scores=self._replaced)
            writing = Writing(disk, owner)
            for seq, there in late.items():
                if _began_in_memory(memory, seq):
                    # The file may have another run of this id, or the one that it continues, as at any start.
                    kept = {name: value for name, value in runs[seq].metadata.items() if name != RESUMES}
                    _write_late(writing, replace(runs[seq], metadata=kept), _identity(runs[seq]))
                    continue
                _write_late(writing, runs[seq])
                if there is not None:
                    insert_scores(disk, there, scores_at(memory, {seq: runs[seq].id})[seq])
            writing.finish()

        fatal = (sqlite3.OperationalError, sqlite3.DatabaseError, MemoryError)
        failed = _in_chunks(disk, find_seqs(memory, "ORDER BY seq"), copy, fatal=fatal)
        Writing(disk, owner).write(self._amendments)
        add_to_counters(disk, counters_of(memory))
        return failed


def copy_unfinished(disk: sqlite3.Connection, memory: sqlite3.Connection, owner: str) -> set[str]:
    """Copies the runs of `owner` on which work is left; returns the ids of those that could be copied."""
    seqs = find_seqs(disk, "WHERE owner = ? ORDER BY seq", owner)
    copied: set[str] = set()

    def copy(chunk: Sequence[int]) -> None:
        runs = runs_at(disk, chunk)
        _copy_whole(disk, memory, owner, runs)
        copied.update(run.id for run in runs.values())

    _in_chunks(memory, seqs, copy, fatal=(sqlite3.OperationalError,))
    return copied


def _in_chunks(
    target: sqlite3.Connection,
    seqs: Sequence[int],
    copy: Callable[[Sequence[int]], None],
    *,
    fatal: Collection[type[Exception]],
) -> list[str]:
    """Copies runs in chunks, or one by one where a run in a chunk cannot be copied; returns the reasons of runs that
    cannot.

    An error of a type in `fatal` comes from the database and not from the run; it is raised.
    """

    def tried(chunk: Sequence[int]) -> str:
        target.execute("SAVEPOINT chunk")
        try:
            copy(chunk)
        except Exception as error:
            if type(error) in fatal:
                raise
            target.execute("ROLLBACK TO chunk")
            target.execute("RELEASE chunk")
            return f"{type(error).__name__}: {error}"
        target.execute("RELEASE chunk")
        return ""

    failed: list[str] = []
    time_slice = TimeSlice()
    for start in range(0, len(seqs), CHUNK):
        time_slice.rest_if_used()
        chunk = seqs[start : start + CHUNK]
        if tried(chunk):
            failed += filter(None, (tried([seq]) for seq in chunk))
    return failed


def _copy_whole(
    source: sqlite3.Connection,
    target: sqlite3.Connection,
    owner: str,
    runs: Mapping[int, Run],
    keep_scores: Collection[str] = (),
) -> None:
    """Puts runs, with all that belongs to them, in place of the target's."""
    revisions = {
        row["id"]: row["revision"]
        for row in chunks(
            target, "SELECT id, revision FROM runs WHERE id IN ({})", [run.id for run in runs.values()]
        )
    }
    writing, time_slice = Writing(target, owner), TimeSlice()
    changed = {}
    for seq, run in runs.items():
        changed[seq] = writing.run(run)
        time_slice.rest_if_used()
    writing.finish()
    for seq, run in runs.items():
        time_slice.rest_if_used()
        if changed[seq] or run.id not in keep_scores:
            there = seq_of(target, run.id)
            for table in ("scores", "failures", "scorings"):
                target.execute(f"DELETE FROM {table} WHERE run = ?", (there,))
        _copy_state(source, target, seq, run, revisions.get(run.id, 0))


def _began_in_memory(memory: sqlite3.Connection, seq: int) -> bool:
    """True for a run whose start was written to memory, and not only later events of the run."""
    body = memory.execute("SELECT body FROM runs WHERE seq = ?", (seq,)).fetchone()[0]
    return UNANNOUNCED not in json.loads(body)


def _identity(run: Run) -> RunIdentity:
    """Returns the identity that the run asked for when it began."""
    continued = run.metadata.get(RESUMES)
    if continued is None:
        return RunIdentity(run.id)
    return RunIdentity(run.id, continued == run.id, "" if continued == run.id else str(continued))


def _write_late(writing: Writing, run: Run, identity: RunIdentity | None = None) -> None:
    """Adds the events of a run in memory to the file, as they were captured."""
    writing.event(RunStarted(replace(run, answer=None, steps=[], status="open"), identity))
    for step in run.steps:
        writing.event(event_row(StepEnded(step), writing.texts))
    if run.status != "open":
        ended = RunEnded(
            run.id, run.status, run.answer, run.question, references=run.references, sub_questions=run.sub_questions,
            pool=run.pool, ended_ns=run.ended_ns, metadata=run.metadata, trace=run.trace,
        )  # fmt: skip
        writing.event(ended)


def _copy_state(
    source: sqlite3.Connection, target: sqlite3.Connection, seq: int, run: Run, before: int
) -> None:
    """Copies scores, failures and the settings that are done; `before` is the revision that the target had."""
    there = seq_of(target, run.id)
    assert there is not None
    state = source.execute("SELECT * FROM runs WHERE seq = ?", (seq,)).fetchone()
    newer = before + 1 - state["revision"] if state["revision"] < before else 0
    scores = scores_at(source, {seq: run.id})[seq]
    sent = len(scores)
    if state["emit_after"] is not None:
        sent = source.execute(
            "SELECT count(*) FROM scores WHERE run = ? AND seq <= ?", (seq, state["emit_after"])
        ).fetchone()[0]
    insert_scores(target, there, scores[:sent])
    last = target.execute("SELECT coalesce(max(seq), 0) FROM scores WHERE run = ?", (there,)).fetchone()[0]
    insert_scores(target, there, scores[sent:])
    for identity, failure in failures_of_settings(source, {seq: run.id})[seq]:
        insert_failures(target, there, identity, [failure])
    target.execute(
        "UPDATE runs SET revision = ?, owner = ?, due_ns = ?, queued_ns = ?, emit_after = ?, attempts = ? "
        "WHERE seq = ?",
        (
            state["revision"] + newer, state["owner"], state["due_ns"], state["queued_ns"],
            None if state["emit_after"] is None else last, state["attempts"], there,
        ),
    )  # fmt: skip
    target.executemany(
        INSERT_SCORING,
        [
            (there, row["identity"], row["revision"] + newer, row["finished"])
            for row in source.execute("SELECT * FROM scorings WHERE run = ?", (seq,))
        ],
    )

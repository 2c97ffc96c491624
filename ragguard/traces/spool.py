"""Keeps the spans of traces on disk until the traces are complete, so that neither their number nor a kill matters.

`add` is durable once it returns, where the spool has a path. `complete` gives the traces of which no more is expected,
`spans` the spans of one; `handed` notes that they have become runs, and spans that come late make them complete once
more until `forget` removes them.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ragguard.errors import StoreError
from ragguard.runtime.faults import describe
from ragguard.storage.sqlite.database import WatchedFile, create_file
from ragguard.text.secret_filter import logger
from ragguard.traces.spans import TraceSpan
from ragguard.traces.trace_spans import PackedSpan, unpacked

MOST_SPANS = 10_000
"""The most spans of one trace that are kept."""
MOST_TRACES = 100_000
"""The most traces that wait to become runs; beyond it the spans of new ones are refused."""
MOST_LATE = 20_000
"""The most traces of which spans are kept for others that come late; of older ones they go once these are runs."""
_OLDEST, _ROWS_AT_ONCE = 2_000, 200
_TOO_LATE = "that came too late for its trace"
BROKEN = "that are broken"
"""Reasons for which spans are refused."""
_UNREADABLE = "left out, as they cannot be read from the spool"
_log = logger("ragguard.serve")
_SCHEMA = """
CREATE TABLE IF NOT EXISTS trace (
    number INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, last REAL NOT NULL, spans INTEGER NOT NULL DEFAULT 0,
    ended INTEGER NOT NULL DEFAULT 0, handed INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS waiting ON trace (last) WHERE handed = 0;
CREATE TABLE IF NOT EXISTS span (trace INTEGER, seq INTEGER, body TEXT, PRIMARY KEY (trace, seq)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS done (id TEXT PRIMARY KEY, at REAL) WITHOUT ROWID;
"""


class Spool:
    """Spans by their traces, in an SQLite file of its own."""

    def __init__(self, path: str | Path | None = None) -> None:
        """Opens the spool.

        Args:
            path: The file. None: a temporary one, which goes with the spool.
        """
        self._too_many_traces = f"of more open traces than {MOST_TRACES:,}"
        self._too_many_spans = f"of a trace with more than {MOST_SPANS:,} spans"
        self.counts = Counter(
            {
                "taken": 0,
                BROKEN: 0,
                _TOO_LATE: 0,
                _UNREADABLE: 0,
                self._too_many_traces: 0,
                self._too_many_spans: 0,
            }
        )
        """How many spans were `taken`, and how many were refused, by the reason."""
        self._lock = threading.Lock()
        self._watched: WatchedFile | None = None
        if path:
            create_file(Path(path))  # it holds texts, which only its owner may read
        try:
            self._db = sqlite3.connect(path or "", check_same_thread=False, isolation_level=None)
            self._db.execute("PRAGMA page_size = 16384")
            if path:
                # `waiting` is counted here and not in the file, so no other process may use it. Python's own lock of a
                # file would not do: closing another handle of the file would end SQLite's locks.
                self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
                self._db.execute("PRAGMA journal_mode = WAL")
            # A kill loses nothing of what is committed; a power cut may lose the last moments.
            self._db.execute(f"PRAGMA synchronous = {'NORMAL' if path else 'OFF'}")
            self._db.executescript(_SCHEMA)
            self.waiting: int = self._db.execute("SELECT count(*) FROM trace WHERE handed = 0").fetchone()[0]
            """How many traces wait to become runs."""
            if path:
                self._watched = WatchedFile(Path(path))
        except sqlite3.Error as error:
            is_used = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
            why = (
                "another process uses it: end that, or name another --store"
                if is_used
                else "name another file"
            )
            raise StoreError(f"the spool {path} could not be opened ({error}); {why}") from error
        self.outage = ""
        """The reason why spans could not be kept the last time; '' if they could."""

    def add(self, spans: Iterable[PackedSpan], now: float = 0.0) -> Counter[str]:
        """Keeps spans; returns how many were refused, by the reason. Raises StoreError where the disk takes nothing.

        Args:
            spans: The spans, of any traces.
            now: The time at which they came, in seconds.
        """
        refused: Counter[str] = Counter()
        by_trace: dict[str, list[PackedSpan]] = {}
        for span in spans:
            by_trace.setdefault(span.trace_id, []).append(span)
        ids = list(by_trace)
        with self._transaction():
            known = {row[1]: row for row in self._chosen("SELECT * FROM trace WHERE id", ids)}
            forgotten = {row[0] for row in self._chosen("SELECT id FROM done WHERE id", ids)} - known.keys()
            (latest,) = self._db.execute("SELECT ifnull(max(number), 0) FROM trace").fetchone()
            traces, rows, new = [], [], 0
            for trace, own in by_trace.items():
                number, _, _, have, ended, handed = known.get(trace) or (latest + 1, trace, now, 0, 0, 1)
                # A whole run may come anew at any time; other spans would be a run without those that came before.
                if trace in forgotten and not any(span.is_whole for span in own):
                    refused[_TOO_LATE] += len(own)
                    continue
                if trace not in known and self.waiting + new >= MOST_TRACES:
                    refused[self._too_many_traces] += len(own)
                    continue
                kept = own[: max(0, MOST_SPANS - have)]
                if len(kept) < len(own):
                    refused[self._too_many_spans] += len(own) - len(kept)
                latest, new = max(latest, number), new + handed
                ended = ended or any(span.is_ended_root for span in kept)
                traces.append((number, trace, now, have + len(kept), ended, 0))
                rows += [(number, have + place, span.body) for place, span in enumerate(kept)]
            self._insert("INSERT OR REPLACE INTO trace", traces)
            self._insert("INSERT INTO span", rows)
        self.waiting += new
        taken = sum(map(len, by_trace.values())) - refused.total()
        self.counts.update({"taken": taken, **refused})
        return refused

    def limit_times(self, now: float) -> None:
        """Sets times after `now` to it, which a clock that was ahead gave: traces would be complete far too late."""
        with self._transaction():
            self._db.execute("UPDATE trace SET last = ?1 WHERE handed = 0 AND last > ?1", (now,))

    def _chosen(self, select: str, ids: Sequence[str]) -> list[tuple[Any, ...]]:
        """Returns the rows with some ids."""
        return self._db.execute(f"{select} IN ({', '.join('?' * len(ids))})", ids).fetchall()

    def _insert(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Inserts rows by few statements: after each, this thread waits for those that compute meanwhile."""
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            some = rows[start : start + _ROWS_AT_ONCE]
            places = ", ".join([f"({', '.join('?' * len(some[0]))})"] * len(some))
            self._db.execute(f"{statement} VALUES {places}", [value for row in some for value in row])

    def complete(self, ended_before: float, quiet_before: float, most: int = 256) -> list[str]:
        """Returns traces of which no more is expected: those whose root has ended and whose latest span came before the
        first time, and those of which nothing came since the second."""
        with self._lock:
            rows = self._db.execute(
                "SELECT id FROM trace WHERE handed = 0 AND last <= ? AND (ended OR last <= ?) ORDER BY last LIMIT ?",
                (ended_before, quiet_before, most),
            ).fetchall()
        return [row[0] for row in rows]

    def growing(self, since: float, most: int) -> list[tuple[str, int]]:
        """Returns the traces whose roots have not ended and of which spans came since that time, the latest first, each
        with how many spans it has."""
        with self._lock:
            return self._db.execute(
                "SELECT id, spans FROM trace WHERE handed = 0 AND NOT ended AND last >= ? ORDER BY last DESC LIMIT ?",
                (since, most),
            ).fetchall()

    def traces(self) -> Iterator[str]:
        """Yields the ids of all traces, in the order in which they came."""
        return (row[0] for row in self._db.execute("SELECT id FROM trace ORDER BY number").fetchall())

    def spans(self, trace: str) -> list[TraceSpan]:
        """Returns the spans of a trace, in the order in which they came."""
        find = "SELECT body FROM span WHERE trace = (SELECT number FROM trace WHERE id = ?) ORDER BY seq"
        with self._lock:
            rows = self._db.execute(find, (trace,)).fetchall()
        spans: list[TraceSpan] = []
        for (body,) in rows:
            try:
                spans.append(unpacked(body))
            except Exception as error:  # noqa: BLE001 - one span that cannot be read must not hold up its trace
                self.counts[_UNREADABLE] += 1
                _log.warning(
                    "a span of the trace %s cannot be read and is left out: %s", trace, describe(error)
                )
        return spans

    def handed(self, traces: Iterable[str], before: float) -> None:
        """Notes that traces have become runs, except those of which spans came since that time."""
        note = "UPDATE trace SET handed = 1 WHERE id = ? AND handed = 0 AND last <= ?"
        with self._transaction():
            for trace in traces:
                self.waiting -= self._db.execute(note, (trace, before)).rowcount

    def forget(self, quiet_before: float, known_before: float) -> None:
        """Removes the spans of traces that have become runs and of which nothing came since the first time, or which
        are not among the latest; only of the oldest thousands, since spans that come meanwhile wait. A trace whose root
        has not ended, such as one that waits for a person, is kept until the second time, as are the ids of all, so
        that later spans are known as such."""
        oldest = f"(SELECT * FROM trace ORDER BY number LIMIT {_OLDEST})"
        old = f"number <= (SELECT max(number) FROM trace) - {MOST_LATE}"
        quiet = "last <= ? AND (ended OR last <= ?)"
        find = f"SELECT number, id, last FROM {oldest} WHERE handed = 1 AND ({quiet} OR {old})"
        with self._transaction():
            gone = self._db.execute(find, (quiet_before, known_before)).fetchall()
            numbers = [row[:1] for row in gone]
            self._db.executemany("INSERT OR REPLACE INTO done VALUES (?, ?)", [row[1:] for row in gone])
            self._db.executemany("DELETE FROM span WHERE trace = ?", numbers)
            self._db.executemany("DELETE FROM trace WHERE number = ?", numbers)
            self._db.execute("DELETE FROM done WHERE at < ?", (known_before,))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._lock:
            try:
                self._check_file()
                self._db.execute("BEGIN IMMEDIATE")
                yield
                self._db.execute("COMMIT")
                self._check_file()
            except (sqlite3.Error, StoreError) as error:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                self.outage = str(error)
                if isinstance(error, StoreError):
                    raise
                self.outage = f"spans could not be kept ({error}); free the disk, then send them again"
                raise StoreError(self.outage) from error
            self.outage = ""

    def check(self) -> None:
        """Notes in `outage` whether the file is still the one that was opened."""
        with self._lock:
            try:
                self._check_file()
            except StoreError as error:
                self.outage = str(error)

    def _check_file(self) -> None:
        if self._watched is not None and (change := self._watched.change()):
            raise StoreError(
                f"the file of the spool was {change} while it was in use, so spans cannot be kept: start the service "
                "again, then send them again"
            )

    def close(self) -> None:
        """Closes the file."""
        with self._lock:
            self._db.close()

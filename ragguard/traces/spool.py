"""Keeps the spans of traces that are not complete: on disk, so that neither their number nor a kill matters.

spool.add(spans)              # durable once it returns, where the spool has a path
spool.complete(now)           # the traces of which no more spans are expected
spool.spans(trace_id); spool.remove(trace_id)
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple
from pathlib import Path

from ragguard.errors import StoreError
from ragguard.traces.span import SpanEvent, TraceSpan

MOST_SPANS = 10_000
"""The most spans of one trace that are kept."""
MOST_TRACES = 100_000
"""The most traces that are open at once; beyond it the spans of new ones are refused."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS trace (
    id TEXT PRIMARY KEY, number INTEGER, last REAL, spans INTEGER NOT NULL DEFAULT 0, ended INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS span (trace TEXT, seq INTEGER, body TEXT, PRIMARY KEY (trace, seq)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS done (id TEXT PRIMARY KEY, at REAL) WITHOUT ROWID;
"""


class Spool:
    """Spans by their traces, in an SQLite file of its own."""

    def __init__(self, path: str | Path | None = None) -> None:
        """Opens the spool.

        Args:
            path: The file. None: a temporary one, which goes with the spool.
        """
        self.counts: Counter[str] = Counter()
        """How many spans were taken, and how many were refused, by the reason."""
        self._lock = threading.Lock()
        try:
            self._db = sqlite3.connect(path or "", check_same_thread=False, isolation_level=None)
            self._db.execute("PRAGMA journal_mode = WAL" if path else "PRAGMA synchronous = OFF")
            self._db.executescript(_SCHEMA)
        except sqlite3.Error as error:
            raise StoreError(f"the spool {path} could not be opened ({error}); name another file") from error

    def add(self, spans: Iterable[TraceSpan], now: float = 0.0) -> Counter[str]:
        """Keeps spans; returns how many were refused, by the reason. Raises StoreError where the disk takes nothing.

        Args:
            spans: The spans, of any traces.
            now: The time at which they came, in seconds.
        """
        refused: Counter[str] = Counter()
        by_trace: dict[str, list[TraceSpan]] = {}
        for span in spans:
            by_trace.setdefault(span.trace_id, []).append(span)
        with self._lock:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                for trace, own in by_trace.items():
                    self._add(trace, own, now, refused)
                self._db.execute("COMMIT")
            except sqlite3.Error as error:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise StoreError(
                    f"spans could not be kept ({error}); free the disk, then send them again"
                ) from error
        taken = sum(map(len, by_trace.values())) - refused.total()
        self.counts.update({"taken": taken, **refused})
        return refused

    def _add(self, trace: str, spans: Sequence[TraceSpan], now: float, refused: Counter[str]) -> None:
        row = self._db.execute("SELECT spans FROM trace WHERE id = ?", (trace,)).fetchone()
        if row is None:
            if self._db.execute("SELECT 1 FROM done WHERE id = ?", (trace,)).fetchone():
                refused["that came after its trace was complete"] += len(spans)
                return
            if self.open_traces() >= MOST_TRACES:
                refused[f"of more open traces than {MOST_TRACES:,}"] += len(spans)
                return
            self._db.execute(
                "INSERT INTO trace (id, number) SELECT ?, coalesce(max(number), 0) + 1 FROM trace", (trace,)
            )
        have = row[0] if row else 0
        kept = spans[: max(0, MOST_SPANS - have)]
        if len(kept) < len(spans):
            refused[f"of a trace with more than {MOST_SPANS:,} spans"] += len(spans) - len(kept)
        self._db.executemany(
            "INSERT INTO span VALUES (?, ?, ?)",
            ((trace, have + n, _text(span)) for n, span in enumerate(kept)),
        )
        ended = any(not span.parent_id and span.ended_ns for span in kept)
        self._db.execute(
            "UPDATE trace SET spans = spans + ?, last = ?, ended = max(ended, ?) WHERE id = ?",
            (len(kept), now, ended, trace),
        )

    def open_traces(self) -> int:
        """Returns how many traces have spans here."""
        return int(self._db.execute("SELECT count(*) FROM trace").fetchone()[0])

    def complete(self, ended_before: float, quiet_before: float, most: int = 256) -> list[str]:
        """Returns traces of which no more is expected: those whose root has ended and whose latest span came before the
        first time, and those of which nothing came since the second."""
        with self._lock:
            rows = self._db.execute(
                "SELECT id FROM trace WHERE last <= ? AND (ended OR last <= ?) ORDER BY number LIMIT ?",
                (ended_before, quiet_before, most),
            ).fetchall()
        return [row[0] for row in rows]

    def traces(self) -> Iterator[str]:
        """Yields the ids of all traces, in the order in which they came."""
        return (row[0] for row in self._db.execute("SELECT id FROM trace ORDER BY number").fetchall())

    def spans(self, trace: str) -> list[TraceSpan]:
        """Returns the spans of a trace, in the order in which they came."""
        with self._lock:
            rows = self._db.execute("SELECT body FROM span WHERE trace = ? ORDER BY seq", (trace,)).fetchall()
        return [_span(row[0]) for row in rows]

    def remove(self, traces: Sequence[str], now: float, forget_before: float) -> None:
        """Forgets the spans of traces that were scored. Their ids are remembered for a while, so that spans that come
        late are known as such."""
        with self._lock, self._db:
            self._db.execute("BEGIN IMMEDIATE")
            for trace in traces:
                self._db.execute("DELETE FROM span WHERE trace = ?", (trace,))
                self._db.execute("DELETE FROM trace WHERE id = ?", (trace,))
                self._db.execute("INSERT OR REPLACE INTO done VALUES (?, ?)", (trace, now))
            self._db.execute("DELETE FROM done WHERE at < ?", (forget_before,))

    def close(self) -> None:
        """Closes the file."""
        self._db.close()


def _text(span: TraceSpan) -> str:
    return json.dumps(astuple(span), default=str)


def _span(text: str) -> TraceSpan:
    span = TraceSpan(*json.loads(text))
    span.events = [SpanEvent(*event) for event in span.events]
    return span

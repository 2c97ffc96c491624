"""The disk cache: keeps answers between processes. Key → bytes in one SQLite file, which several processes may share.

A broken cache must not break scoring: a file that cannot be opened, read or written is given up with one loud warning,
and answers are then kept in memory only.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ragguard.runtime.per_process import disconnect_before_forks
from ragguard.runtime.threads import DaemonThreads
from ragguard.text.secret_filter import logger

_log = logger("ragguard.cache")

# The number belongs to the name: a later layout has another table and never reads these rows.
_TABLE = "answers_1"
_SCHEMA = f"""
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
CREATE TABLE IF NOT EXISTS {_TABLE} (key BLOB PRIMARY KEY, value BLOB NOT NULL, written INTEGER NOT NULL)
  WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS {_TABLE}_written ON {_TABLE} (written);
"""
_AT_ONCE = 500
_PRUNE_EVERY = 1000


class DiskCache:
    """Keeps at most about `max_items` answers in the file at `path`; removes the oldest first."""

    def __init__(self, path: Path, max_items: int) -> None:
        self.path = path
        self.lost = False
        """True once the file was given up."""
        self.lock = threading.RLock()
        """Held while the file is used."""
        self._max_items = max_items
        self._closed = False
        self._file: sqlite3.Connection | None = None
        self._since_pruned = 0
        # Only this thread uses the file, so that a read sees every earlier write.
        self._thread = DaemonThreads(1, "ragguard-cache")
        disconnect_before_forks(self)

    async def read(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Returns what the file has of these keys."""
        found: dict[bytes, bytes] = {}

        def read(file: sqlite3.Connection) -> None:
            for start in range(0, len(keys), _AT_ONCE):
                some = keys[start : start + _AT_ONCE]
                marks = ",".join("?" * len(some))
                found.update(file.execute(f"SELECT key, value FROM {_TABLE} WHERE key IN ({marks})", some))

        if not self.lost and not self._closed:
            await asyncio.wrap_future(self._thread.submit(self._use, "read", read))
        return found

    def write(self, items: Mapping[bytes, bytes]) -> None:
        """Queues answers, which the cache's thread writes soon; does nothing once the cache is closed."""

        def write(file: sqlite3.Connection) -> None:
            now = time.time_ns()
            with file:
                rows = [(key, value, now) for key, value in items.items()]
                file.executemany(f"INSERT OR REPLACE INTO {_TABLE} VALUES (?, ?, ?)", rows)
                self._since_pruned += len(rows)
                if self._since_pruned >= _PRUNE_EVERY:
                    self._since_pruned = 0
                    self._prune(file)

        if not self.lost and not self._closed:
            self._thread.submit(self._use, "written", write)

    async def close(self) -> None:
        """Writes what is left and closes the file."""
        self._closed = True
        await asyncio.wrap_future(self._thread.submit(self.disconnect))
        self._thread.shutdown(wait=False)

    def disconnect(self) -> None:
        """Closes the connection; the next use opens another one."""
        with self.lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def __del__(self) -> None:
        """Closes the file of a cache that nobody closed and nobody can reach any more."""
        if (file := getattr(self, "_file", None)) is not None:
            file.close()

    def _use(self, what: str, work: Callable[[sqlite3.Connection], None]) -> None:
        """Does some work with the file, or gives the file up; `what` says in the warning what could not be done."""
        with self.lock:
            try:
                if not self.lost:
                    work(self._file or self._open())
            except (sqlite3.Error, OSError) as error:
                self.lost = True
                _log.warning(
                    "The answer cache %s cannot be %s (%s). Going on in memory only: after a restart, answers are "
                    "asked and paid for again. Delete the file, or give another path.",
                    self.path,
                    what,
                    error,
                )
                self.disconnect()

    def _open(self) -> sqlite3.Connection:
        if self.path.exists() and not self.path.is_file():  # opening a pipe would wait for its other end
            raise OSError("it is no regular file")
        # The garbage collector may close the connection on any thread.
        self._file = sqlite3.connect(self.path, timeout=5, check_same_thread=False)
        self._file.executescript(_SCHEMA)
        return self._file

    def _prune(self, file: sqlite3.Connection) -> None:
        (count,) = file.execute(f"SELECT count(*) FROM {_TABLE}").fetchone()
        if count > self._max_items:
            # A tenth more than needed, so that this happens rarely.
            surplus = count - self._max_items + self._max_items // 10
            file.execute(
                f"DELETE FROM {_TABLE} WHERE key IN (SELECT key FROM {_TABLE} ORDER BY written LIMIT ?)",
                (surplus,),
            )

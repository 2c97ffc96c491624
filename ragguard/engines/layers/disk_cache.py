"""The disk cache: keeps answers between processes. Key → bytes in one SQLite file.

Several processes may share a file; the connection to it is closed before a fork, and parent and child each open one
of their own. A file that cannot be opened, read or written is let go with one loud warning, and answers are then kept
in memory only: a cache must never be what fails.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ragguard.runtime.fork import FORK_WAIT, at_fork, keep_for_ever
from ragguard.runtime.threads import DaemonThreads
from ragguard.text.secret_filter import logger

_log = logger("ragguard.cache")

# The number belongs to the name: a later layout has another table and never reads these rows.
_TABLE = "answers_1"
_SCHEMA = f"""
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
        self._max_items = max_items
        self._closed = False
        self._file: sqlite3.Connection | None = None
        self._since_pruned = 0
        # Only this thread uses the file, so that a read sees every earlier write.
        self._thread = DaemonThreads(1, "ragguard-cache")
        self._in_use = threading.RLock()
        """Held by the thread that uses the file, and across a fork."""
        self._held = False
        at_fork(before=self._before_fork, in_parent=self._after_in_parent, in_child=self._after_in_child)

    async def read(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Returns what the file has of these keys."""
        if self.lost or self._closed:
            return {}
        return await asyncio.wrap_future(self._thread.submit(self._read, keys))

    def write(self, items: Mapping[bytes, bytes]) -> None:
        """Queues answers, which the cache's thread writes soon; does nothing once the cache is closed."""
        if not self.lost and not self._closed:
            self._thread.submit(self._write, items)

    async def close(self) -> None:
        """Writes what is left and closes the file."""
        self._closed = True
        await asyncio.wrap_future(self._thread.submit(self._close))
        self._thread.shutdown(wait=False)

    def __del__(self) -> None:
        """Closes the file of a cache that nobody closed and nobody can reach any more."""
        if (file := getattr(self, "_file", None)) is not None:
            file.close()

    def _read(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        with self._in_use:
            try:
                file = self._open()
                for start in range(0, len(keys), _AT_ONCE):
                    some = keys[start : start + _AT_ONCE]
                    marks = ",".join("?" * len(some))
                    found.update(
                        file.execute(f"SELECT key, value FROM {_TABLE} WHERE key IN ({marks})", some)
                    )
            except (sqlite3.Error, OSError) as error:
                self._give_up("read", error)
        return found

    def _write(self, items: Mapping[bytes, bytes]) -> None:
        with self._in_use:
            try:
                file = self._open()
                now = time.time_ns()
                with file:
                    rows = [(key, value, now) for key, value in items.items()]
                    file.executemany(f"INSERT OR REPLACE INTO {_TABLE} VALUES (?, ?, ?)", rows)
                    self._since_pruned += len(rows)
                    if self._since_pruned >= _PRUNE_EVERY:
                        self._since_pruned = 0
                        self._prune(file)
            except (sqlite3.Error, OSError) as error:
                self._give_up("written", error)

    def _open(self) -> sqlite3.Connection:
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self.path.exists() and not self.path.is_file():  # opening a pipe would wait for its other end
                raise OSError("it is no regular file")
            # The garbage collector may close the connection on any thread.
            file = sqlite3.connect(self.path, timeout=5, check_same_thread=False)
            try:
                file.execute("PRAGMA journal_mode = WAL")
                file.execute("PRAGMA synchronous = NORMAL")
                file.executescript(_SCHEMA)
            except sqlite3.Error:
                file.close()
                raise
            self._file = file
        return self._file

    def _close(self) -> None:
        with self._in_use:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _prune(self, file: sqlite3.Connection) -> None:
        (count,) = file.execute(f"SELECT count(*) FROM {_TABLE}").fetchone()
        if count > self._max_items:
            # A tenth more than needed, so that this happens rarely.
            surplus = count - self._max_items + self._max_items // 10
            file.execute(
                f"DELETE FROM {_TABLE} WHERE key IN (SELECT key FROM {_TABLE} ORDER BY written LIMIT ?)",
                (surplus,),
            )

    def _before_fork(self) -> None:
        self._held = self._in_use.acquire(timeout=FORK_WAIT)
        if self._held:
            self._close()

    def _after_in_parent(self) -> None:
        if self._held:
            self._in_use.release()

    def _after_in_child(self) -> None:
        self._in_use = threading.RLock()
        if not self._held:
            # SQLite has copied the locks of the parent's transaction, and every further connection to the file in
            # this process would share them.
            keep_for_ever(self._file)
            self._file = None
            self._give_up("used here", TimeoutError("the process forked while it was being written"))

    def _give_up(self, what: str, error: Exception) -> None:
        if not self.lost:
            self.lost = True
            _log.warning(
                "The answer cache %s cannot be %s (%s). Going on in memory only: after a restart, answers are "
                "asked and paid for again. Delete the file, or give another path.",
                self.path,
                what,
                error,
            )
        self._close()

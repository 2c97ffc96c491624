"""One SQLite connection behind one lock, with transactions, and the file behind it. The tables are `layout.py`'s.

SQLite keeps three files: the database, its log (`-wal`) and the index of the log (`-shm`). A process must not open and
close the database beside SQLite, since that drops SQLite's locks.

A fault of the file or the disk becomes `StoreUnavailable`: the same work may succeed later. All other errors of SQLite
become `StoreError`.
"""

from __future__ import annotations

import os
import shlex
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from weakref import WeakSet

from ragguard.errors import Closed, StoreError, StoreUnavailable
from ragguard.runtime.per_process import disconnect_before_forks, keep_for_ever
from ragguard.storage.sqlite import layout

_TURN = 0.25
"""Seconds that a reader waits for the connection before it reads the file over one of its own."""


class Database:
    """A file, or memory where `path` is None; opened when it is made, and raises StoreError where that fails."""

    def __init__(self, path: Path | None, *, full: bool = False, read_only: bool = False) -> None:
        self.path, self.closed = path, False
        self._full, self._read_only = full, read_only
        self._db: sqlite3.Connection | None = None
        self.lock = threading.RLock()
        """Held while the connection is used."""
        self._watched: WatchedFile | None = None
        """The file that is open; None in memory."""
        try:
            with self._translated("read" if read_only else "written"):
                self._db = self._open()
        except StoreUnavailable as error:
            of_disk = isinstance(error.__cause__, sqlite3.OperationalError)
            check = "; check the file, its folder and the disk, or name another file" if of_disk else ""
            raise StoreError(f"{error}{check}") from error
        if path is not None:
            disconnect_before_forks(self)
            _DATABASES.add(self)

    @property
    def name(self) -> str:
        """The name of the store in messages."""
        return "the store in memory" if self.path is None else f"the store {self.path}"

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Yields the connection for one change: all of it is durable when the block ends, nothing where it raises."""
        with (
            self.lock,
            self._translated("written"),
            layout.transaction(self._connected(), "BEGIN IMMEDIATE") as db,
        ):
            yield db

    @contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """Yields a connection to one state of the data.

        While another thread holds the connection, such as a writer that waits for another process's lock, the file is
        read over a connection of its own. For a database in memory the reader waits.
        """
        has_turn = self.lock.acquire(timeout=-1 if self.path is None else _TURN)
        own: sqlite3.Connection | None = None
        try:
            with self._translated("read"):
                if not has_turn and self.path is not None:
                    own = layout.connect(self.path, read_only=True)
                with layout.transaction(own or self._connected(), "BEGIN") as db:
                    yield db
        finally:
            if own is not None:
                own.close()
            if has_turn:
                self.lock.release()

    def wipe(self) -> bool:
        """Empties the log, in which deleted texts still stand; False where somebody else is reading it."""
        with self.lock, suppress(sqlite3.OperationalError):
            return not self._connected().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        return False

    def close(self) -> None:
        """Writes the log into the file, also while others read it, and closes it. Safe to call twice."""
        with self.lock:
            self.closed = True
            if self._db is not None and not (self._watched and self._watched.change(self._needed)):
                with suppress(sqlite3.Error):  # what is not written stays in the log
                    self._db.execute("PRAGMA wal_checkpoint")
            self.disconnect()

    def disconnect(self) -> None:
        """Closes the connection; the next use of a file opens it again. The lock is held."""
        if self._db is not None:
            if self._watched is not None and (change := self._watched.change(self._needed)):
                if change != TRUNCATED:
                    with suppress(sqlite3.Error):  # all of the log belongs to the file that was moved
                        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                keep_for_ever(self._db)  # closing would remove the log of the file that is at the path now
            else:
                self._db.close()
            self._db = None

    def __del__(self) -> None:
        """Closes the connection of a store that nobody closed and nobody can reach any more."""
        if getattr(self, "_db", None) is not None:
            self.disconnect()

    @contextmanager
    def _translated(self, done: str) -> Iterator[None]:
        """Turns errors of SQLite into a StoreError that says which store cannot be `done`."""
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:  # SQLite's words about damage may be unreadable
            # Damage is a plain DatabaseError, and all that SQLite says of the disk an OperationalError.
            damaged = type(error) in (sqlite3.DatabaseError, UnicodeDecodeError)
            kind = StoreUnavailable if damaged or isinstance(error, sqlite3.OperationalError) else StoreError
            what = (
                f"; it is damaged, or no SQLite file. `sqlite3 {shlex.quote(str(self.path))} .recover` saves what can "
                "be read; then move the file away, or name another file"
            )
            if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_READONLY:
                what = (
                    "; the file, its folder or its disk allows no writing: change that, or name another file"
                )
            elif not damaged:
                what = ""
            raise kind(f"{self.name} cannot be {done}: {error}{what}") from error

    def _connected(self) -> sqlite3.Connection:
        """Returns the connection to the file that is at the path now, or to memory."""
        if self.closed:
            raise Closed(f"{self.name} is closed; make a new one")
        if (
            not self._read_only
            and self._watched is not None
            and (change := self._watched.change(self._needed))
        ):
            raise StoreUnavailable(
                f"the file of {self.name} was {change} while it was in use: put it back, or make a new RagGuard, which "
                "begins a new one"
            )
        if self._db is None:
            self._db = self._open()
        return self._db

    def _needed(self) -> int:
        """Returns the size of all pages of the database, those that stand in the log included."""
        pages = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
        return int(self._db.execute(pages).fetchone()[0]) if self._db is not None else 0

    def _open(self) -> sqlite3.Connection:
        if self.path is not None:
            _check_path(self.path, self.name)
            if not self._read_only:
                create_file(self.path)
            elif not self.path.exists():
                raise StoreError(f"{self.name} does not exist; check the path")
        db = layout.connect(self.path, full=self._full, read_only=self._read_only)
        try:
            layout.prepare(db, self.name, read_only=self._read_only)
        except BaseException:
            db.close()
            raise
        if self.path is not None:
            self._watched = WatchedFile(self.path)
        return db


_DATABASES: WeakSet[Database] = WeakSet()
"""The databases of this process that are files."""


def create_file(path: Path) -> None:
    """Makes an empty file that only its owner reads, where there is none; SQLite gives its log the same mode."""
    with suppress(OSError):  # the file exists, or SQLite raises when it opens it
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def is_store(path: str | Path) -> bool:
    """True where that file is an SQLite database; False where there is no such file."""
    for database in [*_DATABASES]:  # looking into its file would drop the locks of this process
        with suppress(OSError):  # its file may be gone
            if not database.closed and database.path is not None and os.path.samefile(path, database.path):
                return True
    with suppress(OSError):
        if Path(path).is_file():  # a pipe would lose what is read here
            with open(path, "rb") as file:
                return file.read(16) == b"SQLite format 3\0"
    return False


def is_whole_store(path: Path) -> bool:
    """True where that file is an SQLite database with as many bytes as its head says; for one that nobody writes."""
    if not is_store(path):
        return False
    with suppress(OSError), open(path, "rb") as file:
        head = file.read(32)
        page = int.from_bytes(head[16:18], "big")
        return len(head) == 32 and os.fstat(file.fileno()).st_size == page * int.from_bytes(
            head[28:32], "big"
        )
    return False


TRUNCATED = "truncated"


class WatchedFile:
    """A database file that is in use: notices what somebody else does to it. SQLite itself goes on with a file that was
    deleted, and writes pages of a log into one that was emptied."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._identity, self._size = self._look() or ((0, 0), 0)

    def change(self, needed: Callable[[], int] = lambda: sys.maxsize) -> str:
        """Says what became of the file since it was opened; '' if nothing did. A file that became smaller was truncated
        if it has fewer bytes than the `needed` ones; another process may have packed it."""
        found = self._look()
        if found is None or found[0] != self._identity:
            return "moved, deleted or replaced"
        if found[1] < self._size and found[1] < needed():
            return TRUNCATED
        self._size = found[1]
        return ""

    def _look(self) -> tuple[tuple[int, int], int] | None:
        """Returns the device of the file and its number there, which stay when it is renamed, and its size."""
        with suppress(OSError):
            found = os.stat(self._path)
            return (found.st_dev, found.st_ino), found.st_size
        return None


def _check_path(path: Path, name: str) -> None:
    """Raises StoreError where no file of a store can be at the path."""
    try:
        if not path.parent.is_dir():
            raise StoreError(f"there is no folder {path.parent} for {name}; make it, or name another file")
        if path.exists() and not path.is_file():  # opening a pipe would wait for its other end
            raise StoreError(f"{name} is a folder, a pipe or a device; name a regular file")
    except OSError as error:  # such as a name that is too long
        raise StoreError(f"{name} cannot be opened ({error.strerror}); name another file") from error

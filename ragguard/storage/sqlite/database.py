"""One SQLite connection behind one lock, with transactions, and the files behind it. Knows no table.

SQLite keeps three files: the database, its log (`-wal`) and the index of the log (`-shm`). A process must not open and
close the database beside SQLite, since that drops SQLite's locks.

A fault of the file or the disk becomes `StoreUnavailable`: the same work may succeed later. All other errors of SQLite
become `StoreError`.
"""

from __future__ import annotations

import os
import shlex
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import TypeAlias

from ragguard.errors import Closed, StoreError, StoreUnavailable
from ragguard.runtime.per_process import disconnect_before_forks, keep_for_ever
from ragguard.storage.sqlite import schema
from ragguard.text.secret_filter import logger

Identity: TypeAlias = tuple[int, int]
"""The device and the number of a file on it: both stay when the file is renamed, and a new file has others."""

_LOG_SUFFIXES = ("-wal", "-shm")


def identity_of(path: Path) -> Identity | None:
    """Returns the identity of the file at `path`; None where none is."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def create_file(path: Path) -> None:
    """Makes an empty file that only its owner reads, where there is none; SQLite gives its log the same mode.

    The log that an earlier file of this name has left is deleted: SQLite would take it for the new file's.
    """
    stale = {name: identity_of(name) for name in _logs_of(path)}
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError:
        return  # the file exists, or SQLite raises when it opens it
    for name, identity in stale.items():
        if identity is not None and identity_of(name) == identity:
            name.unlink(missing_ok=True)


def check_file(path: Path, name: str, *, read_only: bool) -> None:
    """Raises StoreError with the way out for a file that cannot be used as a store: a damaged one, one of another
    program, or one of another version."""
    if not path.parent.is_dir():
        raise StoreError(f"there is no folder {path.parent} for {name}; make it, or name another file")
    if path.is_dir():
        raise StoreError(f"{name} is a folder; name a file in it")
    if path.exists() and not path.is_file():  # opening a pipe would wait for its other end
        raise StoreError(f"{name} is a pipe, a socket or a device; name a regular file")
    if not path.exists():
        if read_only:
            raise StoreError(f"{name} does not exist; check the path")
        return
    try:
        with opened_to_read(path) as db:
            found = schema.check(db, name)
            if found:
                schema.check_tables(db, name)
    except sqlite3.OperationalError as error:
        raise StoreError(
            f"{name} cannot be read ({error}); check the file and its permissions, or copy it and its log to a folder "
            "that can be written"
        ) from error
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        if not _has_our_mark(path):
            raise StoreError(f"{name} is no SQLite file ({error}); name another file") from error
        raise StoreError(f"{name} is damaged ({error}); {way_out(path)}") from error
    if read_only and not found:
        raise StoreError(
            f"{name} is an empty file; capture some runs into it, or name another{_without_log(path)}"
        )


def way_out(path: Path) -> str:
    """Returns what to do about a damaged file."""
    return f"`sqlite3 {shlex.quote(str(path))} .recover` saves what can be read; then move the file away"


@contextmanager
def opened_to_read(path: Path) -> Iterator[sqlite3.Connection]:
    """Opens a connection as `open_to_read` does, and closes it at the end of the block."""
    had_log = _logs_of(path)[0].exists()
    try:
        with closing(open_to_read(path)) as db:
            db.row_factory = sqlite3.Row
            yield db
    finally:
        if not had_log:
            remove_empty_log(path)


def remove_empty_log(path: Path) -> None:
    """Has SQLite delete the log and its index where nothing is in the log and no process has the file open.

    A connection that writes nothing makes both and leaves them. One that may write deletes them as it closes last.
    """
    log = _logs_of(path)[0]
    if not log.exists() or _size(log):
        return
    address = f"{path.absolute().as_uri()}?mode=rw"
    with suppress(sqlite3.Error), closing(sqlite3.connect(address, uri=True, timeout=0)) as db:
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()


def open_to_read(path: Path) -> sqlite3.Connection:
    """Returns a connection that writes nothing. Where the log's index cannot be written, it reads the file alone, and
    raises sqlite3.OperationalError if there is something in the log."""
    connect = partial(
        sqlite3.connect, timeout=schema.PATIENCE, isolation_level=None, check_same_thread=False, uri=True
    )
    location = path.absolute().as_uri()
    db = connect(f"{location}?mode=ro")
    try:
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        db.close()
        if _size(_logs_of(path)[0]):
            raise
        return connect(f"{location}?immutable=1")
    except (sqlite3.DatabaseError, UnicodeDecodeError):
        return db  # no SQLite file: the next read raises
    return db


def is_store(path: str | Path) -> bool:
    """True where that file is an SQLite database; False where there is no such file."""
    # A pipe would lose what is read here.
    return Path(path).is_file() and _beginning(path, 16) == b"SQLite format 3\0"


def is_damage(error: Exception) -> bool:
    """True where SQLite found bytes in the file that cannot be right; its own message about them may be unreadable."""
    return isinstance(error, UnicodeDecodeError) or getattr(error, "sqlite_errorcode", -1) & 0xFF in (
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
    )


def _has_our_mark(path: Path) -> bool:
    """True where the first page is a store's, whatever is wrong in it. SQLite has no connection that could say so."""
    page = _beginning(path, 2**16)
    return page[68:72] == schema.APPLICATION_ID.to_bytes(4, "big") or b"CREATE TABLE passage_uses" in page


def _beginning(path: str | Path, size: int) -> bytes:
    """Returns the first bytes of a file; none where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(size)
    except OSError:
        return b""


def _without_log(path: Path) -> str:
    """Returns what a copy of a store in use may lack, where nothing is in a log beside it."""
    log = _logs_of(path)[0]
    if _size(log):
        return ""
    return (
        f". If it is a copy of a store in use, what is new stands in that store's log: copy {log.name} "
        "with it, or close the RagGuard first"
    )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _logs_of(path: Path) -> list[Path]:
    return [path.with_name(path.name + suffix) for suffix in _LOG_SUFFIXES]


_log = logger("ragguard")

_TURN, _LONG_TURN = 0.25, 2.0
"""Seconds that a reader waits for the connection where the file can be read without it, and where it cannot."""
_ASK_AGAIN = 0.001
"""The seconds between two attempts to begin a transaction while another process writes."""
_WRITE_BACK_PATIENCE = 0.25
"""The seconds that closing waits for a reader of an older state, to copy what is newer than that state as well."""
# Errors of the file or the disk, and not of the written data.
_FAULTS_OF_THE_DISK = frozenset((
    sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_PERM, sqlite3.SQLITE_NOLFS, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_AUTH,
))  # fmt: skip


class Database:
    """A file, or memory where `path` is None; opened when it is made, and raises StoreError where that fails."""

    def __init__(self, path: Path | None, *, full: bool = False, read_only: bool = False) -> None:
        self.path, self.closed, self.files_lost = path, False, 0
        self._full, self._read_only = full, read_only
        self._db: sqlite3.Connection | None = None
        self.lock = threading.RLock()
        """Held while the connection is used."""
        self._identity: Identity | None = None
        """The identity of the file that was opened last."""
        if path is not None:
            check_file(path, self.name, read_only=read_only)
        try:
            with self._translated("read" if read_only else "written"):
                self._db = self._open()
        except StoreUnavailable as error:
            raise StoreError(f"{error}; free the disk, or name another file") from error
        if path is not None:
            disconnect_before_forks(self)

    @property
    def name(self) -> str:
        """The name of the store in messages."""
        return "the store in memory" if self.path is None else f"the store {self.path}"

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Yields the connection for one change: all of it is durable when the block ends, nothing where it raises."""
        with self.lock, self._translated("written"), _within(self._connected(), "BEGIN IMMEDIATE") as db:
            yield db

    @contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """Yields a connection to one state of the data.

        While another thread holds the connection, such as a writer that waits for another process's lock, the file is
        read over a connection of its own. A database in memory cannot be read that way: a StoreError says after some
        time that it is busy.
        """
        if not self.lock.acquire(timeout=_TURN):
            if self.path is not None:
                with self._translated("read"), opened_to_read(self.path) as db, _within(db, "BEGIN"):
                    yield db
                return
            if not self.lock.acquire(timeout=_LONG_TURN):
                raise StoreError(f"{self.name} is busy: another thread has held it for {_LONG_TURN:g} s")
        try:
            with self._translated("read"), _within(self._connected(), "BEGIN") as db:
                yield db
        finally:
            self.lock.release()

    def wipe(self) -> bool:
        """Empties the log, in which deleted texts still stand; False where somebody else is reading it."""
        with self.lock, suppress(sqlite3.OperationalError):
            return not self._connected().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        return False

    def close(self) -> None:
        """Writes the log into the file and closes it. Safe to call twice."""
        with self.lock:
            self.closed = True
            if self._db is not None and self.path is not None and not self._read_only:
                _write_back(self._db)
            self.disconnect()
            if self.path is not None and self._read_only:
                remove_empty_log(self.path)

    def __del__(self) -> None:
        """Closes the connection of a store that nobody closed and nobody can reach any more."""
        if (connection := getattr(self, "_db", None)) is not None:
            connection.close()

    @contextmanager
    def _translated(self, done: str) -> Iterator[None]:
        """Turns errors of SQLite into a StoreError that says which store cannot be `done`."""
        try:
            yield
        except (
            sqlite3.Error,
            UnicodeDecodeError,
        ) as error:  # SQLite's message about damage may be unreadable
            damaged = is_damage(error)
            code = getattr(error, "sqlite_errorcode", -1) & 0xFF
            kind = StoreUnavailable if damaged or code in _FAULTS_OF_THE_DISK else StoreError
            advice = f"; {way_out(self.path)}" if damaged and self.path is not None else ""
            raise kind(f"{self.name} cannot be {done}: {error}{advice}") from error

    def _connected(self) -> sqlite3.Connection:
        """Returns the connection to the file that is at the path now, or to memory."""
        if self.closed:
            raise Closed(f"{self.name} is closed; make a new one")
        if self.path is not None and self._identity is not None:
            self._notice_another_file(self.path)
        if self._db is None:
            try:
                self._db = self._open()
            except StoreError as error:  # another program has put its file at the path
                raise StoreUnavailable(str(error)) from error
        return self._db

    def _open(self) -> sqlite3.Connection:
        if self.path is None:
            db = schema.connect(":memory:")
        elif self._read_only:
            db = open_to_read(self.path)
        else:
            create_file(self.path)
            db = schema.connect(str(self.path), full=self._full)
        try:
            if not self._read_only:
                schema.prepare(db, self.name)
            db.row_factory = sqlite3.Row
        except BaseException:
            db.close()
            raise
        if self.path is not None:
            self._identity = identity_of(self.path)
        return db

    def _notice_another_file(self, path: Path) -> None:
        """Gives up the connection where another file, or none, is at the path now; a new file is then begun."""
        there = identity_of(path)
        if there == self._identity:
            return
        if self._read_only:
            if there is not None:
                self.disconnect()
            return
        self.files_lost += 1
        self._identity = None
        _log.error(
            "the file of %s was moved, deleted or replaced while it was in use: a new one is begun. What was captured "
            "before, and what was not yet scored, is only in the old one, if that still exists",
            self.name,
        )
        if self._db is not None:
            with suppress(sqlite3.Error):  # all of the log belongs to the file that was moved
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            if there is not None:
                # Closing a connection removes the log at the path, which may be that of the file which is there now.
                keep_for_ever(self._db)
                self._db = None
        self.disconnect()

    def disconnect(self) -> None:
        """Closes the connection; the next use of a file opens it again. The lock is held."""
        if self._db is not None:
            self._db.close()
            self._db = None


@contextmanager
def _within(db: sqlite3.Connection, begin: str) -> Iterator[sqlite3.Connection]:
    """Begins a transaction and commits it, or rolls it back where the block raises."""
    _begin(db, begin)
    try:
        yield db
        db.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # some faults have rolled back already
            db.execute("ROLLBACK")
        raise


def _begin(db: sqlite3.Connection, begin: str) -> None:
    """Begins a transaction; asks again every millisecond while another process writes.

    SQLite itself asks ever more rarely, up to every 100 ms, so that of two busy processes one waits for long.
    """
    until = monotonic() + schema.PATIENCE
    db.execute("PRAGMA busy_timeout = 0")
    try:
        while True:
            try:
                db.execute(begin)
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or monotonic() > until:
                    raise
            sleep(_ASK_AGAIN)
    finally:
        db.execute(f"PRAGMA busy_timeout = {round(1000 * schema.PATIENCE)}")


def _write_back(db: sqlite3.Connection) -> None:
    """Copies the log into the file and empties it, as far as other connections let it within a moment.

    SQLite does that by itself only when the last connection of all processes is closed, and that one may be a reader,
    which cannot write: a copy of the file alone would then lack what is in the log.
    """
    with suppress(sqlite3.Error):  # what is not copied stays in the log, and the next process reads it there
        db.execute(f"PRAGMA busy_timeout = {round(1000 * _WRITE_BACK_PATIENCE)}")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

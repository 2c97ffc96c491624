"""One SQLite connection behind one lock: transactions, a failing disk, and forks.

A disk that fails is replaced by memory, with one loud warning, until it works again. A connection
must not cross a fork, so it is closed before one and opened again when it is next needed.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from ragguard.errors import Closed, SchemaMismatch, StoreError
from ragguard.secrets import logger
from ragguard.store import schema

T = TypeVar("T")

_log = logger("ragguard")

_FORK_WAIT = 5.0
# What says that the place is at fault and not what was written: another place may do.
_FAULTS_OF_THE_PLACE = frozenset((
    sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_PERM, sqlite3.SQLITE_NOLFS, sqlite3.SQLITE_PROTOCOL,
))  # fmt: skip


class Database:
    """A file, or memory where `path` is None; opened when it is first needed."""

    def __init__(
        self,
        path: Path | None,
        *,
        full: bool = False,
        read_only: bool = False,
        opened: Callable[[sqlite3.Connection], None],
        to_memory: Callable[[sqlite3.Connection | None, sqlite3.Connection], None],
        to_disk: Callable[[sqlite3.Connection, sqlite3.Connection], None],
        forked: Callable[[], None],
    ) -> None:
        """`opened` runs in the first transaction of a connection; `forked` runs in a child process.

        `to_memory` copies from the file what is under way, `to_disk` copies back what memory holds; both get source
        and target (no source where the file could not be opened). A copy that fails is rolled back; `to_disk` is
        tried again.
        """
        self.path, self.degraded = path, False
        self._full, self._read_only = full, read_only
        self._opened, self._forked = opened, forked
        self._to_memory, self._to_disk = to_memory, to_disk
        self._db: sqlite3.Connection | None = None
        self.lock = threading.RLock()
        self._held = False
        self.closed = False
        if path is not None:
            self._check(path)
        _databases.add(self)

    @property
    def name(self) -> str:
        """For messages."""
        return "the store in memory" if self.path is None else f"the store {self.path}"

    @property
    def in_memory(self) -> bool:
        """True where nothing reaches a disk."""
        return self.path is None or self.degraded

    def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Runs `work` on one state of the data."""
        return self._run(work, "BEGIN")

    def change(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Runs `work` in a transaction: all of it or nothing, durable when this returns."""
        return self._run(work, "BEGIN IMMEDIATE")

    def wipe(self) -> None:
        """What was deleted stands in the log until the log is folded in and cut."""
        with self.lock, suppress(sqlite3.OperationalError):
            self._connected().execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def recover(self, patience: float = schema.PATIENCE) -> bool:
        """Copies what memory holds to the file, if that can be written again, and goes on there; True where it did."""
        with self.lock:
            if not self.degraded or self._db is None:
                return False
            memory = self._db
            try:
                disk = self._open(self.path, patience)
            except (sqlite3.Error, StoreError):
                return False
            try:
                self._transact(disk, lambda db: self._to_disk(memory, db), "BEGIN IMMEDIATE")
            except BaseException as error:
                disk.close()
                if isinstance(error, sqlite3.Error):
                    return False
                raise
            self._db, self.degraded = disk, False
            memory.close()
        _log.warning("%s works again; what was kept in memory is written to it", self.name)
        return True

    def close(self) -> None:
        """Lets the file go. Safe to call twice."""
        with self.lock:
            self.closed = True
            if self._db is not None:
                self._db.close()
                self._db = None

    def __del__(self) -> None:
        """Closes the connection of a store that nobody closed and nobody can reach any more."""
        if (connection := getattr(self, "_db", None)) is not None:
            connection.close()

    # Inside

    def _run(self, work: Callable[[sqlite3.Connection], T], begin: str) -> T:
        with self.lock:
            try:
                return self._transact(self._connected(), work, begin)
            except sqlite3.Error as error:
                may_move = begin == "BEGIN IMMEDIATE" or self._db is None
                if self.in_memory or self._read_only or not may_move or not _is_fault_of_the_place(error):
                    raise StoreError(f"{self.name} failed: {error}") from error
                self._degrade(error)
                return self._transact(self._connected(), work, begin)

    @staticmethod
    def _transact(db: sqlite3.Connection, work: Callable[[sqlite3.Connection], T], begin: str) -> T:
        db.execute(begin)
        try:
            result = work(db)
            db.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.OperationalError):  # some faults have rolled back already
                db.execute("ROLLBACK")
            raise
        return result

    def _connected(self) -> sqlite3.Connection:
        if self.closed:
            raise Closed(f"{self.name} is closed; make a new one")
        if self._db is None:
            self._db = self._open(None if self.degraded else self.path)
        return self._db

    def _open(self, path: Path | None, patience: float = schema.PATIENCE) -> sqlite3.Connection:
        if self._read_only and path is not None:
            db = _open_to_read(path)
            db.row_factory = sqlite3.Row
            return db
        db = schema.connect(":memory:" if path is None else str(path), full=self._full, patience=patience)
        try:
            schema.prepare(db, self.name)
            db.row_factory = sqlite3.Row
            self._transact(db, self._opened, "BEGIN IMMEDIATE")
        except BaseException:
            db.close()
            raise
        return db

    def _degrade(self, error: sqlite3.Error) -> None:
        """Goes on in memory with what is under way."""
        _log.error(
            "%s cannot be written (%s): going on IN MEMORY, bounded, and what is captured now is lost if this "
            "process ends. Free the disk or name another file; it is tried again every few seconds",
            self.name,
            error,
        )
        disk, self._db, self.degraded = self._db, None, True
        memory = self._connected()
        try:
            self._transact(memory, lambda db: self._to_memory(disk, db), "BEGIN IMMEDIATE")
        except Exception as unread:  # noqa: BLE001 - whatever cannot be read stays in the file
            _log.error("runs that were under way stay in %s until it works again: %s", self.name, unread)
        finally:
            if disk is not None:
                disk.close()

    def _check(self, path: Path) -> None:
        """What cannot be right is said at once; a disk that cannot be written is met when it is written."""
        if not path.parent.is_dir():
            raise StoreError(
                f"there is no folder {path.parent} for {self.name}; make it, or name another file"
            )
        if path.is_dir():
            raise StoreError(f"{self.name} is a folder; name a file in it")
        if not path.exists():
            if self._read_only:
                raise StoreError(f"{self.name} does not exist; check the path")
            return
        try:
            db = _open_to_read(path)
        except sqlite3.OperationalError:
            return
        try:
            found = schema.check(db, self.name)
            if self._read_only and not found:
                raise StoreError(f"{self.name} is an empty file; capture some runs into it, or name another")
            if self._read_only and found < schema.VERSION:
                raise SchemaMismatch(
                    f"{self.name} was written by an older ragguard (schema {found}; this one knows "
                    f"{schema.VERSION}); `RagGuard(store=…)` brings it up to date when it opens it"
                )
        except sqlite3.OperationalError:
            return
        except sqlite3.DatabaseError as error:
            raise StoreError(f"{self.name} is no SQLite file ({error}); name another file") from error
        finally:
            db.close()

    # Forks

    def _before_fork(self) -> None:
        self._held = self.lock.acquire(timeout=_FORK_WAIT)
        if self._held and self._db is not None and not self.in_memory:
            self._db.close()
            self._db = None

    def _after_in_parent(self) -> None:
        if self._held:
            self.lock.release()

    def _after_in_child(self) -> None:
        if self._db is not None:
            keep_for_ever(self._db)
        self._db, self.lock, self.degraded = None, threading.RLock(), False
        self._forked()


def _open_to_read(path: Path) -> sqlite3.Connection:
    """A connection that writes nothing, also where not even the log's index can be written."""
    location = path.absolute().as_uri()
    db = sqlite3.connect(
        f"{location}?mode=ro",
        uri=True,
        timeout=schema.PATIENCE,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        db.close()
        db = sqlite3.connect(
            f"{location}?immutable=1", uri=True, isolation_level=None, check_same_thread=False
        )
    except sqlite3.DatabaseError:
        return db  # not SQLite: whoever reads next says so
    return db


def keep_for_ever(connection: sqlite3.Connection) -> None:
    """Keeps a connection that must not be closed, not even by the garbage collector or at the end of the process.

    Closing one that came across a fork could break the locks of the parent process.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


def _is_fault_of_the_place(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", -1) & 0xFF in _FAULTS_OF_THE_PLACE


_databases: weakref.WeakSet[Database] = weakref.WeakSet()


def _for_all(step: Callable[[Database], None]) -> Callable[[], None]:
    def run() -> None:
        for database in list(_databases):
            step(database)

    return run


os.register_at_fork(
    before=_for_all(Database._before_fork),
    after_in_parent=_for_all(Database._after_in_parent),
    after_in_child=_for_all(Database._after_in_child),
)

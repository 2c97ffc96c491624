"""A database: one SQLite connection behind one lock, with transactions, and with care for failing disks and forks.

A disk that fails is replaced by memory, with one loud warning, until it works again. A connection
must not cross a fork, so it is closed before one and opened again when it is next needed.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol, TypeVar

from ragguard.errors import Closed, StoreError
from ragguard.runtime.fork import FORK_WAIT, at_fork, keep_for_ever
from ragguard.storage.sqlite import files, schema
from ragguard.text.secret_filter import logger

T = TypeVar("T")

_log = logger("ragguard")

_TURN, _LONG_TURN = 0.25, 2.0
"""Seconds that a reader waits for the connection where the file can be read without it, and where it cannot."""
_WRITE_BACK_PATIENCE = 0.25
"""The seconds that closing waits for a reader of an older state, to copy what is newer than that state as well."""
# Errors of the file or the disk, and not of the written data: memory or another file may accept the data.
_FAULTS_OF_THE_DISK = frozenset((
    sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_PERM, sqlite3.SQLITE_NOLFS, sqlite3.SQLITE_PROTOCOL,
))  # fmt: skip


class DatabaseOwner(Protocol):
    """The part of a store that its database calls. A copy that raises is rolled back; `to_disk` is tried again."""

    def opened(self, db: sqlite3.Connection, /) -> None:
        """Prepares the store, in the first transaction of a connection."""

    def to_memory(self, disk: sqlite3.Connection | None, memory: sqlite3.Connection, /) -> None:
        """Copies the runs with work left from the file to memory; `disk` is None where the file could not be opened."""

    def to_disk(self, memory: sqlite3.Connection, disk: sqlite3.Connection, /) -> Sequence[str]:
        """Copies the runs from memory back to the file; returns why runs could not be copied, one text a run."""

    def count(self, name: str, by: int = 1, /) -> None:
        """Adds to a counter."""

    def forked(self) -> None:
        """Forgets the state of the parent process, in a forked child."""


class Database:
    """A file, or memory where `path` is None; opened when it is first needed."""

    def __init__(
        self, path: Path | None, owner: DatabaseOwner, *, full: bool = False, read_only: bool = False
    ) -> None:
        self.path, self.degraded = path, False
        self._owner, self._full, self._read_only = owner, full, read_only
        self._db: sqlite3.Connection | None = None
        self.lock = threading.RLock()
        self._held = False
        self.closed = False
        self._identity: files.Identity | None = None
        """The identity of the file that is open, or was open last."""
        if path is not None:
            damage = files.check(path, self.name, read_only=read_only)
            if damage is not None:
                self._identity = files.identity_of(path)
                self._move_aside(path, damage)
        at_fork(before=self._before_fork, in_parent=self._after_in_parent, in_child=self._after_in_child)

    @property
    def name(self) -> str:
        """The name of the store in messages."""
        return "the store in memory" if self.path is None else f"the store {self.path}"

    @property
    def in_memory(self) -> bool:
        """True where nothing reaches a disk."""
        return self.path is None or self.degraded

    def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Runs `work` on one state of the data.

        While another thread holds the connection, such as a writer that waits for another process's lock, the file is
        read over a connection of its own. A database in memory cannot be read that way: a StoreError says after some
        time that it is busy.
        """
        if not self.lock.acquire(timeout=_TURN):
            # A file that is being opened for the first time may have no tables yet.
            if self.path is not None and not self.degraded and self._db is not None:
                return self._read_apart(self.path, work)
            if not self.lock.acquire(timeout=_LONG_TURN):
                raise StoreError(f"{self.name} is busy: another thread has held it for {_LONG_TURN:g} s")
        try:
            return self._run(work, "BEGIN")
        finally:
            self.lock.release()

    def change(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Runs `work` in a transaction: all of it or nothing, durable when this returns."""
        return self._run(work, "BEGIN IMMEDIATE")

    def wipe(self) -> bool:
        """Empties the log, in which deleted texts still stand; False where somebody else is reading it."""
        with self.lock:
            try:
                busy = self._connected().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            except sqlite3.OperationalError:
                return False
        return not busy

    def recover(self, patience: float) -> None:
        """Copies what memory holds to the file and goes on there, if it can be written within so many seconds."""
        with self.lock:
            recovered = self._copy_back(patience)
        if recovered:
            _log.warning("%s works again; what was kept in memory is written to it", self.name)

    def close(self) -> None:
        """Writes the log into the file and closes it. Safe to call twice."""
        with self.lock:
            self.closed = True
            if self._db is not None:
                if not self.in_memory and not self._read_only:
                    _write_back(self._db)
                self._db.close()
                self._db = None

    def __del__(self) -> None:
        """Closes the connection of a store that nobody closed and nobody can reach any more."""
        if (connection := getattr(self, "_db", None)) is not None:
            connection.close()

    def _run(self, work: Callable[[sqlite3.Connection], T], begin: str) -> T:
        with self.lock:
            self._notice_another_file()
            try:
                return self._transact(self._connected(), work, begin)
            except StoreError as error:
                if self._db is not None or self.in_memory or self._read_only:
                    raise
                self._degrade(error)  # another program has put its file at the path
                return self._transact(self._connected(), work, begin)
            except (sqlite3.Error, UnicodeDecodeError) as error:
                damaged = files.is_damage(error) and (self._db is not None or self._is_ours())
                may_leave = damaged or begin == "BEGIN IMMEDIATE" or self._db is None
                if self.in_memory or self._read_only or not may_leave or not _is_fault_of_the_disk(error):
                    raise StoreError(f"{self.name} failed: {error}") from error
                if damaged:
                    self._replace_damaged(error)
                else:
                    self._degrade(error)
                return self._transact(self._connected(), work, begin)

    @staticmethod
    def _transact(db: sqlite3.Connection, work: Callable[[sqlite3.Connection], T], begin: str) -> T:
        db.execute(begin)
        try:
            result = work(db)
            db.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # some faults have rolled back already
                db.execute("ROLLBACK")
            raise
        return result

    def _connected(self) -> sqlite3.Connection:
        if self.closed:
            raise Closed(f"{self.name} is closed; make a new one")
        if self._db is None:
            self._db = self._open(None if self.degraded else self.path)
        return self._db

    def _open(self, path: Path | None, patience: float | None = None) -> sqlite3.Connection:
        if self._read_only and path is not None:
            db = files.open_to_read(path)
            db.row_factory = sqlite3.Row
            self._identity = files.identity_of(path)
            return db
        if path is not None:
            files.create(path)
            self._identity = files.identity_of(path)
        db = schema.connect(":memory:" if path is None else str(path), full=self._full, patience=patience)
        try:
            schema.prepare(db, self.name)
            db.row_factory = sqlite3.Row
            self._transact(db, self._owner.opened, "BEGIN IMMEDIATE")
        except BaseException:
            db.close()
            raise
        return db

    def _read_apart(self, path: Path, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            db = files.open_to_read(path)
            try:
                db.row_factory = sqlite3.Row
                return self._transact(db, work, "BEGIN")
            finally:
                db.close()
        except sqlite3.Error as error:
            raise StoreError(f"{self.name} failed: {error}") from error

    def _is_ours(self) -> bool:
        """Returns whether the file that SQLite cannot open is a store; a file of another program is left alone."""
        return self.path is not None and files.has_our_mark(self.path)

    def _degrade(self, error: Exception) -> None:
        """Replaces the file by memory, which gets the runs with work left."""
        _log.error(
            "%s cannot be written (%s): going on IN MEMORY, bounded, and what is captured now is lost if this "
            "process ends. Free the disk or name another file; it is tried again every few seconds",
            self.name,
            error,
        )
        self._go_to_memory()

    def _replace_damaged(self, error: Exception) -> None:
        """Moves a damaged file aside and opens a new one, which gets the runs with work left."""
        self._go_to_memory()
        assert self.path is not None
        self._move_aside(self.path, error)
        self._go_to_new_file()

    def _move_aside(self, path: Path, error: Exception) -> None:
        damaged, self._identity = self._identity, None
        try:
            aside = files.move_aside(path, damaged)
        except OSError as unmoved:
            _log.error("%s is damaged (%s) and cannot be moved: %s", self.name, error, unmoved)
            return
        self._owner.count("files_lost", 1)
        _log.error(
            "%s is damaged (%s): it was moved to %s, and a new file is begun with what is under way; "
            "`sqlite3 THE_MOVED_FILE .recover` saves what else can be read",
            self.name, error, aside or "another name by another process",
        )  # fmt: skip

    def _notice_another_file(self) -> None:
        """Opens the file that is now at the path, if another one was opened before; copies the runs with work left."""
        if self.path is None or self.degraded or self._identity is None or self.closed:
            return
        there = files.identity_of(self.path)
        if there == self._identity:
            return
        if self._read_only:
            if there is not None and self._db is not None:
                self._db.close()
                self._db = None
            return
        left_behind = 0
        if self._db is not None:
            with suppress(sqlite3.Error):
                left_behind = self._db.execute("SELECT count(*) FROM runs WHERE owner IS NULL").fetchone()[0]
                # All of it belongs to the file that was moved.
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._owner.count("files_lost", 1)
        self._owner.count("runs_lost", left_behind)
        _log.error(
            "the file of %s was moved, deleted or replaced while it was in use: what is under way goes on in a new "
            "one; %d runs that were done are only in the old one, if that still exists",
            self.name, left_behind,
        )  # fmt: skip
        self._identity = None
        # Closing a connection removes the log at the path, which may be that of the file which is there now.
        self._go_to_memory(close=there is None)
        self._go_to_new_file()

    def _go_to_new_file(self) -> None:
        if not self._copy_back():
            _log.error(
                "%s cannot be made again: going on IN MEMORY; it is tried every few seconds", self.name
            )

    def _go_to_memory(self, *, close: bool = True) -> None:
        disk, self._db, self.degraded = self._db, None, True
        self._owner.count("degraded", 1)
        memory = self._connected()
        try:
            self._transact(memory, lambda db: self._owner.to_memory(disk, db), "BEGIN IMMEDIATE")
        except Exception as unread:  # noqa: BLE001 - whatever cannot be read stays in the file
            _log.error("runs that were under way stay in %s until it works again: %s", self.name, unread)
        finally:
            if disk is not None and close:
                disk.close()
            elif disk is not None:
                keep_for_ever(disk)

    def _copy_back(self, patience: float | None = None, *, may_move: bool = True) -> bool:
        if not self.degraded or self._db is None or self.path is None:
            return False
        memory = self._db
        try:
            disk = self._open(self.path, patience)
        except StoreError:
            return False
        except (sqlite3.Error, UnicodeDecodeError) as error:
            if may_move and files.is_damage(error) and self._is_ours():
                self._move_aside(self.path, error)
                return self._copy_back(patience, may_move=False)
            return False
        try:
            failed = self._transact(disk, lambda db: self._owner.to_disk(memory, db), "BEGIN IMMEDIATE")
        except BaseException as error:
            disk.close()
            if isinstance(error, sqlite3.Error):
                return False
            raise
        self._db, self.degraded = disk, False
        memory.close()
        self._owner.count("recovered", 1)
        if failed:
            self._owner.count("runs_lost", len(failed))
            _log.error(
                "%d runs could not be copied from memory to %s and are lost; the first: %s",
                len(failed), self.name, failed[0],
            )  # fmt: skip
        return True

    def _before_fork(self) -> None:
        self._held = self.lock.acquire(timeout=FORK_WAIT)
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
        self._owner.forked()


def _write_back(db: sqlite3.Connection) -> None:
    """Copies the log into the file and empties it, as far as other connections let it within a moment.

    SQLite does that by itself only when the last connection of all processes is closed, and that one may be a reader,
    which cannot write: a copy of the file alone would then lack what is in the log.
    """
    with suppress(sqlite3.Error):  # what is not copied stays in the log, and the next process reads it there
        db.execute(f"PRAGMA busy_timeout = {round(1000 * _WRITE_BACK_PATIENCE)}")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()


def _is_fault_of_the_disk(error: Exception) -> bool:
    return (
        isinstance(error, UnicodeDecodeError)
        or getattr(error, "sqlite_errorcode", -1) & 0xFF in _FAULTS_OF_THE_DISK
    )

"""The files of a store: checks whether one may be opened, whether it is still the same, and moves a damaged one aside.

SQLite keeps three: the database, its log (`-wal`) and the index of the log (`-shm`). A process must not open and close
the database beside SQLite, since that drops SQLite's locks.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeAlias

from ragguard.errors import SchemaMismatch, StoreError
from ragguard.storage.sqlite import schema

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


def create(path: Path) -> None:
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


def move_aside(path: Path, identity: Identity | None) -> Path | None:
    """Renames a damaged file with its log; None where another process has done that already."""
    if identity is None or identity_of(path) != identity:
        return None
    aside = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")
    for name, target in zip(_logs_of(path), _logs_of(aside), strict=True):
        with suppress(FileNotFoundError):
            name.rename(target)
    path.rename(aside)
    return aside


def check(path: Path, name: str, *, read_only: bool) -> Exception | None:
    """Raises StoreError for a file that cannot be used as a store; returns the damage of a store that may be moved
    aside.

    A file that cannot be read now raises when it is written.
    """
    if not path.parent.is_dir():
        raise StoreError(f"there is no folder {path.parent} for {name}; make it, or name another file")
    if path.is_dir():
        raise StoreError(f"{name} is a folder; name a file in it")
    if path.exists() and not path.is_file():  # opening a pipe would wait for its other end
        raise StoreError(f"{name} is a pipe, a socket or a device; name a regular file")
    if not path.exists():
        if read_only:
            raise StoreError(f"{name} does not exist; check the path")
        return None
    try:
        db = open_to_read(path)
    except sqlite3.OperationalError:
        return None
    try:
        found = schema.check(db, name)
    except sqlite3.OperationalError:
        return None
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        if not has_our_mark(path):
            raise StoreError(f"{name} is no SQLite file ({error}); name another file") from error
        if read_only:
            raise StoreError(
                f"{name} is damaged ({error}); `sqlite3 {path} .recover` saves what can be read"
            ) from error
        return error
    finally:
        db.close()
    if read_only and not found:
        raise StoreError(
            f"{name} is an empty file; capture some runs into it, or name another{_without_log(path)}"
        )
    if read_only and found < schema.VERSION:
        raise SchemaMismatch(
            f"{name} was written by an older ragguard (schema {found}; this one knows "
            f"{schema.VERSION}); `RagGuard(store=…)` brings it up to date when it opens it"
        )
    return None


def open_to_read(path: Path) -> sqlite3.Connection:
    """Returns a connection that writes nothing, also where not even the log's index can be written.

    There, a log is read over an index in memory. That needs a connection without locks, which only Unix has; it is
    taken where there is something in the log.
    """
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
            with suppress(sqlite3.OperationalError):
                return _with_own_index(connect(f"{location}?mode=ro&vfs=unix-none"))
        return connect(f"{location}?immutable=1")
    except (sqlite3.DatabaseError, UnicodeDecodeError):
        return db  # no SQLite file: the next read raises
    return db


def _with_own_index(db: sqlite3.Connection) -> sqlite3.Connection:
    """Has a connection keep the index of the log in memory; raises where it cannot read the file that way."""
    try:
        db.execute("PRAGMA locking_mode = EXCLUSIVE").fetchone()
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        db.close()
        raise
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


def has_our_mark(path: Path) -> bool:
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

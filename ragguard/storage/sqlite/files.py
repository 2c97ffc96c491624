"""The files of a store: checks whether one may be opened, and opens one to read it.

SQLite keeps three: the database, its log (`-wal`) and the index of the log (`-shm`). A process must not open and close
the database beside SQLite, since that drops SQLite's locks.
"""

from __future__ import annotations

import os
import shlex
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeAlias

from ragguard.errors import StoreError
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


def check(path: Path, name: str, *, read_only: bool) -> None:
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

"""The tables of a store and their version, and the values of columns: texts that UTF-8 can hold, and JSON of any value.

A file of another version is left alone.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from functools import cache
from json.encoder import encode_basestring_ascii
from typing import Any, Final, TypeAlias

from ragguard.errors import SchemaMismatch, StoreError
from ragguard.text.plain import plain, without_surrogates

VERSION = 4
APPLICATION_ID = 0x52474431
"""Marks a file as a store of ragguard; `file` and SQLite's own tools show the mark."""

# Texts of passages are kept once, under the digest of their content; `passage_uses` counts who
# needs one beyond the first, in a table of its own, since counting beside the text would rewrite the
# text, and most texts of a corpus that is not asked twice need no row there.
# A run belongs to the process in `owner` until nothing is left to do for it:
#   owner, no due_ns          it is still open
#   owner, due_ns             it is to be scored at that instant
#   owner, emit_after         scores with a larger seq have still to reach the sinks
#   no owner                  nothing is left to do
TABLES = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    """CREATE TABLE runs (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        name TEXT NOT NULL,
        question TEXT NOT NULL,
        answer TEXT,
        status TEXT NOT NULL,
        started_ns INTEGER NOT NULL,
        ended_ns INTEGER NOT NULL,
        body TEXT NOT NULL,
        revision INTEGER NOT NULL DEFAULT 1,
        owner TEXT,
        due_ns INTEGER,
        queued_ns INTEGER,
        emit_after INTEGER,
        attempts INTEGER NOT NULL DEFAULT 0
    )""",
    # What a run is called beside its id: by the id that the application gave it ('caller'), by the thread that it waits
    # for ('thread'), and by the id of a later part that goes on with it ('part', with what stood before that part).
    """CREATE TABLE names (
        name TEXT NOT NULL,
        kind TEXT NOT NULL,
        run INTEGER NOT NULL,
        part INTEGER NOT NULL DEFAULT 0,
        steps INTEGER NOT NULL DEFAULT 0,
        turns INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (name, kind, run)
    ) WITHOUT ROWID""",
    "CREATE INDEX names_of_run ON names (run)",
    "CREATE INDEX runs_live ON runs (owner, due_ns) WHERE owner IS NOT NULL",
    "CREATE INDEX runs_ended ON runs (ended_ns)",
    """CREATE TABLE steps (
        seq INTEGER PRIMARY KEY,
        run INTEGER NOT NULL,
        id TEXT NOT NULL,
        idx INTEGER NOT NULL,
        turn INTEGER NOT NULL,
        query TEXT NOT NULL,
        status TEXT NOT NULL,
        tool TEXT NOT NULL,
        started_ns INTEGER NOT NULL,
        ended_ns INTEGER NOT NULL,
        body TEXT NOT NULL,
        k INTEGER,
        UNIQUE (run, id)
    )""",
    "CREATE TABLE passages (digest BLOB PRIMARY KEY, text TEXT NOT NULL)",
    "CREATE TABLE passage_uses (digest BLOB PRIMARY KEY, uses INTEGER NOT NULL) WITHOUT ROWID",
    """CREATE TABLE origins (
        id INTEGER PRIMARY KEY,
        scorer TEXT NOT NULL,
        version TEXT NOT NULL,
        engine TEXT NOT NULL,
        prompts TEXT NOT NULL,
        references_hash TEXT NOT NULL,
        reference_source TEXT NOT NULL,
        UNIQUE (scorer, version, engine, prompts, references_hash, reference_source)
    )""",
    """CREATE TABLE scores (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        run INTEGER NOT NULL,
        key BLOB NOT NULL UNIQUE,
        name TEXT NOT NULL,
        value REAL NOT NULL,
        level TEXT NOT NULL,
        step_id TEXT NOT NULL,
        passage_id TEXT NOT NULL,
        position INTEGER,
        stage TEXT NOT NULL,
        sub_question INTEGER,
        stderr REAL,
        expectation REAL,
        label TEXT NOT NULL,
        explanation TEXT NOT NULL,
        origin INTEGER NOT NULL,
        usage TEXT NOT NULL,
        metadata TEXT NOT NULL
    )""",
    "CREATE INDEX scores_of_run ON scores (run)",
    """CREATE TABLE failures (
        seq INTEGER PRIMARY KEY,
        run INTEGER NOT NULL,
        identity TEXT NOT NULL,
        step_id TEXT NOT NULL,
        scorer TEXT NOT NULL,
        error TEXT NOT NULL,
        message TEXT NOT NULL,
        will_retry INTEGER NOT NULL,
        attempts INTEGER NOT NULL,
        occurred_ns INTEGER NOT NULL
    )""",
    "CREATE INDEX failures_of_run ON failures (run)",
    # Which settings have said all they can about which revision of a run.
    """CREATE TABLE scorings (
        run INTEGER NOT NULL,
        identity TEXT NOT NULL,
        revision INTEGER NOT NULL,
        finished INTEGER NOT NULL,
        PRIMARY KEY (run, identity)
    ) WITHOUT ROWID""",
    """CREATE TABLE leases (
        owner TEXT PRIMARY KEY,
        place TEXT NOT NULL,
        pid INTEGER NOT NULL,
        born TEXT NOT NULL,
        expires_ns INTEGER NOT NULL
    ) WITHOUT ROWID""",
)

PAGE_BYTES = 16_384
"""The page size of a new file: large, since most of what is written are texts of one to four kilobytes."""
_STATEMENTS = 512
"""The most compiled statements that a connection keeps: one that writes texts has a form for each number of rows."""
PATIENCE = 10.0
"""The most seconds that a connection waits for another process that holds the file."""


def connect(path: str, *, full: bool = False, patience: float | None = None) -> sqlite3.Connection:
    """Returns a connection with the settings of a store; `full` waits for the disk at every commit."""
    timeout = PATIENCE if patience is None else patience
    connection = sqlite3.connect(
        path, timeout=timeout, isolation_level=None, check_same_thread=False, cached_statements=_STATEMENTS
    )
    try:
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        # A batch of large steps in memory until its commit, and the upper floors of the indexes from one to the next.
        connection.execute("PRAGMA cache_size = -16384")
        connection.execute("PRAGMA secure_delete = ON")  # deleted data is overwritten in the file
        connection.execute(f"PRAGMA synchronous = {'FULL' if full else 'NORMAL'}")
    except BaseException:
        connection.close()
        raise
    return connection


def version_of(connection: sqlite3.Connection) -> int:
    """Returns the schema version of a file; 0 for an empty one."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def prepare(connection: sqlite3.Connection, path: str) -> None:
    """Makes the tables in an empty file, in one transaction; refuses a file that is no store of this version."""
    if check(connection, path):
        return
    _write_ahead(connection)
    connection.execute("BEGIN IMMEDIATE")
    try:
        if not version_of(connection):  # else another process has made them meanwhile
            for statement in TABLES:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        # A disk that failed has rolled back already; its error is the one to report.
        with suppress(sqlite3.OperationalError):
            connection.execute("ROLLBACK")
        raise


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Turns the write-ahead log on. A file system that cannot do that keeps its rollback journal.

    For this statement SQLite itself does not wait until another process, which makes the same file at this
    moment, is done.
    """
    until = time.monotonic() + PATIENCE
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.01)


def check(connection: sqlite3.Connection, path: str) -> bool:
    """Returns whether a file has the tables, False for an empty one; refuses a file of another program or version."""
    # Another process may be making the file: everything is read in one transaction.
    connection.execute("BEGIN")
    try:
        found = version_of(connection)
        owner = int(connection.execute("PRAGMA application_id").fetchone()[0])
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    finally:
        with suppress(sqlite3.OperationalError):  # some faults have rolled back already
            connection.execute("ROLLBACK")
    if found > VERSION:
        raise SchemaMismatch(
            f"{path} was written by a newer ragguard (schema {found}; this one knows {VERSION}). "
            "Upgrade ragguard, or name another file"
        )
    if tables and owner != APPLICATION_ID:
        raise StoreError(f"{path} is an SQLite file of another program; name another file for the store")
    if found == VERSION or not (found or tables):
        return bool(found)
    if _tables(connection) == _expected():
        raise StoreError(
            f"{path} has the tables of schema {VERSION} and says that it has schema {found}; if you did not copy it "
            f"together from others, `PRAGMA user_version = {VERSION}` in SQLite's own shell mends it"
        )
    raise SchemaMismatch(
        f"{path} was written by an older ragguard (schema {found}; this one knows {VERSION} alone). Read it with that "
        "version, or name another file"
    )


def check_tables(connection: sqlite3.Connection, path: str) -> None:
    """Raises StoreError where a file of the present version lacks a column or an index, or has a trigger; raises
    sqlite3.DatabaseError where its schema or its list of free pages is damaged."""
    found, expected = _tables(connection), _expected()
    wrong = sorted(name for name in expected if found.get(name) != expected[name])
    triggers = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")]
    if wrong or triggers:
        raise StoreError(
            f"{path} has not the tables of schema {VERSION}: {', '.join(wrong + triggers)} "
            f"{'are' if len(wrong + triggers) > 1 else 'is'} not as ragguard made it. Restore the file from a copy, "
            "drop triggers of your own, or name another file"
        )
    # Of one table this checks no content: it takes a millisecond, however large the file is.
    said = connection.execute("PRAGMA quick_check('sqlite_master')").fetchone()[0]
    if said != "ok":
        raise sqlite3.DatabaseError(said)


def _tables(connection: sqlite3.Connection) -> dict[str, list[tuple[Any, ...]]]:
    """Returns the columns of each table and index: name, type, whether it may be null, place in the primary key."""
    names = [
        (row[0], "index_info" if row[1] == "index" else "table_info")
        for row in connection.execute("SELECT name, type FROM sqlite_master WHERE type IN ('table', 'index')")
    ]
    return {
        name: [tuple(row) for row in connection.execute(f"SELECT * FROM pragma_{info}(?)", (name,))]
        for name, info in names
    }


@cache
def _expected() -> dict[str, list[tuple[Any, ...]]]:
    """Returns the columns of the tables and indexes of a new file."""
    with closing(sqlite3.connect(":memory:")) as fresh:
        for statement in TABLES:
            fresh.execute(statement)
        return _tables(fresh)


DIGEST_BYTES: Final = 16

Data: TypeAlias = dict[str, Any]
"""The values of a row that have no column of their own; they stand in its column `body` as JSON."""


def _encoder() -> Callable[[object], str]:
    """Returns Python's JSON encoder in C, made once; `JSONEncoder.encode` makes one for each value."""
    made = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False)
    in_c: Any = getattr(json.encoder, "c_make_encoder", None)
    if in_c is None:
        return made.encode
    encode = in_c(None, made.default, encode_basestring_ascii, None, ":", ",", False, False, False)
    return lambda value: "".join(encode(value, 0))


_encode = _encoder()


def dump(value: object) -> str:
    """Returns JSON of any value: what JSON does not know is written as its text, a NaN as null."""
    try:
        return _encode(value)
    except (TypeError, ValueError, RecursionError):
        return _encode(plain(value))


def storable(value: object) -> str:
    """Returns a text without halves of surrogate pairs, which UTF-8 cannot hold; for a number (an id) its digits."""
    return without_surrogates(value if isinstance(value, str) else str(value))


def maybe(text: str | None) -> str | None:
    """Returns a text as `storable` does, and None for None."""
    return None if text is None else storable(text)

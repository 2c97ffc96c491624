"""The tables of a store and their version, and the values of columns: texts that UTF-8 can hold, and JSON of any value.

A file of schema 4 is read as it is, and becomes one of this schema when it is opened to be written: only what stands in
bodies differs, and both forms are read. A file of any other version is left alone.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from json.encoder import encode_basestring_ascii
from pathlib import Path
from typing import Any, Final, TypeAlias

from ragguard.errors import SchemaMismatch, StoreError
from ragguard.text.plain import plain, without_surrogates

VERSION = 5
_READ = (4, VERSION)
"""The versions that are read."""
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
# `born` in `leases` is empty; while the engine of the process does not answer, the JSON list of the runs that it tries.
CAUSES = """CREATE TABLE IF NOT EXISTS causes (
        run INTEGER PRIMARY KEY,
        scored INTEGER NOT NULL,
        cause TEXT NOT NULL,
        documents TEXT NOT NULL,
        retrievers TEXT NOT NULL
    )"""
"""The cause of each run, by its scores up to the `seq` in `scored`; it is found again if others have come since. An
older file has no such table until it is opened to be written."""
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
    # The names of runs beside their ids; `run_names.py` describes them. For an invocation that resumed a run: its
    # number, and how many steps and turns the run had before it.
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
    # One row for each run and each set of settings (engines, prompts, scorers: `identity`) that scored the run: which
    # revision of the run that was, and whether asking again could give more scores.
    """CREATE TABLE scorings (
        run INTEGER NOT NULL,
        identity TEXT NOT NULL,
        revision INTEGER NOT NULL,
        finished INTEGER NOT NULL,
        PRIMARY KEY (run, identity)
    ) WITHOUT ROWID""",
    CAUSES,
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


def connect(path: Path | None, *, full: bool = False, read_only: bool = False) -> sqlite3.Connection:
    """Returns a connection with the settings of a store, to memory where `path` is None; `full` waits for the disk at
    every commit.

    One that is `read_only` changes no data. It may write to the log's index, and as the last one it removes an empty
    log.
    """
    connection = sqlite3.connect(
        ":memory:" if path is None else f"{path.absolute().as_uri()}?mode=rw", uri=path is not None,
        timeout=PATIENCE, isolation_level=None, check_same_thread=False, cached_statements=_STATEMENTS,
    )  # fmt: skip
    connection.row_factory = sqlite3.Row
    settings = (
        f"page_size = {PAGE_BYTES}",
        # A batch of large steps in memory until its commit, and the upper floors of the indexes from one to the next.
        "cache_size = -16384",
        "secure_delete = ON",  # deleted data is overwritten in the file
        f"synchronous = {'FULL' if full else 'NORMAL'}",
    )
    try:
        for setting in ("query_only = ON",) if read_only else settings:
            connection.execute(f"PRAGMA {setting}")
    except BaseException:
        connection.close()
        raise
    return connection


def execute_patiently(connection: sqlite3.Connection, statement: str) -> None:
    """Executes a statement; asks again every millisecond while another process writes.

    SQLite itself asks ever more rarely, up to every 100 ms, so that of two busy processes one waits for long.
    """
    until = time.monotonic() + PATIENCE
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        while True:
            try:
                connection.execute(statement)
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                    raise
            time.sleep(0.001)
    finally:
        connection.execute(f"PRAGMA busy_timeout = {round(1000 * PATIENCE)}")


@contextmanager
def transaction(connection: sqlite3.Connection, begin: str) -> Iterator[sqlite3.Connection]:
    """Begins a transaction and commits it, or rolls it back where the block raises."""
    try:
        execute_patiently(connection, begin)
        yield connection
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # there is none, or the fault has rolled back already
            connection.execute("ROLLBACK")
        raise


def prepare(connection: sqlite3.Connection, name: str, *, read_only: bool = False) -> None:
    """Makes the tables in an empty file, in one transaction; refuses a file that is no store of this version."""
    version = _version(connection, name)
    if version:
        if version != VERSION and not read_only:
            connection.execute(f"PRAGMA user_version = {VERSION}")
        if not read_only:
            execute_patiently(connection, CAUSES)
        return
    if read_only:
        raise StoreError(
            f"{name} is an empty file; capture some runs into it, or name another. If it is a copy of a store in "
            "use, copy the -wal file beside that one with it, or close its RagGuard first"
        )
    execute_patiently(
        connection, "PRAGMA journal_mode = WAL"
    )  # or a rollback journal, where the disk has no WAL
    with transaction(connection, "BEGIN IMMEDIATE"):
        if not _version(connection, name):  # else another process has made them meanwhile
            for statement in TABLES:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {VERSION}")


def _version(connection: sqlite3.Connection, name: str) -> int:
    """Returns the version of a file with tables, 0 for an empty one. Raises StoreError for a file of another program or
    of a version that is not read, and sqlite3.DatabaseError for a damaged one."""
    # One statement, since another process may be making the file.
    version, program, tables = connection.execute(
        "SELECT (SELECT user_version FROM pragma_user_version), "
        "(SELECT application_id FROM pragma_application_id), (SELECT count(*) FROM sqlite_master)"
    ).fetchone()
    if not tables and not version:
        return 0
    if program != APPLICATION_ID:
        raise StoreError(f"{name} is an SQLite file of another program; name another file for the store")
    if version not in _READ:
        raise SchemaMismatch(
            f"{name} was written by another ragguard (schema {version}; this one reads {_READ[0]} and {_READ[1]}). "
            "Read it with that version, or name another file"
        )
    # Of one table this checks no content: it takes a millisecond, however large the file is.
    said = connection.execute("PRAGMA quick_check('sqlite_master')").fetchone()[0]
    if said != "ok":
        raise sqlite3.DatabaseError(said)
    return int(version)


DIGEST_BYTES: Final = 16

Data: TypeAlias = dict[str, Any]
"""The values of a row that have no column of their own; they stand in its column `body` as JSON."""
_python: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False)
# Python's encoder in C, made once: `JSONEncoder.encode` makes one for each value.
_c: Final[Any] = getattr(json.encoder, "c_make_encoder", None)
_encode_c = _c and _c(None, _python.default, encode_basestring_ascii, None, ":", ",", False, False, False)


def _encode(value: object) -> str:
    return "".join(_encode_c(value, 0)) if _encode_c else _python.encode(value)


def dump(value: object) -> str:
    """Returns JSON of any value: what JSON does not know is written as its text, a NaN as null."""
    try:
        return _encode(value)
    except (TypeError, ValueError, RecursionError):
        return _encode(plain(value))


def storable(value: object) -> str:
    """Returns a text without halves of surrogate pairs, which UTF-8 cannot hold; for a number (an id) its digits."""
    return without_surrogates(value if isinstance(value, str) else str(value))

"""What stands in a store's file: its tables, and the rows of fixed runs with their scores."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from support.fixed_runs import fixed_runs
from support.golden import compare, compare_lines
from support.stored import closed_after, scored_store

VARYING = {"owner", "due_ns", "queued_ns"}
"""Columns that depend on the process and the time."""
PRAGMAS = ("user_version", "application_id", "page_size", "journal_mode")


@pytest.fixture
def path(tmp_path):
    """A store's file with the fixed runs in it."""
    return scored_store(tmp_path / "s.db", fixed_runs())


def test_tables_of_a_new_file(path):
    with closed_after(path) as db:
        objects = db.execute(
            "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name"
        ).fetchall()
        pragmas = {name: db.execute(f"PRAGMA {name}").fetchone()[0] for name in PRAGMAS}
    compare(
        "store-schema", {"objects": {name: sql.splitlines() for name, sql in objects}, "pragmas": pragmas}
    )


def test_rows_of_a_stored_file(path):
    found = {}
    with closed_after(path) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            cursor = db.execute(f"SELECT * FROM {table}")
            names = [column for column, *_ in cursor.description]
            found[table] = [{"table": table, **plain(names, row)} for row in cursor]
    assert found.pop("leases") == []
    compare_lines("store-rows", [row for rows in found.values() for row in rows])


def plain(names: Sequence[str], row: Sequence[object]) -> dict[str, object]:
    """A row without what varies, with blobs as hexadecimal digits."""
    return {
        name: value.hex() if isinstance(value, bytes) else value
        for name, value in zip(names, row, strict=True)
        if name not in VARYING
    }

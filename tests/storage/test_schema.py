"""A file of any past version opens, with everything in it; a migration that fails leaves the file as it was."""

import sqlite3
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.runs import a_run, scores_of
from support.stored import captured, closed_after

from ragguard.errors import SchemaMismatch
from ragguard.storage.sqlite import schema
from ragguard.storage.sqlite.store import Store

PAST = sorted((Path(__file__).parent / "data").glob("v*.sql"), key=lambda path: int(path.stem[1:]))


@pytest.mark.parametrize("dump", PAST, ids=lambda path: path.stem)
def test_a_file_of_every_version_opens_with_everything_in_it(tmp_path, dump):
    with closed_after(tmp_path / "s.db") as db:
        db.executescript(dump.read_text())
    store = Store(tmp_path / "s.db")
    assert list(store.runs()) == [a_run(), a_run("r2", steps=1)]
    assert store.scores("r1") == scores_of(a_run())
    assert [failure.error for failure in store.failures("r2")] == ["EngineUnreachable"]
    assert store.counters() == {"runs_dropped": 2}
    store.housekeep()
    assert [claim.run.id for claim in store.claim(9)] == ["r2"]


@pytest.mark.parametrize("dump", PAST, ids=lambda path: path.stem)
def test_texts_of_a_file_of_every_version_go_with_the_last_run_that_needs_them(tmp_path, dump):
    with closed_after(tmp_path / "s.db") as db:
        db.executescript(dump.read_text())
    store = Store(tmp_path / "s.db")
    store.delete("r1")
    assert list(store.runs()) == [a_run("r2", steps=1)]
    store.delete("r2")
    with closed_after(tmp_path / "s.db") as db:
        assert db.execute(
            "SELECT (SELECT count(*) FROM passages) + count(*) FROM passage_uses"
        ).fetchone() == (0,)


def test_every_version_has_its_file():
    assert [path.stem for path in PAST] == [f"v{version}" for version in range(1, schema.VERSION + 1)]


def migrated(path, version, migrations):
    db = schema.connect(str(path))
    try:
        schema.prepare(db, "the store", version=version, migrations=migrations)
    finally:
        db.close()


STEPS = {
    schema.VERSION: ["ALTER TABLE runs ADD COLUMN mood TEXT NOT NULL DEFAULT 'calm'"],
    schema.VERSION + 1: [
        "CREATE TABLE moods (mood TEXT)",
        "INSERT INTO moods SELECT DISTINCT mood FROM runs",
    ],
}


def test_a_migration_goes_step_by_step(tmp_path):
    store = Store(tmp_path / "s.db")
    store.add_run(a_run())
    store.close()
    migrated(tmp_path / "s.db", schema.VERSION + 2, STEPS)
    with closed_after(tmp_path / "s.db") as db:
        assert db.execute("SELECT mood FROM moods").fetchall() == [("calm",)]
        assert db.execute("SELECT id, mood FROM runs").fetchall() == [("r1", "calm")]
        assert schema.version_of(db) == schema.VERSION + 2


def test_a_step_that_fails_leaves_the_version_before_it(tmp_path):
    store = Store(tmp_path / "s.db")
    store.add_run(a_run())
    store.close()
    broken = {
        **STEPS,
        schema.VERSION + 1: ["CREATE TABLE moods (mood TEXT)", "INSERT INTO nowhere VALUES (1)"],
    }
    with pytest.raises(sqlite3.OperationalError, match="nowhere"):
        migrated(tmp_path / "s.db", schema.VERSION + 2, broken)
    with closed_after(tmp_path / "s.db") as db:
        assert schema.version_of(db) == schema.VERSION + 1
        assert db.execute("SELECT mood FROM runs").fetchall() == [("calm",)]
        assert not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'moods'").fetchall()
    migrated(tmp_path / "s.db", schema.VERSION + 2, STEPS)


def test_a_version_without_a_way_forward_is_refused(tmp_path):
    Store(tmp_path / "s.db").housekeep()
    with pytest.raises(SchemaMismatch, match="knows no way"):
        migrated(tmp_path / "s.db", schema.VERSION + 1, {})


# Several processes make the same file at the same moment


def test_another_process_that_makes_the_file_is_waited_for(tmp_path):
    """A writer keeps a new file from being switched to the log, and SQLite itself does not wait for that."""
    path = str(tmp_path / "s.db")
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    leaves = threading.Timer(0.3, other.rollback)
    leaves.start()
    store = Store(path)
    captured(store, a_run())
    leaves.join()
    other.close()
    assert store.run("r1") == a_run()


def test_a_file_that_another_process_makes_meanwhile_is_not_taken_for_another_programs(tmp_path):
    path = str(tmp_path / "s.db")
    other = threading.Thread(target=lambda: Store(path).housekeep())

    class Slow:
        """A connection between whose reads others get to write."""

        def __init__(self, db):
            self.db = db

        def execute(self, statement):
            rows = self.db.execute(statement).fetchall()
            if "application_id" in statement:
                other.start()
                other.join(0.5)
            return SimpleNamespace(fetchone=lambda: rows[0])

    db = schema.connect(path)
    schema.check(Slow(db), "the store")
    db.close()
    other.join(20)
    assert not other.is_alive()

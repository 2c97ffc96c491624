"""The file of a store: another version is refused, and several processes may make one at the same moment."""

import sqlite3
import threading
from types import SimpleNamespace

import pytest
from support.runs import a_run
from support.stored import captured, closed_after

from ragguard.errors import SchemaMismatch
from ragguard.storage.sqlite import schema
from ragguard.storage.sqlite.store import Store


@pytest.mark.parametrize("version", [1, schema.VERSION - 1, schema.VERSION + 1])
def test_file_of_another_version_is_refused_and_left_as_it_was(tmp_path, version):
    path = tmp_path / "s.db"
    with closed_after(path) as db:
        db.execute("CREATE TABLE meta (key TEXT)")
        db.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {version}")
    before = path.read_bytes()
    with pytest.raises(SchemaMismatch, match=rf"an? (newer|older) ragguard \(schema {version};"):
        Store(path).housekeep()
    assert path.read_bytes() == before


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

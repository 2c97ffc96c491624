"""The connection of a store: transactions, processes, forks, a file that goes away, and tables of other versions."""

import gc
import sqlite3
import threading
from contextlib import closing, suppress

import pytest
from support.child import in_child
from support.runs import a_run, as_events
from support.stored import captured, closed_after

from ragguard.errors import StoreError, StoreUnavailable
from ragguard.storage.sqlite import layout
from ragguard.storage.sqlite.database import Database, is_whole_store
from ragguard.storage.sqlite.reader import StoreReader
from ragguard.storage.sqlite.store import Store


class FailingDisk:
    """Connections to files behave as if the disk were full or read-only, until told otherwise."""

    def __init__(self, monkeypatch):
        self.pragma = ""
        self.connections = []
        real = layout.connect

        def connect(path, **settings):
            connection = real(path, **settings)
            if path is not None:
                self.connections.append(connection)
                self._apply(connection)
            return connection

        monkeypatch.setattr(layout, "connect", connect)

    def fail(self, pragma):
        self.pragma = pragma
        for connection in self.connections:
            self._apply(connection)

    def _apply(self, connection):
        with suppress(sqlite3.ProgrammingError):  # closed meanwhile
            connection.execute(f"PRAGMA {self.pragma}" if self.pragma else "SELECT 1")


@pytest.fixture
def disk(monkeypatch):
    return FailingDisk(monkeypatch)


FAULTS = ["max_page_count = 1", "query_only = on"]


@pytest.mark.parametrize("fault", FAULTS)
def test_write_to_failing_disk_raises_and_same_batch_is_written_once_later(tmp_path, disk, fault):
    store = Store(tmp_path / "s.db")
    captured(store, a_run("before"))
    batch = store.prepare(
        event for number in range(9) for event in as_events(a_run(f"r{number}", passages=50))
    )
    disk.fail(fault)
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match=r"s\.db"):
            store.write(batch)
        assert store.outage
    disk.fail("max_page_count = 1000000" if "page" in fault else "query_only = off")
    store.write(batch)
    assert not store.outage
    assert store.run("r3") == a_run("r3", passages=50)
    assert store.run_ids() == ["before", *(f"r{number}" for number in range(9))]


@pytest.mark.parametrize("fault", FAULTS)
def test_disk_that_takes_nothing_at_the_start_is_an_error(tmp_path, disk, fault):
    disk.fail(fault)
    with pytest.raises(StoreError, match=r"s\.db"):
        Store(tmp_path / "s.db")


def damaged(store, path, change):
    """Closes a store, changes its file with `change`, and opens it again."""
    captured(store, a_run("before"))
    store.close()
    change(path)
    return Store(path)


@pytest.mark.parametrize("mask", [0xFF, 0x01], ids=["all bits", "one bit"])
def test_damaged_byte_in_the_header_is_an_error_at_the_start_or_harmless(tmp_path, mask):
    refused = 0
    captured(store := Store(tmp_path / "s.db"), a_run("before"))
    store.close()
    whole = (tmp_path / "s.db").read_bytes()
    for at in range(100):
        path = tmp_path / f"{at}.db"
        path.write_bytes(whole[:at] + bytes([whole[at] ^ mask]) + whole[at + 1 :])
        try:
            store = Store(path)
        except StoreError:
            refused += 1
            continue
        captured(store, a_run("after"))
        store.close()
        again = StoreReader(path)
        assert [again.run(id) for id in ("before", "after")] == [a_run("before"), a_run("after")], at
        again.close()
    assert refused > 40


@pytest.mark.parametrize(
    "statement",
    [
        "PRAGMA user_version = 1",
        f"PRAGMA user_version = {layout.VERSION + 7}",
        "PRAGMA application_id = 1",
    ],
)
def test_file_with_another_schema_is_an_error_at_the_start_and_stays_as_it_is(tmp_path, statement):
    def change(path):
        with closed_after(path) as db:
            db.execute(statement)
        contents.append(path.read_bytes())

    path, contents = tmp_path / "s.db", []
    with pytest.raises(StoreError, match=r"s\.db"):
        damaged(Store(path), path, change)
    assert [path.read_bytes()] == contents


@pytest.mark.parametrize("path", ["s.db", None])
def test_a_store_that_nobody_closed_closes_its_connection(tmp_path, monkeypatch, path):
    connections = []
    connect = layout.connect
    monkeypatch.setattr(
        layout, "connect", lambda *args, **more: connections.append(connect(*args, **more)) or connections[-1]
    )
    store = Store(path and tmp_path / path)
    captured(store, a_run())
    del store
    gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connections[0].execute("SELECT 1")


def test_child_process_makes_a_store_of_its_own_and_the_parents_goes_on(tmp_path):
    store = Store(tmp_path / "s.db")
    captured(store, a_run("parent"))

    def work():
        own = Store(tmp_path / "s.db")
        captured(own, a_run("child"))
        claims = [claim.run.id for claim in own.claim(9)[0]]
        own.close()
        return claims == ["child"]

    in_child(work)
    captured(store, a_run("after"))
    assert sorted(run.id for run in store.runs()) == ["after", "child", "parent"]
    assert [claim.run.id for claim in store.claim(9)[0]] == ["parent", "after"]
    store.housekeep()
    assert [claim.run.id for claim in store.claim(9)[0]] == ["child"]


def test_a_reader_does_not_wait_for_a_writer(tmp_path):
    """Which may wait itself: for another process's lock, or for a disk that stands still."""
    store = Store(tmp_path / "s.db")
    captured(store, a_run())
    at_work, go = threading.Event(), threading.Event()
    waited = []

    def write():
        with store._db.lock:
            at_work.set()
            waited.append(not go.wait(20))

    writer = threading.Thread(target=write)
    writer.start()
    assert at_work.wait(10)
    assert store.run("r1") == a_run()
    assert [run.id for run in store.runs()] == ["r1"]
    go.set()
    writer.join()
    assert waited == [False]
    store.close()


def test_writer_asks_every_millisecond_while_another_process_writes(tmp_path, monkeypatch):
    store, pauses = Store(tmp_path / "s.db"), []
    with closing(sqlite3.connect(tmp_path / "s.db", isolation_level=None)) as other:

        def sleep(seconds):
            if seconds == 0.001:  # and no rest in long work
                pauses.append(seconds)
            if len(pauses) == 50:
                other.execute("COMMIT")

        monkeypatch.setattr("ragguard.storage.sqlite.layout.time.sleep", sleep)
        other.execute("BEGIN IMMEDIATE")
        captured(store, a_run())
    assert pauses == [0.001] * 50
    assert store.run_count() == 1


def test_a_file_that_allows_no_writing_says_so(tmp_path):
    def write():
        with closing(Database(tmp_path / "s.db")) as database, database.transaction() as db:
            db.execute("PRAGMA query_only = ON")
            db.execute("DELETE FROM runs")

    with pytest.raises(StoreUnavailable, match="allows no writing: change that, or name another file"):
        write()


@pytest.mark.parametrize("harm", ["shorter", "longer", "gone"])
def test_a_file_is_a_whole_store_only_with_all_of_its_bytes(tmp_path, harm):
    path = tmp_path / "part.db"
    with closing(Store()) as store:
        path.write_bytes(store.content())
    assert is_whole_store(path)
    content = {"shorter": path.read_bytes()[:-100], "longer": path.read_bytes() + b"x", "gone": b""}[harm]
    path.write_bytes(content)
    assert not is_whole_store(path)

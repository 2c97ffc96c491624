"""A disk that fails, a file that is not ours, a process that forks."""

import gc
import logging
import os
import resource
import signal
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from support.child import in_child
from support.runs import a_run, a_step, as_events, scores_of
from support.stored import captured, closed_after, settle

from ragguard.capture.events import StepAmended, StepEnded
from ragguard.errors import SchemaMismatch, StoreError
from ragguard.storage.sqlite import schema
from ragguard.storage.sqlite.bounds import Bound
from ragguard.storage.sqlite.store import Store


class FailingDisk:
    """Connections to files behave as if the disk were full or read-only, until told otherwise."""

    def __init__(self, monkeypatch):
        self.pragma = ""
        self.connections = []
        real = schema.connect

        def connect(path, **settings):
            connection = real(path, **settings)
            if path != ":memory:":
                self.connections.append(connection)
                self._apply(connection)
            return connection

        monkeypatch.setattr(schema, "connect", connect)

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


@pytest.mark.parametrize("fault", ["max_page_count = 1", "query_only = on"])
def test_a_disk_that_fails_is_replaced_by_memory_with_one_warning(tmp_path, disk, caplog, fault):
    store = Store(tmp_path / "s.db")
    before, open_run = a_run("before", passages=9), a_run("open", steps=1)
    captured(store, before)
    store.record(as_events(open_run)[:-1])
    disk.fail(fault)
    with caplog.at_level(logging.ERROR, "ragguard"):
        for number in range(20):
            captured(store, a_run(f"r{number}", passages=50))
    assert [record.message.count("IN MEMORY") for record in caplog.records] == [1]
    assert store.degraded
    assert store.counts["degraded"] == 1
    # What was under way came along, and ends where it is now.
    captured(store, open_run)
    assert store.run("open") == open_run
    assert {claim.run.id for claim in store.claim(99)} >= {"before", "open", "r0", "r19"}


def test_a_disk_that_is_full_when_the_file_is_made_is_replaced_by_memory(tmp_path, caplog):
    """As the operating system says it: the tables themselves cannot be written."""

    def child():
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        store = Store(tmp_path / "s.db")
        run = a_run("r")
        captured(store, run)
        return store.degraded and store.run("r") == run

    in_child(child)


@pytest.mark.parametrize("runs", [0, 1])
def test_a_close_says_how_many_events_are_lost_with_the_disk_and_nothing_where_none_is(
    tmp_path, disk, caplog, runs
):
    store = Store(tmp_path / "s.db")
    disk.fail("query_only = on")
    store.housekeep()
    for number in range(runs):
        captured(store, a_run(f"r{number}"))
    assert store.degraded
    store.close()
    assert caplog.text.count("are lost") == runs
    assert "0 events" not in caplog.text


def test_a_disk_that_works_again_gets_everything(tmp_path, disk, caplog):
    store = Store(tmp_path / "s.db")
    before, during = a_run("before"), a_run("during")
    store.record(as_events(before)[:-1])
    disk.fail("query_only = on")
    captured(store, during, before)
    store.claim(9)
    settle(store, during, scores_of(during), emit=True)
    store.housekeep()
    assert store.degraded
    disk.fail("query_only = off")
    store.housekeep()
    assert not store.degraded
    assert "works again" in caplog.text
    assert sorted(run.id for run in store.runs()) == ["before", "during"]
    assert store.run("before") == before
    assert store.scores("during") == scores_of(during)
    assert store.left().pending == 2
    store.close()
    again = Store(tmp_path / "s.db")
    again.housekeep()
    claims = {claim.run.id: claim for claim in again.claim(9)}
    assert claims["before"].due.score
    assert not claims["during"].due.score
    assert claims["during"].unsent == scores_of(during)
    assert again.counters()["degraded"] == 1


def test_runs_that_were_settled_in_memory_are_on_the_disk_that_works_again(tmp_path, disk, caplog):
    store = Store(tmp_path / "s.db")
    runs = [a_run(f"r{number}") for number in range(3)]
    captured(store, *runs[:2])
    settle(store, runs[0], scores_of(runs[0]))
    disk.fail("query_only = on")
    captured(store, runs[2])
    for _ in range(2):  # a file that cannot be written yet changes nothing
        settle(store, runs[1], scores_of(runs[1]))
        settle(store, runs[2], scores_of(runs[2]))
        store.housekeep()
        assert store.degraded
    disk.fail("query_only = off")
    store.housekeep()
    assert sorted(run.id for run in store.runs()) == ["r0", "r1", "r2"]
    assert [store.scores(run.id) for run in runs] == [scores_of(run) for run in runs]
    assert store.left().pending == 0
    assert store.counts["recovered"] == 1
    store.close()
    assert Store(tmp_path / "s.db").counters() == {"degraded": 1, "recovered": 1}


def test_a_run_goes_to_memory_and_back_twice(tmp_path, disk):
    store = Store(tmp_path / "s.db")
    run = a_run(steps=4)
    started, *steps, ended = as_events(run)
    store.record([started])
    for step, pragma in zip(steps, ["query_only = on", "query_only = off"] * 2, strict=True):
        disk.fail(pragma)
        store.housekeep()
        assert store.degraded == pragma.endswith("on")
        store.record([step])
    store.record([ended])
    settle(store, run, scores_of(run))
    assert store.run("r1") == run
    store.close()
    assert Store(tmp_path / "s.db").run("r1") == run


def test_an_end_and_an_amendment_of_what_only_the_file_has_reach_it(tmp_path, disk, monkeypatch):
    store = Store(tmp_path / "s.db")
    run = a_run()
    store.record(as_events(run)[:-1])
    monkeypatch.setattr("ragguard.storage.sqlite.failover.copy_unfinished", broken)
    disk.fail("query_only = on")
    store.record([StepAmended("r1", "r1-s0", run.steps[0].passages[:1]), as_events(run)[-1]])
    disk.fail("query_only = off")
    store.housekeep()
    assert store.run("r1").answer == run.answer
    assert [len(step.passages) for step in store.run("r1").steps] == [1, 3]
    assert [claim.run.id for claim in store.claim(9)] == ["r1"]


def broken(*_):
    raise sqlite3.OperationalError("disk I/O error")


def test_a_run_that_cannot_be_copied_back_is_counted_and_takes_no_other_with_it(tmp_path, disk, caplog):
    store = Store(tmp_path / "s.db")
    captured(store, a_run("same"))
    settle(store, a_run("same"), scores_of(a_run("same")))
    disk.fail("query_only = on")
    captured(store, a_run("before"))
    store.put(a_run("same", question="another question"))
    captured(store, a_run("after"))
    disk.fail("query_only = off")
    store.housekeep()
    assert not store.degraded
    assert sorted(run.id for run in store.runs()) == ["after", "before", "same"]
    assert store.run("same") == a_run("same")
    assert store.counts["runs_lost"] == 1
    assert "could not be copied" in caplog.text


def test_a_score_that_is_under_way_when_the_disk_works_again_settles_the_run(tmp_path, disk):
    store = Store(tmp_path / "s.db")
    run = a_run()
    captured(store, run)
    disk.fail("query_only = on")
    captured(store, a_run("other"))
    claims = {claim.run.id: claim for claim in store.claim(2)}
    disk.fail("query_only = off")
    store.housekeep()
    for id, claim in claims.items():
        settle(store, claim.run, scores_of(claim.run), revision=claim.due.revision)
        store.release(id)
    assert store.left().pending == 0


def test_what_a_dead_disk_never_got_is_counted_when_the_store_is_closed(tmp_path, disk, caplog):
    store = Store(tmp_path / "s.db")
    captured(store, a_run("before"))
    disk.fail("query_only = on")
    captured(store, a_run("during"))
    store.close()
    assert store.counts["events_lost"] == len(as_events(a_run()))
    assert "are lost" in caplog.text


def test_memory_that_stands_in_for_a_disk_drops_nothing_until_it_is_full(tmp_path, disk, monkeypatch):
    monkeypatch.setattr("ragguard.storage.sqlite.bounds.MEMORY_RUNS", 10)
    store = Store(tmp_path / "s.db", bound=Bound(2))
    captured(store, a_run("before"))
    disk.fail("query_only = on")
    captured(store, *(a_run(f"r{number}") for number in range(9)))
    assert (store.left().pending, store.counts["runs_lost"]) == (10, 0)
    captured(store, a_run("too many"))
    assert store.counts["runs_lost"] == 10


def test_a_disk_that_works_again_at_the_end_gets_everything(tmp_path, disk):
    store = Store(tmp_path / "s.db")
    captured(store, a_run("before"))
    disk.fail("query_only = on")
    captured(store, a_run("during"))
    disk.fail("query_only = off")
    store.close()
    assert not store.degraded
    assert sorted(run.id for run in Store(tmp_path / "s.db").runs()) == ["before", "during"]


def test_a_file_that_cannot_be_opened_for_writing_is_replaced_by_memory(tmp_path, caplog):
    if os.geteuid() == 0:
        path = "/proc/ragguard.db"  # a folder where not even root makes files
    else:
        tmp_path.chmod(0o500)
        path = tmp_path / "s.db"
    store = Store(path)
    captured(store, a_run())
    assert store.degraded
    assert "IN MEMORY" in caplog.text
    assert store.run("r1") == a_run()


def test_an_event_for_a_run_that_is_only_on_the_dead_disk_is_not_lost(tmp_path, disk):
    store = Store(tmp_path / "s.db")
    run = a_run()
    captured(store, run)
    store.claim(1)
    settle(store, run, scores_of(run))
    store.release("r1")
    disk.fail("query_only = on")
    store.record([StepEnded(a_step("r1", 7))])
    disk.fail("query_only = off")
    store.housekeep()
    assert [step.index for step in store.run("r1").steps] == [0, 1, 7]
    assert store.run("r1").question == run.question
    assert [claim.due.revision for claim in store.claim(1)] == [2]


def test_a_file_of_another_program_is_refused(tmp_path):
    (tmp_path / "text.db").write_text("not a database, but long enough to look like one" * 50)
    with pytest.raises(StoreError, match="no SQLite file"):
        Store(tmp_path / "text.db")
    with closed_after(tmp_path / "other.db") as db:
        db.execute("CREATE TABLE theirs (x)")
    with pytest.raises(StoreError, match="another program"):
        Store(tmp_path / "other.db")


def test_a_file_from_a_newer_version_is_refused_at_once(tmp_path):
    Store(tmp_path / "s.db").housekeep()
    with closed_after(tmp_path / "s.db") as db:
        db.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    with pytest.raises(SchemaMismatch, match="newer ragguard"):
        Store(tmp_path / "s.db")
    with pytest.raises(SchemaMismatch, match="newer ragguard"):
        Store(tmp_path / "s.db", read_only=True)


@pytest.mark.parametrize("path", ["s.db", None])
def test_a_store_that_nobody_closed_closes_its_connection(tmp_path, monkeypatch, path):
    connections = []
    connect = schema.connect
    monkeypatch.setattr(
        schema, "connect", lambda *args, **more: connections.append(connect(*args, **more)) or connections[-1]
    )
    store = Store(path and tmp_path / path)
    captured(store, a_run())
    del store
    gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connections[0].execute("SELECT 1")


def test_a_connection_that_cannot_be_set_up_is_closed(tmp_path, monkeypatch):
    connections = []

    class Busy(sqlite3.Connection):
        def __init__(self, *args, **more):
            super().__init__(*args, **more)
            connections.append(self)

        def execute(self, statement, *values):
            if "secure_delete" in statement:
                raise sqlite3.OperationalError("database is locked")
            return super().execute(statement, *values)

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **more: connect(*args, factory=Busy, **more))
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        schema.connect(str(tmp_path / "s.db"))
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connections[0].execute("SELECT 1")


def test_a_child_process_writes_under_its_own_name(tmp_path):
    store = Store(tmp_path / "s.db")
    captured(store, a_run("parent"))

    def work():
        captured(store, a_run("child"))
        claims = [claim.run.id for claim in store.claim(9)]
        store.close()
        return claims == ["child"]

    in_child(work)
    captured(store, a_run("after"))
    assert sorted(run.id for run in store.runs()) == ["after", "child", "parent"]
    assert [claim.run.id for claim in store.claim(9)] == ["parent", "after"]
    store.housekeep()
    assert [claim.run.id for claim in store.claim(9)] == ["child"]


def test_a_store_in_memory_is_empty_in_a_child(tmp_path):
    store = Store()
    captured(store, a_run())
    in_child(lambda: store.run_count() == 0)
    assert store.run_count() == 1


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


def test_memory_that_another_thread_holds_is_said_to_be_busy(monkeypatch):
    monkeypatch.setattr("ragguard.storage.sqlite.database._LONG_TURN", 0.01)
    store, at_work, go = Store(None), threading.Event(), threading.Event()
    captured(store, a_run())

    def hold():
        with store._db.lock:
            at_work.set()
            go.wait(20)

    writer = threading.Thread(target=hold)
    writer.start()
    assert at_work.wait(10)
    with pytest.raises(StoreError, match="busy"):
        store.run("r1")
    go.set()
    writer.join()
    assert store.run("r1") == a_run()
    store.close()


def test_a_reader_waits_for_a_file_whose_tables_another_thread_is_making(tmp_path):
    began, go_on = threading.Event(), threading.Event()

    def opened(db):
        began.set()
        assert go_on.wait(30)

    store = Store(tmp_path / "s.db")
    store._own.opened = opened
    writer = threading.Thread(target=lambda: store.counters())
    writer.start()
    assert began.wait(30)
    with ThreadPoolExecutor(1) as readers:
        reader = readers.submit(store.run_ids)
        threading.Timer(1.0, go_on.set).start()  # longer than a reader waits for its turn
        assert reader.result(30) == []
    writer.join()
    store.close()

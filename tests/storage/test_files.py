"""A file that is moved, deleted, replaced or damaged while it is in use, and one that nobody else may read."""

import os
import sqlite3
from contextlib import closing

import pytest
from support.program import run_program
from support.runs import a_run, as_events, scores_of
from support.stored import captured, closed_after, store_scores

from ragguard import RagGuard, read_runs, write_runs
from ragguard.errors import RagguardError, StoreError, StoreUnavailable
from ragguard.storage.sqlite.database import is_store
from ragguard.storage.sqlite.layout import PAGE_BYTES
from ragguard.storage.sqlite.reader import StoreReader
from ragguard.storage.sqlite.store import Store


@pytest.fixture
def path(tmp_path):
    return tmp_path / "s.db"


def ids(path):
    store = StoreReader(path)
    found = sorted(run.id for run in store.runs())
    store.close()
    return found


def in_use(path):
    """A store with a run that is done, one to be scored, and one that has not ended."""
    store = Store(path)
    done = a_run("done")
    captured(store, done, a_run("waits"))
    store_scores(store, done, scores_of(done))
    store.record(as_events(a_run("open"))[:-1])
    return store


def test_looking_into_a_store_that_this_process_uses_keeps_its_locks(path):
    """As `ragguard score s.db --store s.db` does. Without these locks another process that ends would take itself for
    the last one, and remove the log, which damages the file."""
    with closing(Store(path)) as store:
        captured(store, a_run())
        assert is_store(path)
        run_program(
            "import sys; from ragguard.storage.sqlite.store import Store; Store(sys.argv[1]).close()", path
        )
        assert path.with_name("s.db-wal").exists()


def test_a_store_is_known_as_one_while_the_file_of_another_that_is_open_is_gone(path, tmp_path):
    with closing(Store(path)), closing(Store(tmp_path / "gone.db")):
        (tmp_path / "gone.db").rename(tmp_path / "moved.db")
        (tmp_path / "copy.db").write_bytes(path.read_bytes())
        assert is_store(tmp_path / "copy.db")


@pytest.mark.parametrize("fate", ["deleted", "moved", "replaced"])
def test_file_that_is_gone_is_an_error_until_it_is_back(path, fate, tmp_path):
    store = in_use(path)
    kept = path.rename(tmp_path / "kept.db") if fate != "deleted" else None
    if fate == "deleted":
        path.unlink()
    elif fate == "replaced":
        other = Store(path)
        captured(other, a_run("theirs"))
        other.close()
    with pytest.raises(
        StoreUnavailable, match="was moved, deleted or replaced while it was in use: put it back"
    ):
        captured(store, a_run("after"))
    assert "moved" in store.outage
    if fate == "moved":
        kept.rename(path)
        captured(store, a_run("after"))
    store.close()
    if fate == "deleted":
        Store(path).close()  # beside the log that the deleted file has left
    assert (
        ids(path)
        == {"deleted": [], "moved": ["after", "done", "open", "waits"], "replaced": ["theirs"]}[fate]
    )


# Damage


def flip(path, at, length=64):
    with open(path, "r+b") as file:
        file.seek(at)
        found = file.read(length)
        file.seek(at)
        file.write(bytes(byte ^ 0xFF for byte in found))


def test_damage_that_is_met_while_running_is_said_with_the_way_out(path):
    store = in_use(path)
    with closed_after(path) as db:
        root = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'leases'").fetchone()[0]
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    flip(path, (root - 1) * PAGE_BYTES)
    store.close()
    with pytest.raises(StoreError, match=r"\.recover"):
        Store(path)


@pytest.mark.parametrize("make", ["text", "sqlite"])
def test_file_of_another_program_is_never_written(path, make):
    store = Store(path)
    path.unlink()
    if make == "text":
        path.write_text("not a database, but long enough to look like one" * 50)
    else:
        with closed_after(path) as db:
            db.execute("CREATE TABLE theirs (x)")
    before = path.read_bytes()
    with pytest.raises(StoreUnavailable, match=r"s\.db"):
        captured(store, a_run())
    store.close()
    with pytest.raises(StoreError):
        Store(path)
    assert path.read_bytes() == before


# Who reads it, and what is gone


def test_a_new_store_is_its_owners_alone(path):
    before = os.umask(0)
    try:
        store = Store(path)
        captured(store, a_run())
        modes = {one.name: one.stat().st_mode & 0o777 for one in path.parent.iterdir()}
        store.close()
    finally:
        os.umask(before)
    assert modes == {"s.db": 0o600, "s.db-wal": 0o600, "s.db-shm": 0o600}


def test_a_deletion_is_not_said_to_be_done_while_the_log_holds_the_text(path, monkeypatch):
    monkeypatch.setattr("ragguard.storage.sqlite.layout.PATIENCE", 0.05)
    store = Store(path)
    secret = a_run("secret")
    secret.question = "where are the jewels?"
    captured(store, secret)
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM runs").fetchone()
    with pytest.raises(StoreError, match="still in the log"):
        store.delete("secret")
    assert b"jewels" in path.with_name("s.db-wal").read_bytes()
    reader.close()
    assert store.delete("secret") is True
    assert store.delete("secret") is False
    assert b"jewels" not in b"".join(one.read_bytes() for one in path.parent.iterdir())


def test_a_closed_store_is_whole_in_its_file_beside_an_idle_reader(path, tmp_path):
    store = Store(path)
    captured(store, a_run("first"))
    reader = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None)
    reader.execute("SELECT count(*) FROM runs").fetchone()
    captured(store, a_run("second"))
    store.close()
    copy = tmp_path / "copy.db"
    copy.write_bytes(path.read_bytes())
    assert ids(copy) == ["first", "second"]
    reader.close()


def copied_while_in_use(path, *endings):
    """Copies the files with these endings of a store whose runs are in its log."""
    store = Store(path)
    captured(store, a_run("new"))
    copy = path.with_name("copy.db")
    for ending in endings:
        copy.with_name(copy.name + ending).write_bytes(path.with_name(path.name + ending).read_bytes())
    store.close()
    return copy


def test_a_copy_without_the_log_is_said_to_be_one(path):
    copy = copied_while_in_use(path, "")
    with pytest.raises(StoreError, match=r"copy\.db is an empty file.*copy the -wal file"):
        StoreReader(copy)


def test_a_reader_leaves_no_log_behind_and_none_is_taken_from_a_writer(path):
    writer = in_use(path)
    names = {path.name, f"{path.name}-wal", f"{path.name}-shm"}
    assert ids(path) == ["done", "open", "waits"]
    assert set(os.listdir(path.parent)) == names
    writer.close()
    before = path.read_bytes(), path.stat().st_mtime_ns
    assert ids(path) == ["done", "open", "waits"]
    assert os.listdir(path.parent) == [path.name]
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


@pytest.mark.parametrize("name", ["\ud800", "a\0b", "x" * 5000], ids=["half a character", "NUL", "too long"])
def test_names_that_no_file_can_have_are_refused_by_errors_of_ours(name):
    for use in (
        lambda: RagGuard("nano", store=name),
        lambda: list(read_runs(name)),
        lambda: write_runs([], name),
        lambda: Store(name),
    ):
        with pytest.raises(RagguardError) as refused:
            use()
        str(refused.value).encode()

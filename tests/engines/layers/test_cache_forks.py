"""A cache that crosses a fork: parent and child share the file, and never one connection to it or one call."""

import asyncio
import signal
import sqlite3
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest
from support.child import in_child
from support.scripted_engine import Call, ScriptedEngine, unit

from ragguard.engines.layers import Cache
from ragguard.engines.layers.disk_cache import DiskCache
from ragguard.runtime.fork import at_fork

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


class WriteInProgress:
    """Holds each INSERT of this process where SQLite holds its connection's mutex, until a fork is about to begin."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, until_fork: bool = True) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()
        real = sqlite3.connect

        def watched(path: Path, *, timeout: float, check_same_thread: bool) -> sqlite3.Connection:
            connection = real(path, timeout=timeout, check_same_thread=check_same_thread)
            connection.set_trace_callback(self._wait)
            return connection

        monkeypatch.setattr(sqlite3, "connect", watched)
        # Hooks before a fork run in the reverse order of registration: this one has to come before that of the cache.
        self._register = lambda: at_fork(before=self._end) if until_fork else None

    def __call__(self, cache: DiskCache, items: dict[bytes, bytes]) -> None:
        self._register()
        cache.write(items)
        assert self.begun.wait(10)

    def _wait(self, statement: str) -> None:
        if statement.startswith("INSERT"):
            self.begun.set()
            self.may_end.wait(10)

    def _end(self) -> None:
        self.may_end.set()


async def read_and_written(cache: DiskCache) -> bool:
    """Writes an item of this process; returns whether the item and the one of the test's process are there."""
    cache.write({b"child": b"2"})
    return await cache.read([b"parent", b"child"]) == {b"parent": b"1", b"child": b"2"}


def in_time(work: Callable[[], Coroutine[None, None, bool]]) -> None:
    """Runs a coroutine function in a child, which is killed where it hangs."""

    def child() -> bool:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)
        return asyncio.run(work())

    in_child(child)


def test_a_fork_in_the_middle_of_a_write_leaves_parent_and_child_a_connection_each(tmp_path, monkeypatch):
    cache = DiskCache(tmp_path / "cache.db", 100)
    WriteInProgress(monkeypatch)(cache, {b"parent": b"1"})
    in_time(lambda: read_and_written(cache))
    assert asyncio.run(read_and_written(cache))
    assert not cache.lost
    asyncio.run(cache.close())


def test_a_child_gives_up_a_file_whose_transaction_outlasts_the_wait_before_the_fork(tmp_path, monkeypatch):
    monkeypatch.setattr("ragguard.engines.layers.disk_cache.FORK_WAIT", 0.01)
    cache = DiskCache(tmp_path / "cache.db", 100)
    writing = WriteInProgress(monkeypatch, until_fork=False)
    writing(cache, {b"parent": b"1"})

    async def lost() -> bool:
        return await cache.read([b"parent"]) == {} and cache.lost

    in_time(lost)
    writing.may_end.set()
    assert not cache.lost
    assert asyncio.run(read_and_written(cache))
    asyncio.run(cache.close())


def test_a_child_follows_no_call_of_its_parent():
    asked, go_on = threading.Event(), threading.Event()

    def held(call: Call) -> None:
        asked.set()
        go_on.wait(10)

    cache = Cache(ScriptedEngine(fault=held))
    parent = threading.Thread(target=lambda: asyncio.run(cache.label_probs(["a"], ["X"])))
    parent.start()
    assert asked.wait(10)

    async def answered() -> bool:
        go_on.set()
        return (await cache.label_probs(["a"], ["X"])).p[0, 0] == unit("a", "X") / 6

    in_time(answered)
    go_on.set()
    parent.join(10)


def test_many_forks_while_the_parent_writes_leave_a_whole_file(tmp_path):
    path = tmp_path / "cache.db"
    cache, stop = DiskCache(path, 100_000), threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            cache.write({b"%d %d" % (number, item): b"1" for item in range(50)})
            asyncio.run(cache.read([b"%d 0" % number]))
            number += 1
            stop.wait(0.005)  # SQLite's lock is not fair: it has to be free now and then

    writer = threading.Thread(target=write)
    writer.start()
    try:
        cache.write({b"parent": b"1"})
        assert asyncio.run(cache.read([b"parent"]))  # it waits in no line any more
        for _ in range(20):
            in_time(lambda: read_and_written(cache))
    finally:
        stop.set()
        writer.join(10)
    assert not cache.lost
    asyncio.run(cache.close())
    file = sqlite3.connect(path)
    assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    file.close()

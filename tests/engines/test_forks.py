"""What `connect` returns may cross a fork: the child makes connections, locks and the cache's file anew."""

import asyncio
import signal
import sqlite3
import threading
from collections.abc import Callable, Coroutine

import pytest
from support.child import in_child
from support.reader import TableEntailer
from support.scripted_engine import ScriptedEngine, unit

from ragguard import connect
from ragguard.engines.base import Engine
from ragguard.engines.connect import connect_entailer
from ragguard.engines.entailment import Pair
from ragguard.engines.layers.budget import Account

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


def in_time(work: Callable[[], Coroutine[None, None, bool]]) -> None:
    """Runs a coroutine function in a child, which is killed where it hangs."""

    def child() -> bool:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)
        return asyncio.run(work())

    in_child(child)


async def p_of(engine: Engine, prompt: str) -> float:
    return float((await engine.label_probs([prompt], ["X"])).p[0, 0])


def test_child_takes_no_lock_that_a_thread_of_its_parent_held():
    cache, account = connect(ScriptedEngine()), Account(requests=5)
    entailer = connect_entailer(TableEntailer())

    async def answered() -> bool:
        pair = Pair("who?", "Ada", "Bo")
        return (
            bool(await p_of(cache, "a"))
            and account.spent.requests == 0
            and len((await entailer.entail([pair])).p) == 1
        )

    with cache.wrapped._lock, account._lock.get():
        in_time(answered)


def test_nano_answers_in_a_child_of_a_process_that_has_used_it():
    engine = connect("nano")
    expected = asyncio.run(p_of(engine, "Who founded it?"))

    async def same() -> bool:
        return await p_of(engine, "Who founded it?") == pytest.approx(expected)

    in_time(same)


def test_forks_while_the_parent_writes_its_cache_leave_the_file_whole(tmp_path):
    path = tmp_path / "cache.db"
    scripted, stop = ScriptedEngine(), threading.Event()
    engine = connect(scripted, cache=path)
    asyncio.run(p_of(engine, "parent"))

    def write() -> None:
        for number in range(10_000):
            asyncio.run(p_of(engine, f"{number}"))
            if stop.wait(0.005):  # SQLite's lock is not fair: it has to be free now and then
                return

    writer = threading.Thread(target=write)
    writer.start()

    async def read_from_the_file() -> bool:
        asked = len(scripted.calls)
        await p_of(engine, "child")
        return await p_of(engine, "parent") == unit("parent", "X") / 6 and len(scripted.calls) <= asked + 1

    try:
        for _ in range(10):
            in_time(read_from_the_file)
    finally:
        stop.set()
        writer.join(10)
    asyncio.run(engine.aclose())
    file = sqlite3.connect(path)
    assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    file.close()

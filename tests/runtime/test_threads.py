"""Daemon threads do what they are given, keep their bound, survive a fork and hold no process; so do loops on them."""

import asyncio
import sys
import threading
from concurrent.futures import CancelledError
from types import SimpleNamespace

import pytest
from support.child import in_child

from ragguard import Passage, RagGuard
from ragguard.errors import InvalidInput
from ragguard.runtime import threads
from ragguard.runtime.threads import BackgroundLoop, DaemonThreads


def test_every_job_is_done_by_at_most_so_many_daemons():
    pool, seen = DaemonThreads(3, "some"), set()

    def job(number):
        seen.add(threading.current_thread())
        return number * 2

    assert list(pool.map(job, range(500))) == [number * 2 for number in range(500)]
    assert 1 <= len(seen) <= 3
    assert all(thread.daemon for thread in seen)
    pool.shutdown()
    assert not any(thread.is_alive() for thread in seen)
    with pytest.raises(RuntimeError, match="shut down"):
        pool.submit(job, 1)


def test_error_of_a_job_reaches_its_caller_and_the_thread_goes_on():
    pool = DaemonThreads(1, "some")
    with pytest.raises(SystemExit):
        pool.submit(lambda: exit(3)).result(10)
    assert pool.submit(lambda: "still here").result(10) == "still here"
    pool.shutdown()


def test_threads_without_work_end_and_come_back(monkeypatch):
    monkeypatch.setattr(threads, "IDLE_S", 0.01)
    pool = DaemonThreads(2, "some")
    thread = pool.submit(threading.current_thread).result(10)
    thread.join(20)
    assert not thread.is_alive()
    assert pool.submit(threading.current_thread).result(10) is not thread
    pool.shutdown()


def test_where_no_thread_can_be_started_the_caller_does_the_job(monkeypatch):
    """So it is on Python 3.12 once the process ends."""

    def start(thread):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    pool = DaemonThreads(2, "some")
    monkeypatch.setattr(threading.Thread, "start", start)
    assert pool.submit(threading.current_thread).result(0) is threading.current_thread()


async def where():
    await asyncio.sleep(0)
    return threading.current_thread().name


def test_waiting_for_it_on_its_own_thread_is_refused_as_it_would_be_for_ever():
    loop = BackgroundLoop("background")

    async def deadlock():
        return loop.run(where())

    with pytest.raises(InvalidInput, match="wait for itself"):
        loop.run(deadlock(), timeout=5)
    assert loop.run(where()) == "background"


async def test_background_loop_serves_another_loop_without_blocking_it():
    loop = BackgroundLoop("background")
    assert await asyncio.gather(*(loop.within(where()) for _ in range(20))) == ["background"] * 20


async def test_cancelling_here_cancels_there():
    loop = BackgroundLoop("background")
    begun, cancelled = threading.Event(), threading.Event()

    async def long():
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    task = asyncio.ensure_future(loop.within(long()))
    assert await asyncio.to_thread(begun.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(cancelled.wait, 10)


def test_background_loop_starts_anew_in_a_child():
    loop = BackgroundLoop("background")
    loop.run(where(), 10)
    in_child(lambda: loop.run(where(), 10) == "background")
    assert loop.run(where(), 10) == "background"


def test_work_that_wants_to_end_the_process_is_logged_once_and_the_loop_goes_on(caplog):
    loop = BackgroundLoop("exiting")

    async def leave():
        raise SystemExit(3)

    for _ in range(3):
        with pytest.raises(SystemExit):
            loop.submit(leave()).result(10)
        assert loop.run(where(), 10) == "exiting"
    assert caplog.text.count("SystemExit: 3") == 1


def test_a_loop_that_its_own_work_stops_ends_what_still_runs_on_it():
    loop = BackgroundLoop("background")
    waiting = loop.submit(asyncio.sleep(60))

    async def stop():
        asyncio.get_running_loop().stop()

    loop.submit(stop()).result(10)
    with pytest.raises(CancelledError):
        waiting.result(10)
    assert loop.run(where(), 10) == "background"


def drive(coroutine):
    """Runs a coroutine as a foreign loop does: no loop of asyncio's is running."""
    try:
        while True:
            coroutine.send(None)
    except StopIteration as done:
        return done.value


@pytest.mark.parametrize("durability", ["fast", "full"])
def test_capture_works_on_any_loop(durability, tmp_path):
    rg = RagGuard("nano", store=tmp_path / "s.db", scorers=(), durability=durability)

    async def application():
        async with rg.run("who?") as run:
            run.retrieved("hop", [Passage("a")])

    drive(application())
    assert rg.flush(10)
    assert [len(run.steps) for run in rg.runs()] == [1]
    rg.close()


@pytest.mark.parametrize(
    ("module", "check"), [("gevent.monkey", "is_module_patched"), ("eventlet.patcher", "is_monkey_patched")]
)
def test_threads_that_another_library_has_replaced_are_refused_where_a_ragguard_is_made(
    monkeypatch, module, check
):
    monkeypatch.setitem(sys.modules, module, SimpleNamespace(**{check: lambda name: False}))
    RagGuard("nano", store=None).close()
    monkeypatch.setitem(
        sys.modules, module, SimpleNamespace(**{check: lambda name: name.startswith("thread")})
    )
    with pytest.raises(InvalidInput, match=f"patched by {module.partition('.')[0]}.*thread=False"):
        RagGuard("nano", store=None)

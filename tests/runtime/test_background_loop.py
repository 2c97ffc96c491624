"""The background loop: from sync code, from other loops, from loops that are closed under it, in a child."""

import asyncio
import threading
from concurrent.futures import CancelledError

import pytest
from support.child import in_child

from ragguard.errors import InvalidInput
from ragguard.runtime.threads import BackgroundLoop


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


def test_background_loop_serves_sync_code_inside_a_running_loop():
    loop = BackgroundLoop("background")

    async def host():
        return loop.run(where(), 10)

    assert loop.run(where(), 10) == "background"
    assert asyncio.run(host()) == "background"


async def test_background_loop_serves_another_loop_without_blocking_it():
    loop = BackgroundLoop("background")
    assert await asyncio.gather(*(loop.within(where()) for _ in range(20))) == ["background"] * 20


async def test_background_loop_raises_the_error_of_its_call_at_the_caller():
    async def fails():
        raise LookupError("there")

    with pytest.raises(LookupError, match="there"):
        await BackgroundLoop("background").within(fails())


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


def test_a_loop_that_is_closed_under_it_does_no_harm(caplog):
    loop = BackgroundLoop("background")
    go, done = threading.Event(), threading.Event()

    async def long():
        await asyncio.to_thread(go.wait, 10)
        done.set()

    async def host():
        waiting = loop.within(long())
        waiting.send(None)  # begun, and never awaited to its end: the host went away
        return waiting

    abandoned = asyncio.run(host())
    go.set()
    assert done.wait(10)
    assert loop.run(where(), 10) == "background"
    assert "exception calling callback" not in caplog.text
    abandoned.close()


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

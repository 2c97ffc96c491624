"""A pool of daemon threads: does what it is given, keeps its bound, survives a fork, holds no process."""

import asyncio
import threading

import pytest

from ragguard.runtime import threads
from ragguard.runtime.threads import DaemonThreads


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


def test_as_many_jobs_run_at_once_as_there_may_be_threads():
    pool, together = DaemonThreads(4, "some"), threading.Barrier(4)
    jobs = [pool.submit(together.wait, 20) for _ in range(4)]
    assert sorted(job.result(20) for job in jobs) == [0, 1, 2, 3]
    pool.shutdown()


def test_error_of_a_job_reaches_its_caller_and_the_thread_goes_on():
    pool = DaemonThreads(1, "some")
    with pytest.raises(SystemExit):
        pool.submit(lambda: exit(3)).result(10)
    assert pool.submit(lambda: "still here").result(10) == "still here"
    pool.shutdown()


async def test_a_job_that_raises_stop_iteration_does_not_keep_its_caller_waiting():
    pool = DaemonThreads(1, "some")
    with pytest.raises(RuntimeError, match="StopIteration"):
        await asyncio.wrap_future(pool.submit(next, iter(())))
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

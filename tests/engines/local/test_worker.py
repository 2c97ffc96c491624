"""The thread of one model: jobs without an end, and the end of the process."""

import asyncio
import gc
import threading

import pytest
from support.polling import aeventually

from ragguard.engines.local.local_engine import Worker
from ragguard.errors import Closed, EngineTimeout


async def test_closing_ends_a_job_after_its_batch_and_refuses_the_next():
    worker, begun = Worker("the model", lambda: 1), threading.Event()

    def batches(model, still_wanted):
        while True:
            begun.set()
            still_wanted()

    under_way = asyncio.create_task(worker.run(batches))
    await aeventually(begun.is_set)
    await worker.close()
    for job in (under_way, worker.run(batches)):
        with pytest.raises(Closed, match="the model was closed"):
            await job


async def test_queued_job_that_nobody_waits_for_any_more_ends_without_a_report_of_asyncio():
    worker, begun, release, reported = (
        Worker("the model", lambda: 1),
        threading.Event(),
        threading.Event(),
        [],
    )
    asyncio.get_running_loop().set_exception_handler(
        lambda loop, context: reported.append(context["message"])
    )

    def hold(model, still_wanted):
        begun.set()
        release.wait(30)

    first = asyncio.create_task(worker.run(hold))
    await aeventually(begun.is_set)
    queued = asyncio.create_task(worker.run(lambda model, still_wanted: 2))
    await asyncio.sleep(0)
    queued.cancel()
    with pytest.raises(asyncio.CancelledError):
        await queued
    release.set()
    await first
    assert await worker.run(lambda model, still_wanted: 3) == 3
    del queued
    gc.collect()
    await asyncio.sleep(0)
    assert reported == []


async def test_job_without_an_end_is_given_up_after_its_time(monkeypatch):
    monkeypatch.setattr("ragguard.engines.local.local_engine.JOB_S", 0.05)
    released = threading.Event()
    model = Worker("the model", lambda: None)
    try:
        with pytest.raises(EngineTimeout, match="the model"):
            await model.run(lambda *_: released.wait(60))
    finally:
        released.set()
        await model.close()

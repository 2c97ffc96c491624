"""The thread of one model: jobs without an end, and the end of the process."""

import asyncio
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
    worker.close()
    for job in (under_way, worker.run(batches)):
        with pytest.raises(Closed, match="the model was closed"):
            await job


async def test_job_without_an_end_is_given_up_after_its_time(monkeypatch):
    monkeypatch.setattr("ragguard.engines.local.local_engine.JOB_S", 0.05)
    released = threading.Event()
    model = Worker("the model", lambda: None)
    try:
        with pytest.raises(EngineTimeout, match="the model"):
            await model.run(lambda *_: released.wait(60))
    finally:
        released.set()
        model.close()

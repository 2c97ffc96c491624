"""The thread of one model at the end of the process."""

import concurrent.futures.thread

import pytest

from ragguard.engines.local.worker import Worker
from ragguard.errors import EngineUnreachable


async def test_job_after_the_end_of_main_is_a_retryable_error(monkeypatch):
    """Python's thread pools are closed then, though other threads may still serve."""
    worker = Worker("the model", lambda: 40)
    assert await worker.run(lambda model, still_wanted: model + 2) == 42
    monkeypatch.setattr(concurrent.futures.thread, "_shutdown", True)
    with pytest.raises(EngineUnreachable, match="ending") as raised:
        await worker.run(lambda model, still_wanted: model)
    assert raised.value.retryable
    await worker.close()

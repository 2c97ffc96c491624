"""What the user's code raises is a result; only the caller's own cancellation goes on."""

import asyncio

import pytest

from ragguard.runtime.outcome import result_or_error


async def test_a_result_is_returned():
    async def work():
        return 3

    assert await result_or_error(work) == 3


@pytest.mark.parametrize(
    "error", [ValueError(), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError()]
)
@pytest.mark.parametrize("coroutine", [False, True])
async def test_an_error_is_returned(error, coroutine):
    def work():
        raise error

    async def later():
        raise error

    found = await result_or_error(later if coroutine else work)
    assert type(found) is type(error)


async def test_a_caller_that_is_cancelled_is_cancelled_and_the_work_as_well():
    begun, ended = asyncio.Event(), []

    async def work():
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    caller = asyncio.ensure_future(result_or_error(work))
    await begun.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert ended == [True]

"""Faults of capture: counted, said once each, never raised; warnings: each subject once in a pause."""

from __future__ import annotations

import asyncio
import logging
from asyncio import CancelledError

import pytest

from ragguard.errors import StoreError
from ragguard.runtime.faults import Faults, Notices, describe, never_raises, result_or_error


class Hooks:
    def __init__(self):
        self.faults = Faults()

    @never_raises
    def hook(self, error=None, *, value=1):
        if error is not None:
            raise error
        return value


@pytest.mark.parametrize("error", [ValueError("x"), CancelledError(), AssertionError()])
def test_hook_that_fails_returns_none(error):
    hooks = Hooks()
    assert hooks.hook(value=3) == 3
    assert hooks.hook(error) is None
    assert hooks.faults.count == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_exception_of_the_host_passes_through_a_hook(error):
    with pytest.raises(error):
        Hooks().hook(error())


def test_each_kind_is_said_once_and_all_are_counted(caplog):
    hooks = Hooks()
    with caplog.at_level(logging.ERROR, "ragguard.capture"):
        for _ in range(50):
            hooks.hook(ValueError("same"))
        hooks.hook(KeyError("other"))
    assert hooks.faults.count == 51
    assert [record.getMessage().split(" ")[0] for record in caplog.records] == ["Hooks.hook", "Hooks.hook"]


def test_an_error_without_words_is_told_by_its_kind():
    assert describe(ValueError("no")) == "ValueError: no"
    assert describe(TimeoutError()) == "TimeoutError"


def test_an_error_of_ragguards_own_is_logged_without_its_traceback(caplog):
    for error in (StoreError("look at the disk"), ValueError("odd")):
        try:
            raise error
        except (StoreError, ValueError) as raised:
            Faults().note("the sink", raised)
    assert caplog.text.count("Traceback") == 1
    assert "StoreError: look at the disk" in caplog.text


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


def test_a_subject_is_logged_at_once_and_again_after_the_pause(caplog):
    now = [0.0]
    notices = Notices(lambda: now[0])
    with caplog.at_level(logging.WARNING, "ragguard"):
        for _ in range(5):
            notices.warn("disk", "the disk is full", 60)
        notices.warn("engine", "the engine is away", 60)
        now[0] = 61.0
        notices.warn("disk", "the disk is full", 60)
    assert [record.getMessage() for record in caplog.records] == [
        "the disk is full", "the engine is away", "the disk is full",
    ]  # fmt: skip


def test_subject_that_is_logged_once_is_not_logged_again(caplog):
    notices = Notices()
    assert [notices.once("run", "a run without steps") for _ in range(3)] == [True, False, False]
    assert caplog.messages == ["a run without steps"]


def test_subjects_without_end_are_not_remembered_without_end(caplog):
    notices = Notices()
    assert sum(notices.once(f"subject {n}", "x") for n in range(1000)) == 256

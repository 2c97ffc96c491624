"""Calls engines and entailers of a user's own on a thread and an event loop of their own.

Such an object may block its thread, or never return. On its own thread it holds up neither a guard nor scoring, and a
call that takes too long is given up: with its thread, where that does not even answer any more.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar, cast

from ragguard.engines.base import Engine, EngineInfo
from ragguard.engines.engine import Layer, send_to
from ragguard.engines.entailer import Entailer
from ragguard.engines.requests import Reply, Request
from ragguard.errors import EngineProtocolError, EngineTimeout
from ragguard.runtime.deadline import in_words
from ragguard.runtime.faults import NOTICES, catch_exit
from ragguard.runtime.per_process import PerProcess
from ragguard.runtime.threads import BackgroundLoop

T = TypeVar("T")

CALL_S = 600.0
"""Seconds that one call of an engine of a user's own may take where nothing else is said."""
INFO_S = 1.0
"""Seconds for which the description of an engine is remembered."""
ANSWER_S = 1.0
"""Seconds within which the loop of a thread answers that is not blocked."""


class ForeignCalls:
    """The thread on which one object of a user's is called.

    Args:
        what: What the object is, in errors.
        seconds: How many seconds a call may take, the wait for calls that block the thread before it included.
    """

    def __init__(self, what: str, seconds: float = CALL_S) -> None:
        self._what, self._seconds = what, seconds
        self._given_up = 0
        self._loop = self._new_loop()

    def _new_loop(self) -> BackgroundLoop:
        """Returns a loop whose thread ends with this object."""
        loop = BackgroundLoop("ragguard-engine")
        weakref.finalize(self, loop.stop)
        return loop

    def stop(self) -> None:
        """Ends the thread; a further call starts another one."""
        self._loop.stop()

    async def result(self, work: Callable[[], Awaitable[T]]) -> T:
        """Returns the result of a call, made on the object's own loop; raises EngineTimeout for one that takes too
        long."""
        loop = self._loop
        limit = asyncio.timeout(self._seconds)
        try:
            async with limit:
                outcome = await loop.within(catch_exit(work))
        except TimeoutError:
            if not limit.expired():
                raise
            raise await self._too_long(loop) from None
        finally:
            del limit  # it holds the task, which holds its error, and that this frame
        if isinstance(outcome, SystemExit | KeyboardInterrupt):
            raise EngineProtocolError(f"the engine raised {type(outcome).__name__}({outcome})") from outcome
        return cast(T, outcome)

    async def _too_long(self, loop: BackgroundLoop) -> EngineTimeout:
        """Returns the error of a call that takes too long. Where its loop does not answer, further calls get another
        thread."""
        why = f"{self._what} has not returned from a call for {in_words(self._seconds)}"
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_S):
                await loop.within(asyncio.sleep(0))
                return EngineTimeout(f"{why}: the call was cancelled")
        if loop is self._loop:
            self._loop, self._given_up = self._new_loop(), self._given_up + 1
            NOTICES.warn(
                f"blocked {self._what}",
                f"{why} and blocks its thread, which is abandoned, {self._given_up} so far. Run blocking code in "
                f"`await asyncio.to_thread(...)`, with a time limit",
            )
        return EngineTimeout(f"{why} and blocks its thread: the thread was abandoned")


class ForeignEngine(Layer):
    """A layer around an engine or an entailer of a user's own, which is called on a thread of its own.

    Args:
        engine: The engine, or the entailer.
        seconds: How many seconds a call may take.
    """

    def __init__(self, engine: Engine | Entailer, seconds: float = CALL_S) -> None:
        super().__init__(cast(Engine, engine))  # layers send it requests, which call its verbs
        what = f"the {'engine' if isinstance(engine, Engine) else 'entailer'} {type(engine).__name__}"
        self._calls = PerProcess(lambda: ForeignCalls(what, seconds))
        self._info: tuple[float, EngineInfo] | None = None

    async def send(self, request: Request) -> Reply:
        """Sends the request to the engine."""
        return await self._calls.get().result(lambda: send_to(self._engine, request))

    async def info(self) -> EngineInfo:
        """Returns the description of the engine, which is asked for at most once a second: each call needs it."""
        if self._info is None or time.monotonic() - self._info[0] > INFO_S:
            self._info = time.monotonic(), await self._calls.get().result(self._engine.info)
        return self._info[1]

    async def aclose(self) -> None:
        """Closes the engine, and ends its thread."""
        calls = self._calls.get()
        await calls.result(self._engine.aclose)
        calls.stop()

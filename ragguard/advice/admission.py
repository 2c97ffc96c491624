"""Admits a few calls for advice at once, so that under load some are judged in time instead of all too late.

Judging needs the processor between the engine's answers. Calls without a limit share it, and all of them are late. How
many are judged at once follows what the machine can do: fewer after one that was late, more with each that was not. The
newest call goes first: it has most of its budget left, where the oldest would be judged half and given up.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ragguard.errors import EngineTimeout
from ragguard.runtime.deadline import seconds_left
from ragguard.runtime.limiter import WorkWindow

AT_ONCE = 48
"""The number of calls that are judged at once at the most."""


class NotAdmitted(Exception):
    """A call that would not be judged in time, since others are being judged."""


class AdviceAdmission:
    """Admits calls of any thread, the newest first: `async with admission.admitted(deadline): …`"""

    def __init__(self) -> None:
        self._window = WorkWindow(AT_ONCE, least=1, most=AT_ONCE)
        self._calls = itertools.count()
        self._took_s = 0.0
        """How long the latest judgement took: a call with less time left would be given up half-way."""

    @asynccontextmanager
    async def admitted(self, deadline: float) -> AsyncIterator[None]:
        """Waits until the call may begin; raises NotAdmitted where too little time would be left to judge."""
        latest = deadline - min(self._took_s, seconds_left(deadline) / 4)
        try:
            place = await self._window.enter(1, -next(self._calls), latest)
        except EngineTimeout:
            raise NotAdmitted from None
        began = time.monotonic()
        try:
            yield
        finally:
            ended = time.monotonic()
            self._took_s = ended - began
            if ended < deadline:
                self._window.soon(1)
            else:
                self._window.late(began)
            place.leave()

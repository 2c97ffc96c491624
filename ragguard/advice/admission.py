"""Admits a few calls for advice at once, so that under load some are judged in time instead of all too late.

Judging needs the processor between the engine's answers. Calls without a limit share it, and all of them are late.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ragguard.runtime.deadline import seconds_left
from ragguard.runtime.limiter import Limiter

AT_ONCE = 16
"""Calls that are judged at once. With 8, `benchmarks/advice_load.py` finds fewer judged; with 32, calls come later."""


class AdviceAdmission:
    """Admits calls first come, first served: `async with admission.admitted(deadline): …`"""

    def __init__(self) -> None:
        self._limiter = Limiter(AT_ONCE, per_loop=True)
        self._took_s = 0.0
        """How long the latest judgement took: a call with less time left would be given up half-way."""

    @asynccontextmanager
    async def admitted(self, deadline: float) -> AsyncIterator[None]:
        """Waits until the call may begin; raises EngineTimeout where too little time would be left to judge."""
        latest = deadline - min(self._took_s, seconds_left(deadline) / 2)
        async with self._limiter.admitted(deadline=latest):
            began = time.monotonic()
            yield
            self._took_s = time.monotonic() - began

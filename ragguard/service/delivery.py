"""Scored runs to the sinks: one at a time each, and one that fails or hangs never stops the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from ragguard.capture.faults import Faults, is_cancelled
from ragguard.sinks.base import ScoredRun, Sink

SINK_SECONDS = 30.0
"""How long a sink may take for one run."""


_OURS = (KeyboardInterrupt, SystemExit, GeneratorExit)
"""What ends more than a sink's turn."""


class Delivery:
    """The sinks, and each one's turn."""

    def __init__(
        self,
        sinks: Iterable[Sink],
        faults: Faults,
        count: Callable[[str], None],
        late: Callable[[], Sink | None] | None = None,
    ) -> None:
        """`late` gives one more sink once there is one; it is asked until then."""
        self._sinks, self._faults, self._count, self._late = list(sinks), faults, count, late
        self.begin()

    def begin(self) -> None:
        """Nobody is under way: at first, and in a forked child."""
        self._turns: dict[int, asyncio.Lock] = {}

    def __bool__(self) -> bool:
        if self._late is not None and (sink := self._late()) is not None:
            self._sinks.append(sink)
            self._late = None
        return bool(self._sinks)

    async def submit(self, scored: ScoredRun) -> None:
        """Hands a scored run to every sink. Never raises; what a sink loses is counted."""
        await asyncio.gather(*(self._submit(sink, scored) for sink in self._sinks))

    async def _submit(self, sink: Sink, scored: ScoredRun) -> None:
        async with self._turns.setdefault(id(sink), asyncio.Lock()):
            await self._guarded(sink, lambda: sink.submit(scored), SINK_SECONDS)

    async def aclose(self, seconds: float) -> None:
        """Lets the sinks send what they still hold."""
        await asyncio.gather(*(self._guarded(sink, sink.aclose, seconds) for sink in self._sinks))

    async def _guarded(self, sink: Sink, work: Callable[[], Awaitable[None]], seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await work()
        except BaseException as error:  # a sink is the user's code
            if isinstance(error, _OURS) or is_cancelled(error):
                raise
            self._faults.note(f"the sink {type(sink).__name__}", error)
            self._count("sink_failures")

"""Delivers scored runs to the sinks, to each one run at a time; a sink that fails or hangs never stops the others."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ragguard.records import ScoredRun
from ragguard.runtime.faults import Faults, describe
from ragguard.runtime.outcome import outcome
from ragguard.runtime.protocols import implements
from ragguard.service.span_output import SpanOutput
from ragguard.sinks.base import BufferingSink, Sink
from ragguard.store.store import Store

SINK_SECONDS = 30.0
"""The most seconds that a sink may take for one run."""
_CAUSE_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Undelivered:
    """A loss on the way to a sink."""

    what: str
    """The kind of what was lost, and its destination, such as `scored runs to PhoenixSink`."""
    count: int
    cause: str = ""
    """The last error, where the sink raised one."""

    def __str__(self) -> str:
        cause = f" ({self.cause})" if self.cause else ""
        return f"{self.count:,} {self.what} not delivered{cause}"


class Delivery:
    """Sends scored runs to the sinks and counts what did not reach them."""

    def __init__(self, output: SpanOutput, store: Store, faults: Faults) -> None:
        self._output, self._store, self._faults = output, store, faults
        self._sinks = output.sinks()
        self._awaits_application = output.awaits_application
        self.begin()

    def begin(self) -> None:
        """Starts with no run in progress and nothing undelivered: at first, and in a forked child."""
        self._turns: dict[int, asyncio.Lock] = {}
        self._failed: Counter[str] = Counter()
        self._causes: dict[str, str] = {}
        self._under_way: dict[str, set[str]] = {}
        """The ids of the runs that a sink was given and has not taken, by the sink's name."""

    def __bool__(self) -> bool:
        if self._awaits_application and (sink := self._output.of_application()) is not None:
            self._sinks.append(sink)
            self._awaits_application = False
        return bool(self._sinks)

    @property
    def buffers(self) -> bool:
        """True where a sink sends later what it takes now, and so has to be flushed."""
        return any(implements(sink, BufferingSink) for sink in self._sinks)

    def undelivered(self) -> tuple[Undelivered, ...]:
        """Returns what did not reach its sink, and what buffering sinks could not send when they were last flushed."""
        found = Counter(self._failed)
        for sink in self._sinks:
            if implements(sink, BufferingSink):
                found.update(sink.undelivered())
        return tuple(Undelivered(what, count, self._causes.get(what, "")) for what, count in found.items())

    def under_way(self) -> tuple[str, ...]:
        """Returns the names of the sinks that were given a run and have neither taken it nor failed."""
        return tuple(sorted(name for name, runs in self._under_way.items() if runs))

    async def submit(self, scored: ScoredRun) -> None:
        """Gives a scored run to every sink. Never raises; losses of a sink are counted."""
        await asyncio.gather(*(self._submit(sink, scored) for sink in self._sinks))

    async def _submit(self, sink: Sink, scored: ScoredRun) -> None:
        name, run_id = type(sink).__name__, scored.run.id
        self._under_way.setdefault(name, set()).add(run_id)
        async with self._turns.setdefault(id(sink), asyncio.Lock()):
            error = await self._guarded(sink, lambda: sink.submit(scored), SINK_SECONDS)
        # A delivery that is cancelled stays under way, so that the report at the end still names its sink.
        self._under_way[name].discard(run_id)
        if error is not None:
            what = f"scored runs to {name}"
            self._failed[what] += 1
            self._causes[what] = describe(error)[:_CAUSE_CHARACTERS]

    async def flush(self) -> None:
        """Makes the buffering sinks send what they hold. Never raises; `undelivered` says what did not arrive."""
        await asyncio.gather(*(self._flush(sink) for sink in self._sinks if implements(sink, BufferingSink)))

    async def _flush(self, sink: BufferingSink) -> None:
        error = await outcome(sink.flush)
        if error is not None:
            self._faults.note(f"flushing the sink {type(sink).__name__}", error)

    async def aclose(self, seconds: float) -> None:
        """Closes the sinks; each sends what it still holds, within `seconds`."""
        await asyncio.gather(*(self._guarded(sink, sink.aclose, seconds) for sink in self._sinks))

    async def _guarded(
        self, sink: Sink, work: Callable[[], Awaitable[None]], seconds: float
    ) -> BaseException | None:
        """Awaits work of a sink within its timeout; returns the error, which is counted and logged, or None."""

        async def in_time() -> None:
            async with asyncio.timeout(seconds):
                await work()

        error = await outcome(in_time)
        if error is not None:
            self._faults.note(f"the sink {type(sink).__name__}", error)
            self._store.count("sink_failures")
        return error

"""Delivers scored runs to the sinks, to each one run at a time; a sink that fails or hangs never stops the others.

Deliveries are tasks of their own: scoring goes on meanwhile. It waits only for a sink that works and is slower than
scoring, so that the runs in memory are bounded.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from ragguard.errors import Closed, MissingDependency
from ragguard.records import ScoredRun
from ragguard.runtime.circuit_breaker import RetrySchedule
from ragguard.runtime.faults import NOTICES, Faults, describe, result_or_error
from ragguard.service.configuration import Configuration
from ragguard.storage.sqlite.store import Store
from ragguard.telemetry.sink import BufferingSink, DestinationAway, Sink, SpanSink
from ragguard.text.secret_filter import without_secrets

SINK_SECONDS = 30.0
"""The most seconds that a sink may take for one run."""
MOST_WAITING = 256
"""The most runs that wait for one sink."""
_AWAY = RetrySchedule(first=1.0, longest=30.0)
"""The pauses after which a run is given again to a sink whose destination is away."""
_CAUSE_CHARACTERS = 200
_LOSSES = ("runs_dropped", "events_lost", "events_late", "events_refused", "sink_failures")


class SinkDelivery:
    """Gives scored runs to one sink, one at a time."""

    def __init__(self, sink: Sink, store: Store, faults: Faults) -> None:
        self.sink, self.name = sink, getattr(sink, "destination", "") or type(sink).__name__
        self._store, self._faults = store, faults
        self.waiting = 0
        """The number of runs that the sink was given and has neither taken nor failed to take."""
        self.taken = 0
        """The number of runs that the sink took."""
        self.lost = 0
        """The number of runs that did not reach the sink."""
        self.cause = ""
        """The last error of the sink."""
        self._late = False
        """True after a time-out, until the sink takes a run or refuses one in time."""
        self._turn, self._changed = asyncio.Lock(), asyncio.Event()

    async def room(self) -> None:
        """Waits while too many runs wait for the sink. A sink that has just timed out is not waited for: it loses what
        is too much."""
        while self.waiting >= MOST_WAITING and not self._late:
            self._changed.clear()
            await self._changed.wait()

    async def give(self, scored: ScoredRun) -> None:
        """Gives a run to the sink, after those before it. Never raises; a run that does not arrive is counted."""
        if self._late and self.waiting >= MOST_WAITING:
            self.lost += 1
            self._store.count("sink_failures")
            return
        self.waiting += 1
        async with self._turn:
            failures = 0
            while isinstance(
                error := await self.guarded(lambda: self.sink.submit(scored), SINK_SECONDS), DestinationAway
            ):
                failures += 1
                await asyncio.sleep(_AWAY.wait(failures))
            self._late = isinstance(error, TimeoutError)
            if error is None:
                self.taken += 1
            else:
                self.lost += 1
                self.cause = describe(error)[:_CAUSE_CHARACTERS]
        # A delivery that is cancelled stays counted, so that the report at the end still names its sink.
        self.waiting -= 1
        self._changed.set()

    async def guarded(self, work: Callable[[], Awaitable[None]], seconds: float) -> BaseException | None:
        """Awaits work of the sink within its timeout; returns the error, which is counted and logged, or None."""

        async def in_time() -> None:
            async with asyncio.timeout(seconds):
                await work()

        error = await result_or_error(in_time)
        if isinstance(error, TimeoutError) and not str(error):
            error = TimeoutError(f"not done within {seconds:g} s")
        if isinstance(error, DestinationAway):
            NOTICES.warn(
                f"sink {self.name} away", f"{error}; runs wait for it in the store, and are sent later"
            )
        elif error is not None:
            self._faults.note(f"the sink {self.name}", error)
            self._store.count("sink_failures")
        return error


class Delivery:
    """Sends scored runs to the sinks and counts what did not reach them."""

    def __init__(self, settings: Configuration, store: Store, faults: Faults) -> None:
        self._settings, self._store, self._faults = settings, store, faults
        self._to: list[SinkDelivery] = []
        for sink in settings.sinks:
            self._add(sink)
        if settings.makes_spans:
            self._add(self._span_sink())
        self._awaits_application = not (
            settings.makes_spans or any(isinstance(one.sink, SpanSink) for one in self._to)
        )
        """True where scores go to the application's own provider, once it has one."""
        self.sent_to = without_secrets(self._to[-1].name) if settings.forwards else ""
        """The address of the service that scores, where runs are captured alone and sent; else ''."""
        self._tasks: set[asyncio.Task[None]] = set()

    def __bool__(self) -> bool:
        if self._awaits_application and "opentelemetry.sdk.trace" in sys.modules:
            from ragguard.telemetry.otel import configured

            if configured():
                self._awaits_application = False
                self._add(self._span_sink())
        return bool(self._to)

    @property
    def delivered(self) -> int:
        """The most runs that a sink has taken."""
        return max((one.taken for one in self._to), default=0)

    @property
    def buffers(self) -> bool:
        """True where a sink sends later what it takes now, and so has to be flushed."""
        return any(isinstance(one.sink, BufferingSink) for one in self._to)

    def undelivered(self) -> tuple[str, ...]:
        """Says what did not reach its sink, and what buffering sinks could not send when they were last flushed."""
        said: list[str] = []
        for one in self._to:
            if one.lost:
                cause = f" ({one.cause})" if one.cause else ""
                what = "runs" if self.sent_to else "scored runs"
                said.append(f"{one.lost:,} {what} to {one.name} not delivered{cause}")
            if isinstance(one.sink, BufferingSink):
                said += [f"{count:,} {what} not delivered" for what, count in one.sink.undelivered().items()]
        return tuple(map(without_secrets, said))

    async def start(
        self, scored: ScoredRun, then: Callable[[], Awaitable[None]] | None = None
    ) -> asyncio.Task[None]:
        """Starts to give a scored run to every sink; `then` is awaited once each has taken it or failed.

        Losses of a sink are counted. Waits while too many runs wait for a sink that works.
        """
        for one in self._to:
            await one.room()
        task = asyncio.get_running_loop().create_task(self._give(scored, then))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _give(self, scored: ScoredRun, then: Callable[[], Awaitable[None]] | None) -> None:
        await asyncio.gather(*(one.give(scored) for one in self._to))
        error = None if then is None else await result_or_error(then)
        if error is not None and not isinstance(error, Closed):
            self._faults.note("noting a delivery", error)

    async def flush(self) -> None:
        """Makes the buffering sinks send what they hold. Never raises; `undelivered` says what did not arrive."""
        sinks = [one.sink for one in self._to if isinstance(one.sink, BufferingSink)]
        errors = await asyncio.gather(*(result_or_error(sink.flush) for sink in sinks))
        for sink, error in zip(sinks, errors, strict=True):
            if error is not None:
                self._faults.note(f"flushing the sink {type(sink).__name__}", error)

    async def aclose(self, seconds: float) -> None:
        """Cancels what no sink has taken yet and closes the sinks; each sends what it still holds, within `seconds`."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(one.guarded(one.sink.aclose, seconds) for one in self._to))

    def _add(self, sink: Sink) -> None:
        if isinstance(sink, SpanSink):
            sink.watch(self._depth, self._losses)
        self._to.append(SinkDelivery(sink, self._store, self._faults))

    def _span_sink(self) -> Sink:
        """Returns the sink for the spans that the settings or the application ask for, or for runs to be scored
        elsewhere."""
        settings = self._settings
        if settings.forwards and settings.otlp is not None:
            try:
                from ragguard.telemetry.forwarding import ForwardingSink
            except ImportError as error:
                package = "opentelemetry-exporter-otlp-proto-http"
                raise MissingDependency(package, "otlp=…", "otlp") from error
            return ForwardingSink(settings.otlp, settings.capture_content)
        from ragguard.telemetry.otel import OtelSink

        return OtelSink(
            settings.tracer_provider, otlp=settings.otlp, capture_content=settings.capture_content
        )

    def _depth(self) -> int:
        """Returns how many runs wait to be scored."""
        with suppress(Closed):  # an application's meter still asks after the end
            return self._store.left().pending
        return 0

    def _losses(self) -> Mapping[str, int]:
        """Returns how much was lost, by kind."""
        return {name: self._store.counts[name] for name in _LOSSES}

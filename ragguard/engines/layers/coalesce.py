"""Coalesce: calls that come within a few milliseconds become one batch.

Only requests of the same kind, parameters and priority merge, and only within one event loop. Each caller keeps its
own deadline, its own cancellation, and its own error when it was its prompt that broke the batch. That merging
changes no number is the engine's promise (see `base.Engine`).

Requests for different labels merge, too, where one token identifies each: all labels are then asked of all prompts, and
each caller gets its own. So a guard's two verdicts are one request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Hashable
from contextlib import suppress
from dataclasses import dataclass, field

from ragguard.engines.base import Engine
from ragguard.engines.engine import Layer, send_to
from ragguard.engines.requests import Reply, Request
from ragguard.errors import CircuitOpen, Closed, EngineError, EngineTimeout, InvalidInput
from ragguard.runtime.deadline import remaining, until


@dataclass(eq=False, slots=True)
class _CallBatch:
    """The calls that go out together, each known by an object of its own. All are of one event loop."""

    loop: asyncio.AbstractEventLoop
    group: Hashable
    requests: dict[object, Request] = field(default_factory=dict)
    """The requests of the callers that still wait."""
    prompts: int = 0
    labels: frozenset[str] = frozenset()
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the batch waits for no further calls."""
    task: asyncio.Task[dict[object, Reply | BaseException]] | None = None
    """Waits for further calls and asks the engine; no caller's cancellation reaches it. Returns the share of each."""


class Coalesce(Layer):
    """Merges concurrent calls into batches, so that a server computes them together.

    Args:
        engine: The engine that the layer wraps.
        window_ms: For how many milliseconds a batch waits for further calls, 0 to 1000.
        max_prompts: How many prompts a batch holds at most, 1 or more; a larger call goes on alone.
    """

    def __init__(self, engine: Engine, window_ms: float = 3.0, max_prompts: int = 256) -> None:
        if not 0 <= window_ms <= 1000:
            raise InvalidInput("window_ms", window_ms, "0 to 1000")
        if max_prompts < 1:
            raise InvalidInput("max_prompts", max_prompts, "1 or more")
        super().__init__(engine)
        self._window, self._max_prompts = window_ms / 1000, max_prompts
        # Keyed by loop: a batch belongs to one loop alone, so nothing here is shared between threads.
        self._open: dict[tuple[asyncio.AbstractEventLoop, Hashable], _CallBatch] = {}
        self._closed = False

    async def send(self, request: Request) -> Reply:
        """Sends the request in a batch with others, and returns its share of the reply."""
        if self._closed:
            raise Closed("this engine was closed; connect again")
        # The engine is looked at only where the labels of calls may differ.
        info = await self.info_within(request.deadline) if request.columns else None
        size = len(request.prompts)
        remaining(request.deadline, f"a call of {size} prompts")
        if not size or size >= self._max_prompts:
            return await send_to(self._engine, request)
        batch, caller = self._batch_for(request, request.group(info)), object()
        assert batch.task is not None
        batch.requests[caller] = request
        batch.prompts += size
        if batch.prompts == self._max_prompts:
            self._close_batch(batch)
        try:
            async with until(request.deadline, f"a merged call of {size} prompts"):
                share = (await asyncio.shield(batch.task))[caller]
            if isinstance(share, BaseException):
                raise share
            return share
        finally:
            del batch.requests[caller]
            if not batch.requests:
                self._close_batch(batch)
                batch.task.cancel()
                batch.task = None
            # Breaks the reference cycles of an error, this frame and the task that holds the error or the batch.
            share = batch = None  # type: ignore[assignment]

    async def aclose(self) -> None:
        """Refuses whoever still waits to be merged, and closes the wrapped engine."""
        self._closed = True
        for batch in list(self._open.values()):
            batch.loop.call_soon_threadsafe(self._close_batch, batch)
        await self._engine.aclose()

    def _batch_for(self, request: Request, group: Hashable) -> _CallBatch:
        """Returns the open batch of the group if the request still goes in, else a new one."""
        loop = asyncio.get_running_loop()
        batch = self._open.get((loop, group))
        if batch is not None:
            labels = batch.labels | request.columns
            apart = labels != batch.labels and _may_begin_alike(labels)
            if batch.prompts + len(request.prompts) <= self._max_prompts and not apart:
                batch.labels = labels
                return batch
            self._close_batch(batch)
        batch = self._open[loop, group] = _CallBatch(loop, group, labels=request.columns)
        batch.task = loop.create_task(self._answered(batch))
        return batch

    def _close_batch(self, batch: _CallBatch) -> None:
        """Closes the batch for further callers and has it sent."""
        batch.ready.set()
        if self._open.get((batch.loop, batch.group)) is batch:
            del self._open[batch.loop, batch.group]

    async def _answered(self, batch: _CallBatch) -> dict[object, Reply | BaseException]:
        """Sends the calls of a batch as one when its time has come; returns each caller's share of the reply, or its
        error."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._window):
                await batch.ready.wait()
        self._close_batch(batch)
        callers, requests = [*batch.requests], [*batch.requests.values()]
        if self._closed:
            return dict.fromkeys(callers, Closed("the engine was closed before this call was sent"))
        whole = requests[0].joined(requests[1:])
        try:
            reply = await send_to(self._engine, whole)
            return dict(zip(callers, whole.shares(reply, requests), strict=True))
        except Exception as error:  # noqa: BLE001 - whatever it is, the callers get it
            if len(callers) == 1 or not _may_be_one_prompt(error):
                return dict.fromkeys(callers, error)
        alone = [send_to(self._engine, request) for request in requests]
        return dict(zip(callers, await asyncio.gather(*alone, return_exceptions=True), strict=True))


def _may_be_one_prompt(error: Exception) -> bool:
    """True where sending the callers' requests one by one may help some of them: not where the server itself fails."""
    if isinstance(error, CircuitOpen | EngineTimeout | Closed | OSError):
        return False
    return not (isinstance(error, EngineError) and error.retryable)


def _may_begin_alike(labels: Collection[str]) -> bool:
    """True where two labels may have one first token, so that an engine answers them another way together than alone:
    only if they have one first byte."""
    return len({label.strip().encode("utf-8", "replace")[:1] for label in labels}) < len(labels)

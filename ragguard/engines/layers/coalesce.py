"""`Coalesce`, the layer that makes one batch of the calls that come within a few milliseconds.

Only requests of the same kind, parameters and priority merge, and only within one event loop. Each caller keeps its
own deadline, its own cancellation, and its own error when it was its prompt that broke the batch. That merging
changes no number is the engine's promise (see `base.Engine`).

Requests for different labels merge, too, where one token identifies each: all labels are then asked of all prompts, and
each caller gets its own. So a guard's two verdicts are one request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Hashable
from dataclasses import dataclass, field
from typing import TypeAlias

from ragguard.engines.base import Engine
from ragguard.engines.engine import Layer, send_to
from ragguard.engines.requests import Reply, Request
from ragguard.errors import CircuitOpen, Closed, EngineError, EngineTimeout
from ragguard.runtime.arguments import number_between
from ragguard.runtime.deadline import until

_MOST_PROMPTS = 256
"""The most prompts of a batch of several calls."""
_Place: TypeAlias = tuple[asyncio.AbstractEventLoop, Hashable]
"""An event loop and a group of requests, of which one batch at a time takes further calls."""


@dataclass(eq=False, slots=True)
class _CallBatch:
    """The calls that go out together, each known by an object of its own. All are of one event loop."""

    labels: frozenset[str]
    requests: dict[object, Request] = field(default_factory=dict)
    """The requests of the callers that still wait."""
    task: asyncio.Task[dict[object, Reply | BaseException]] | None = None
    """Waits for further calls and asks the engine; no caller's cancellation reaches it. Returns the share of each."""


class Coalesce(Layer):
    """Merges concurrent calls into batches, so that a server computes them together.

    Args:
        engine: The engine that the layer wraps.
        window_ms: For how many milliseconds a batch waits for further calls, 0 to 1000.
    """

    def __init__(self, engine: Engine, window_ms: float = 3.0) -> None:
        super().__init__(engine)
        self._window = number_between("window_ms", window_ms, 0, 1000, "0 to 1000") / 1000
        # Keyed by loop: a batch belongs to one loop alone, so nothing here is shared between threads.
        self._open: dict[_Place, _CallBatch] = {}

    async def send(self, request: Request) -> Reply:
        """Sends the request in a batch with others, and returns its share of the reply."""
        info = await self.info_within(request.deadline)
        place = asyncio.get_running_loop(), request.group(info)
        batch, caller = self._batch_for(request, place), object()
        assert batch.task is not None
        batch.requests[caller] = request
        try:
            async with until(request.deadline, f"a merged call of {len(request.prompts)} prompts"):
                share = (await asyncio.shield(batch.task))[caller]
            if isinstance(share, BaseException):
                raise share
            return share
        finally:
            del batch.requests[caller]
            if not batch.requests:
                self._close_batch(place, batch)
                batch.task.cancel()
                batch.task = None
            # Breaks the reference cycles of an error, this frame and the task that holds the error or the batch.
            share = batch = None  # type: ignore[assignment]

    def _batch_for(self, request: Request, place: _Place) -> _CallBatch:
        """Returns the open batch at a place if the request still goes in, else a new one."""
        batch = self._open.get(place)
        if batch is not None:
            labels = batch.labels | request.columns
            size = sum(len(other.prompts) for other in (*batch.requests.values(), request))
            if size <= _MOST_PROMPTS and (labels == batch.labels or not _may_begin_alike(labels)):
                batch.labels = labels
                return batch
        batch = self._open[place] = _CallBatch(request.columns)
        batch.task = place[0].create_task(self._answered(place, batch))
        return batch

    def _close_batch(self, place: _Place, batch: _CallBatch) -> None:
        """Closes the batch for further callers."""
        if self._open.get(place) is batch:
            del self._open[place]

    async def _answered(self, place: _Place, batch: _CallBatch) -> dict[object, Reply | BaseException]:
        """Sends the calls of a batch as one when its time has come; returns each caller's share of the reply, or its
        error."""
        await asyncio.sleep(self._window)
        self._close_batch(place, batch)
        callers, requests = [*batch.requests], [*batch.requests.values()]
        whole = requests[0].merged(requests[1:])
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

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
from dataclasses import dataclass, field
from typing import Any, Generic

from ragguard.engines.base import Engine, Prompt
from ragguard.engines.engine import Layer, send_to
from ragguard.engines.requests import R, Request
from ragguard.errors import CircuitOpen, Closed, EngineError, EngineTimeout, InvalidInput
from ragguard.runtime.deadline import remaining, until

# A rough estimate is enough, since it only bounds the size of a batch.
_CHARACTERS_PER_TOKEN = 4
_MOST_LABELS = 16
"""The most labels of one batch: each prompt is answered for every one of them."""


@dataclass(eq=False, slots=True)
class _Caller(Generic[R]):
    """A call that waits for its share of a batch's reply."""

    request: Request[R]
    tokens: int
    answer: asyncio.Future[R]


@dataclass(eq=False, slots=True)
class _CallBatch:
    """The calls that go out together."""

    group: Hashable
    loop: asyncio.AbstractEventLoop
    callers: list[_Caller[Any]] = field(default_factory=list)
    labels: frozenset[str] = frozenset()
    prompts: int = 0
    tokens: int = 0
    timer: asyncio.TimerHandle | None = None
    task: asyncio.Task[None] | None = None
    """The task that asks the engine, once the batch is sent."""


class Coalesce(Layer):
    """Merges concurrent calls into batches, so that a server computes them together.

    Args:
        engine: The engine that the layer wraps.
        window_ms: For how many milliseconds a batch waits for further calls, 0 to 1000.
        max_prompts: How many prompts a batch holds at most; a larger call goes on alone.
        max_tokens: How many tokens a batch holds at most, estimated.
    """

    def __init__(
        self, engine: Engine, window_ms: float = 3.0, max_prompts: int = 256, max_tokens: int = 131_072
    ) -> None:
        if not 0 <= window_ms <= 1000:
            raise InvalidInput("window_ms", window_ms, "0 to 1000")
        for name, value in (("max_prompts", max_prompts), ("max_tokens", max_tokens)):
            if value < 1:
                raise InvalidInput(name, value, "1 or more")
        super().__init__(engine)
        self._window = window_ms / 1000
        self._max_prompts, self._max_tokens = max_prompts, max_tokens
        # Keyed by loop: a batch belongs to one loop alone, so nothing here is shared between threads.
        self._open: dict[tuple[asyncio.AbstractEventLoop, Hashable], _CallBatch] = {}
        self._closed = False

    async def send(self, request: Request[R]) -> R:
        """Sends the request in a batch with others, and returns its share of the reply."""
        if self._closed:
            raise Closed("this engine was closed; connect again")
        # The engine is looked at only where the labels of calls may differ.
        group = (
            request.group(await self.info_within(request.deadline))
            if request.columns
            else request.group(None)
        )
        size = len(request.prompts)
        remaining(request.deadline, f"a call of {size} prompts")
        tokens = sum(_tokens(prompt) + request.output_tokens for prompt in request.prompts)
        if not size or size >= self._max_prompts or tokens >= self._max_tokens:
            return await send_to(self._engine, request)
        batch = self._batch_for(request, group, tokens)
        caller = _Caller[R](request, tokens, batch.loop.create_future())
        batch.callers.append(caller)
        batch.prompts += size
        batch.tokens += tokens
        if batch.prompts == self._max_prompts or batch.tokens >= self._max_tokens:
            self._close_batch(batch)
        try:
            async with until(request.deadline, f"a merged call of {size} prompts"):
                return await caller.answer
        finally:
            self._leave(batch, caller)
            del (
                caller
            )  # Breaks the reference cycle between an error, this frame and the future that holds the error.

    async def aclose(self) -> None:
        """Refuses whoever still waits to be merged, and closes the wrapped engine."""
        self._closed = True
        for batch in list(self._open.values()):
            batch.loop.call_soon_threadsafe(self._refuse, batch)
        await self._engine.aclose()

    def _batch_for(self, request: Request[Any], group: Hashable, tokens: int) -> _CallBatch:
        """Returns the open batch of the group if this much still goes in, else a new one."""
        loop = asyncio.get_running_loop()
        batch = self._open.get((loop, group))
        if batch is not None:
            fits = batch.prompts + len(request.prompts) <= self._max_prompts
            labels = batch.labels | request.columns
            apart = labels != batch.labels and (len(labels) > _MOST_LABELS or _may_begin_alike(labels))
            if fits and batch.tokens + tokens <= self._max_tokens and not apart:
                batch.labels = labels
                return batch
            self._close_batch(batch)
        batch = self._open[loop, group] = _CallBatch(group, loop, labels=request.columns)
        batch.timer = loop.call_later(self._window, self._close_batch, batch)
        return batch

    def _close_batch(self, batch: _CallBatch) -> None:
        """Closes the batch for further callers and sends it, in a task that no caller's cancellation reaches."""
        if batch.timer is not None:
            batch.timer.cancel()
        if self._open.get((batch.loop, batch.group)) is batch:
            del self._open[batch.loop, batch.group]
        if batch.callers:
            batch.task = batch.loop.create_task(self._send_together(list(batch.callers)))

    def _leave(self, batch: _CallBatch, caller: _Caller[Any]) -> None:
        """Removes a caller that has its answer or was cancelled. A batch for which no caller waits is not sent."""
        if caller.answer.done() and not caller.answer.cancelled():
            caller.answer.exception()
        else:
            caller.answer.cancel()
        batch.callers = [other for other in batch.callers if other is not caller]
        if batch.task is None:
            batch.prompts -= len(caller.request.prompts)
            batch.tokens -= caller.tokens
            if not batch.callers:
                self._close_batch(batch)
        elif not batch.callers:
            batch.task.cancel()

    async def _send_together(self, callers: list[_Caller[Any]]) -> None:
        """Sends the calls as one; gives each caller its share of the reply, or the error, and empties the list."""
        requests = [caller.request for caller in callers]
        whole, apart = requests[0].joined(requests[1:]), False
        try:
            try:
                reply = await send_to(self._engine, whole)
                for caller, share in zip(callers, whole.shares(reply, requests), strict=True):
                    if not caller.answer.done():
                        caller.answer.set_result(share)
            except Exception as error:  # noqa: BLE001 - whatever it is, the callers get it
                apart = len(callers) > 1 and _may_be_one_prompt(error)
                if not apart:
                    _fail(callers, error)
            if apart:
                await asyncio.gather(*(self._send_together([caller]) for caller in callers))
        finally:
            while callers:
                # Only a cancelled task (the loop is being torn down) leaves someone without an answer. The list is
                # emptied: an error's frames hold this frame, which must not hold the futures that hold the error.
                callers.pop().answer.cancel()

    def _refuse(self, batch: _CallBatch) -> None:
        _fail(batch.callers, Closed("the engine was closed before this call was sent"))
        batch.callers = []
        self._close_batch(batch)


def _fail(callers: list[_Caller[Any]], error: Exception) -> None:
    """Gives the error to each caller that still waits."""
    for caller in callers:
        if not caller.answer.done():
            caller.answer.set_exception(error)


def _may_be_one_prompt(error: Exception) -> bool:
    """True where sending the callers' requests one by one may help some of them: not where the server itself fails."""
    if isinstance(error, CircuitOpen | EngineTimeout | Closed | OSError):
        return False
    return not (isinstance(error, EngineError) and error.retryable)


def _may_begin_alike(labels: Collection[str]) -> bool:
    """True where two labels may have one first token, so that an engine answers them another way together than alone:
    only if they have one first byte."""
    return len({label.strip().encode("utf-8", "replace")[:1] for label in labels}) < len(labels)


def _tokens(prompt: Prompt) -> int:
    return sum(len(message.content) for message in prompt.messages) // _CHARACTERS_PER_TOKEN + 1

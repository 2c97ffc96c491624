"""`Priority`, the layer that gives an engine as much at once as it answers in time, the most urgent first.

A call is cut into requests that fit the window (`runtime/limiter.py`). One that takes too long is asked again in
halves. What is answered of a call that fails is kept for the next one, so that nothing is asked twice.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace

from ragguard.engines.base import Engine, EngineInfo
from ragguard.engines.engine import Layer, send_to
from ragguard.engines.requests import Item, Reply, Request, Value
from ragguard.errors import EngineTimeout, InvalidInput
from ragguard.records import Usage
from ragguard.runtime.limiter import LEAST, Place, WorkWindow, held_place

START = 2000
"""The tokens of work that are in flight at first."""
_BYTES_PER_WORK = 40
"""A token of four bytes is read in a tenth of the time in which one is written."""
_MOST_KEPT = 2000
"""The most answers of calls that failed that are kept."""


class Priority(Layer):
    """Bounds what an engine has to do at once; the lowest `priority` number goes first, then first come, first served.

    Calls with a priority below 0 (of guards and of advice, which bound their calls themselves) do not wait.

    Args:
        engine: The engine that the layer wraps.
        seconds: How long a request to the engine may take at most, more than 0.
        start: How many tokens the first requests write together, about; a token to read counts as a tenth.
    """

    def __init__(self, engine: Engine, seconds: float = 120.0, start: int = START) -> None:
        for name, value in (("seconds", seconds), ("start", start)):
            if not value > 0:
                raise InvalidInput(name, value, "more than 0")
        super().__init__(engine)
        self._seconds = seconds
        self._window = WorkWindow(start)
        self._kept: OrderedDict[bytes, Value] = OrderedDict()

    async def send(self, request: Request) -> Reply:
        """Sends the request in parts, each when its turn has come. Where one fails for good no further part is sent,
        and the call fails when those that were sent have ended."""
        if request.priority < 0:
            return await send_to(self._engine, request)
        info = await self.info_within(request.deadline)
        keys = request.keys(info) if self._kept else ()
        known = {at: self._kept[key] for at, key in enumerate(keys) if key in self._kept}
        rest = request.with_prompts([prompt for at, prompt in enumerate(request.prompts) if at not in known])
        if not known and self._fitting(rest, info) == len(rest.prompts):
            return await self._answer(rest, info, await self._enter(rest, info))
        began, parts = time.monotonic(), list[tuple[Request, Place]]()
        tasks = list[asyncio.Task[Reply]]()
        try:
            while rest.prompts and not any(task.done() and task.exception() for task in tasks):
                size = self._fitting(rest, info)
                piece, rest = rest.with_prompts(rest.prompts[:size]), rest.with_prompts(rest.prompts[size:])
                place = await self._enter(piece, info)
                parts.append((piece, place))
                tasks.append(asyncio.ensure_future(self._answer(piece, info, place)))
            if tasks:
                await asyncio.wait(tasks)
            replies = [task.result() for task in tasks]
        except BaseException:
            for task, (_, place) in zip(tasks, parts, strict=True):
                task.cancel()
                place.leave()  # a task that is cancelled before it begins gives nothing back itself
            replied = await asyncio.gather(*tasks, return_exceptions=True)
            for (piece, _), reply in zip(parts, replied, strict=True):
                if not isinstance(reply, BaseException):
                    self._keep(piece, reply.values, info)
            raise
        fresh = iter([value for reply in replies for value in reply.values])
        values = [known[at] if at in known else next(fresh) for at in range(len(request.prompts))]
        usage = sum((reply.usage for reply in replies), Usage(prompts=len(known), cached=len(known)))
        return Reply(values, replace(usage, seconds=time.monotonic() - began))

    def _fitting(self, request: Request, info: EngineInfo) -> int:
        """Returns how many of the request's prompts go out as one: one where the engine takes no more."""
        if not request.takes_many(info):
            return min(1, len(request.prompts))
        share, work = self._window.share, 0
        for at, prompt in enumerate(request.prompts):
            work += _work(request, prompt, info)
            if at and work > share:
                return at
        return len(request.prompts)

    async def _enter(self, piece: Request, info: EngineInfo) -> Place:
        work = sum(_work(piece, prompt, info) for prompt in piece.prompts)
        return await self._window.enter(max(LEAST, work), piece.priority, piece.deadline)

    async def _answer(self, piece: Request, info: EngineInfo, place: Place) -> Reply:
        """Returns the reply to a request that has its place; in halves where it takes too long."""
        began, alone = time.monotonic(), place.need >= self._window.size
        token = held_place.set(place)
        try:
            reply = await send_to(self._engine, piece)
            if place.overloads:
                self._window.late(began)
            else:
                self._window.answered(place.need, began, self._seconds)
            return reply
        except EngineTimeout:
            middle = len(piece.prompts) // 2
            if (piece.deadline is not None and time.monotonic() >= piece.deadline) or (alone and not middle):
                raise
            self._window.late(began)
        finally:
            held_place.reset(token)
            place.leave()
        if not middle:
            return await self._answer(piece, info, await self._enter(piece, info))
        halves = [
            await self.send(piece.with_prompts(half))
            for half in (piece.prompts[:middle], piece.prompts[middle:])
        ]
        return Reply([*halves[0].values, *halves[1].values], halves[0].usage + halves[1].usage)

    def _keep(self, part: Request, values: Sequence[Value], info: EngineInfo) -> None:
        """Keeps what a call that failed had answered."""
        if part.repeatable:
            self._kept.update(zip(part.keys(info), values, strict=True))
            while len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)


def _work(request: Request, prompt: Item, info: EngineInfo) -> int:
    """Returns the work that one prompt is, in tokens to write."""
    return request.written(info) + prompt.size // _BYTES_PER_WORK

"""The limiter bounds how many calls run at once; the most urgent of the waiting callers goes first. A window is a
limiter of work: its size follows how much work has ended in time.

`in_parallel` makes several calls at once with a limiter of its own; `bounded` works on a stream of items, a few at a
time, so that memory does not grow with their number.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import threading
import time
from bisect import bisect_left, insort
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Coroutine, Iterable
from contextlib import aclosing, suppress
from contextvars import ContextVar
from types import TracebackType
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from ragguard.errors import InvalidInput
from ragguard.runtime.deadline import until

S = TypeVar("S")
T = TypeVar("T")


class Limiter:
    """Admits callers as long as slots are free: `async with limiter.admitted(): …`

    The lowest `priority` number goes first, then first come, first served; no caller overtakes another one because it
    needs less. Threads and event loops may share a limiter.

    Args:
        size: How many slots there are. A caller that needs more is admitted alone.
        per_loop: Each event loop has so many slots of its own, and waits for no other loop.
    """

    def __init__(self, size: int, *, per_loop: bool = False) -> None:
        self.size = self._free = size
        self._lock = threading.Lock()
        self._order = itertools.count()
        self._waiting: list[tuple[int, int, Place]] = []
        """The waiting callers by priority and order, in the order in which they are admitted."""
        # Not asyncio's semaphores, which keep a reference to their event loop for ever.
        self._of_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Limiter] | None = (
            WeakKeyDictionary() if per_loop else None
        )

    @property
    def taken(self) -> int:
        """The slots that are held."""
        return self.size - self._free

    def resize(self, size: int) -> None:
        """Changes the number of slots; callers that are in stay."""
        with self._lock:
            self.size, self._free = size, self._free + size - self.size
            self._admit()

    def admitted(self, need: int = 1, *, priority: int = 0, deadline: float | None = None) -> Place:
        """Returns a context that waits for `need` slots and holds them; raises EngineTimeout at the deadline."""
        limiter = self
        if self._of_loop is not None:
            loop = asyncio.get_running_loop()
            limiter = self._of_loop.get(loop) or self._of_loop.setdefault(loop, Limiter(self.size))
        return Place(limiter, need, priority, deadline)

    def enter(self, caller: Place, priority: int) -> bool:
        """Admits a caller, or puts it behind those that wait; returns whether it is in."""
        with self._lock:
            caller.key = priority, next(self._order)
            insort(self._waiting, (*caller.key, caller))
            self._admit()  # an urgent call may need fewer slots than the one that waited first
            if not caller.is_in:
                caller.turn = asyncio.get_running_loop().create_future()
            return caller.is_in

    def leave(self, caller: Place) -> None:
        """Removes a caller: one that was admitted gives its slots back, one that waits leaves the line."""
        with self._lock:
            if caller.is_in:
                caller.is_in = False
                self._free += caller.need
            else:
                del self._waiting[bisect_left(self._waiting, caller.key)]
            self._admit()

    def _admit(self) -> None:
        """Admits the next waiting callers, as long as they fit or would be alone. The lock must be held."""
        while self._waiting and (self._waiting[0][2].need <= self._free or self._free >= self.size):
            *_, caller = self._waiting.pop(0)
            self._free -= caller.need
            caller.let_in()


class Place:
    """The slots of one caller of a limiter: the context that waits for them and holds them."""

    # A class instead of a generator: hundreds may wait at once, and each object is work for the garbage collector.
    __slots__ = ("_deadline", "_limiter", "_priority", "is_in", "key", "need", "overloads", "turn")

    key: tuple[int, int]
    """The caller's priority, and its number."""

    def __init__(self, limiter: Limiter, need: int, priority: int, deadline: float | None) -> None:
        self._limiter, self.need, self._priority, self._deadline = limiter, need, priority, deadline
        self.is_in = False
        self.overloads = False
        """True once the engine was too busy for the call."""
        self.turn: asyncio.Future[None] | None = None
        """Done once a caller that has to wait is let in."""

    def let_in(self) -> None:
        """Wakes the caller, which has its slots, on its own event loop. The limiter's lock must be held."""
        self.is_in = True
        if self.turn is None:
            return
        if self.turn.get_loop() is asyncio._get_running_loop():
            _wake(self.turn)
        else:
            # RuntimeError: the event loop was closed meanwhile. The slots come back with garbage collection.
            with suppress(RuntimeError):
                self.turn.get_loop().call_soon_threadsafe(_wake, self.turn)

    async def __aenter__(self) -> None:
        if self._limiter.enter(self, self._priority) or self.turn is None:
            return
        try:
            async with until(self._deadline, "a call that waited for its turn"):
                await self.turn
        except BaseException:  # cancelled or late, perhaps just when it was admitted
            self._limiter.leave(self)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def leave(self) -> None:
        """Gives the slots back; the second time it does nothing."""
        if self.is_in:
            self._limiter.leave(self)


held_place: ContextVar[Place | None] = ContextVar("ragguard_place", default=None)
"""The place that the current task's call holds in a limiter."""


async def sleep_outside(seconds: float, *, overloads: bool = False) -> None:
    """Sleeps; meanwhile others get the slots that the current task's call holds. Raises EngineTimeout if the deadline
    comes before the call has slots again. `overloads`: the engine was too busy for the call."""
    place = held_place.get()
    if place is not None:
        place.overloads |= overloads
    if place is None or not place.is_in:
        await asyncio.sleep(seconds)
        return
    place.leave()
    await asyncio.sleep(seconds)
    await place.__aenter__()


def _wake(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)


async def in_parallel(
    calls: Iterable[Callable[[], Coroutine[Any, Any, T]]], at_once: int | None = None
) -> list[T]:
    """Returns the answers of calls in order, made up to `at_once` at a time (None: all together); the first failure
    cancels the others."""
    todo = list(calls)
    if len(todo) == 1:  # one call needs no task of its own
        return [await todo[0]()]
    limiter = None if at_once is None else Limiter(at_once)

    async def one(call: Callable[[], Coroutine[Any, Any, T]], limiter: Limiter) -> T:
        async with limiter.admitted():
            return await call()

    tasks: list[asyncio.Future[T]] = [
        asyncio.ensure_future(call() if limiter is None else one(call, limiter)) for call in todo
    ]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        await _cancelled(tasks)
        raise


async def _cancelled(tasks: list[asyncio.Future[T]]) -> None:
    """Cancels tasks, and waits until they have ended."""
    ended = asyncio.gather(*tasks, return_exceptions=True)
    while tasks:  # a task, its error and the caller's frame would hold each other
        tasks.pop().cancel()
    await ended


async def bounded(
    items: Iterable[S] | AsyncIterable[S], work: Callable[[S], Awaitable[T]], at_once: int
) -> AsyncGenerator[T, None]:
    """Yields results as they come; takes the next item when fewer than `at_once` are in progress."""
    under_way: set[asyncio.Future[T]] = set()
    async with aclosing(_each(items)) as source:
        try:
            async for item in source:
                under_way.add(asyncio.ensure_future(work(item)))
                if len(under_way) >= at_once:
                    done, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                    for task in done:
                        yield task.result()
            while under_way:
                done, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    yield task.result()
        finally:
            await _cancelled(list(under_way))


async def _each(items: Iterable[S] | AsyncIterable[S]) -> AsyncGenerator[S, None]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        try:
            source = iter(items)
        except Exception as error:
            raise InvalidInput("runs", items, "runs that can be iterated") from error
        for item in source:
            yield item


LEAST = 250
"""The least work that a request to an engine counts as, and the least window of an engine."""
_SOON, _LATE = 0.25, 0.5
"""The shares of the longest time within which an answer comes soon, and after which it comes late."""
_PACE_S = 2.0
"""An engine that did some work in a time is given at least as much as it would do in so many seconds at that pace."""


class WorkWindow:
    """Bounds the work that is under way at once by what has been shown to end in time. The most urgent caller goes
    first, and one with more work than the window alone.

    It follows TCP's rule: it grows as long as work ends soon, and halves when some ends late.

    Args:
        start: The work that is given at once before anything is known.
        least: The least window; once some work was late, the window grows by so much in a round.
        most: The largest window.
    """

    def __init__(self, start: int, least: int = LEAST, most: float = math.inf) -> None:
        self._limiter, self._least, self._most = Limiter(start), least, most
        self._size, self._growing_fast, self._halved = float(start), True, 0.0

    @property
    def size(self) -> int:
        """The most work that is given at once."""
        return self._limiter.size

    @property
    def share(self) -> int:
        """The most work of one request, so that the next one waits at the engine when its answer leaves."""
        return max(self._least, self.size // 2)

    async def enter(self, work: int, priority: int, deadline: float | None) -> Place:
        """Waits until there is room for some work, and returns the place that it takes."""
        place = self._limiter.admitted(work, priority=priority, deadline=deadline)
        await place.__aenter__()
        return place

    def answered(self, work: int, began: float, seconds: float) -> None:
        """Notes that an engine has done some work, given at `began` (on the monotonic clock), which might take so many
        seconds at most."""
        took = max(1e-6, time.monotonic() - began)
        if took > seconds * _LATE:
            self.late(began)
        elif took < seconds * _SOON:
            self.soon(work, work / took * _PACE_S)

    def soon(self, work: int, pace: float = 0.0) -> None:
        """Notes that some work has ended soon. The window grows where half of it is used, and to `pace` at least."""
        more = work if self._growing_fast else self._least * work / self.size
        used = self._limiter.taken * 2 >= self.size
        self._resize(max(self._size + more * used, pace))

    def late(self, began: float) -> None:
        """Notes that work given at `began` was not done in time. The window halves once for all work given by then."""
        self._growing_fast = False
        if began > self._halved:
            self._halved = time.monotonic()
            self._resize(self._size / 2)

    def _resize(self, size: float) -> None:
        self._size = min(self._most, max(self._least, size))
        self._limiter.resize(int(self._size))

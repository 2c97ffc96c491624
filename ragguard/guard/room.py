"""Room for so many at once on an event loop; the others wait in line, with next to nothing in hand.

Hundreds of guards may be called at once on one loop. One at a time writes prompts, so that the loop stays free for
what must not be late: the budgets. And no more passages are judged at once than an engine takes: prompts beyond
that would stand about until their budgets end, and each object in them is work for Python's garbage collector,
whose pauses make all guards late.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakKeyDictionary


class Room:
    """At most `size` at once on each loop, first come, first served; who needs more than all gets all."""

    def __init__(self, size: int) -> None:
        self._size = size
        # Not asyncio's locks: they know their loop, and would keep it for ever.
        self._lines: WeakKeyDictionary[asyncio.AbstractEventLoop, _Line] = WeakKeyDictionary()

    @asynccontextmanager
    async def for_(self, many: int) -> AsyncIterator[None]:
        """`async with room.for_(len(passages)): …`"""
        line = self._lines.setdefault(asyncio.get_running_loop(), _Line(self._size))
        need = min(many, self._size)
        await line.enter(need)
        try:
            yield
        finally:
            line.leave(need)


class _Line:
    """Those of one loop."""

    def __init__(self, free: int) -> None:
        self._free = free
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def enter(self, need: int) -> None:
        self._let_in()
        if not self._waiting and need <= self._free:
            self._free -= need
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((need, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._let_in()
            else:  # it had just been let in
                self.leave(need)
            raise

    def leave(self, need: int) -> None:
        self._free += need
        self._let_in()

    def _let_in(self) -> None:
        while self._waiting:
            need, turn = self._waiting[0]
            if not turn.cancelled():
                if need > self._free:
                    return
                self._free -= need
                turn.set_result(None)
            self._waiting.popleft()

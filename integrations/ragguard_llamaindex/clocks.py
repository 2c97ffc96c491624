"""Numbers the turns of a run's retrievals by the order of the calls, and not by when they start or end.

Each call has a clock. A retrieval takes its call's time as its turn, and moves the clocks of all calls around it on.
Calls that run in parallel begin at the same time; the calls after them begin behind the longest of them.
"""

from __future__ import annotations

import threading
from contextvars import ContextVar

from ragguard.capture.open_runs import Order

_lock = threading.RLock()


class CallClock:
    """The clock of one call; its time is counted in turns of the run."""

    __slots__ = ("_around", "_begin", "_children", "_open", "now", "order")

    def __init__(self, now: int = 0, around: CallClock | None = None, order: Order = ()) -> None:
        self.now = now
        """The turn of a retrieval that begins now."""
        self.order = order
        """The position of the call among those that run in parallel, from the outermost to the innermost."""
        self._around = around
        self._begin = now
        """The common start of the open calls inside."""
        self._open = 0
        self._children = 0

    def inside(self, start: int | None = None, rank: int | None = None) -> CallClock:
        """Returns the clock of a call inside this one. The call begins at `start`, or else together with the open
        calls, but not before those that ended in its own context. `rank` is its position among parallel calls."""
        with _lock:
            self._children += 1
            if start is None:
                if not self._open:
                    self._begin = self.now
                seen = _seen.get()
                start = self._begin
                if seen is not None and seen[0] is self:
                    start = max(start, seen[1])
            self._open += 1
            order = self.order
            if rank is not None or self._open > 1:
                order = (*order, (self._children if rank is None else rank, ""))
            return CallClock(start, self, order)

    def tick(self) -> int:
        """Returns the turn of a retrieval that begins now, and moves the clock on."""
        with _lock:
            turn = self.now
            clock: CallClock | None = self
            while clock is not None:
                clock.now = max(clock.now, turn + 1)
                clock = clock._around
            return turn

    def ended(self) -> None:
        """Notes that the call has ended: calls that begin in the same context from now on follow it."""
        around = self._around
        if around is not None:
            with _lock:
                around._open = max(around._open - 1, 0)
            _seen.set((around, self.now))

    def reach(self, time: int) -> None:
        """Moves this clock forward to another clock's time, unless calls inside are open."""
        if not self._open:
            self.now = max(self.now, time)


_seen: ContextVar[tuple[CallClock, int] | None] = ContextVar("ragguard_llamaindex_time", default=None)
"""The clock of the call inside which a call was the last to end in this context, and the time at that end."""

"""Numbers the turns of retrievals by the order of the calls in the call tree, and not by when they start or end.

Each call has a clock. A retrieval takes its call's time as its turn and moves the clocks of all calls around it on. A
call that begins after its siblings have ended begins at their latest time. Calls that run in parallel begin at the same
time, and the calls after them begin behind the longest of them.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, TypeAlias
from uuid import UUID

from ragguard.capture.open_runs import Order

Rank: TypeAlias = tuple[int, str]
_lock = threading.RLock()
_PUSH = "__pregel_push"
"""The first part of the path by which LangGraph names a node that a `Send` began."""


class _Start:
    """The common start of calls that run in parallel; read when the first of them retrieves."""

    __slots__ = ("time",)

    def __init__(self) -> None:
        self.time = -1


class TreeClock:
    """The clock of one call; its time is counted in turns of the run."""

    __slots__ = ("_around", "_id", "_now", "_open", "_parallel", "_shared", "_start", "messages", "order")

    def __init__(self, now: int = 0) -> None:
        self._now = now
        self._around: TreeClock | None = None
        self._start: _Start | None = None
        self._id: UUID | None = None
        self._open: set[UUID] | None = None
        """The open calls inside that may overlap."""
        self._shared: _Start | None = None
        """The common start of the calls that are open."""
        self._parallel: dict[Hashable, _Start] | None = None
        """The common start of the calls that are known to be parallel, under the key that they share."""
        self.messages = 0
        """The number of messages that models have written in this call; the tool calls of one message are parallel."""
        self.order: Order = ()
        """The position of the call among those that run in parallel, from the outermost to the innermost."""

    def inside(
        self,
        id: UUID,
        *,
        parallel: Hashable = None,
        in_order: bool = False,
        rank: Rank | None = None,
    ) -> TreeClock:
        """Returns the clock of a call inside this one.

        Calls with the same `parallel` run in parallel; calls `in_order` follow each other, even where LangChain opens
        all of them at once. Other calls are parallel to those that are open when they begin.
        """
        clock = TreeClock(-1)
        clock._around, clock._id = self, id
        clock.order = self.order if rank is None else (*self.order, rank)
        if parallel is not None:
            if self._parallel is None:
                self._parallel = {}
            clock._start = self._parallel.setdefault(parallel, _Start())
        elif in_order:
            clock._start = _Start()
        else:
            with _lock:
                if self._open is None:
                    self._open = set()
                if not self._open or self._shared is None:
                    self._shared = _Start()
                self._open.add(id)
                clock._start = self._shared
        return clock

    def ended(self) -> None:
        """Notes that the call has ended: calls that begin from now on may follow it."""
        if self._around is not None and self._around._open and self._id is not None:
            self._around._open.discard(self._id)

    def reach(self, time: int) -> None:
        """Moves this clock forward to another clock's time, unless calls inside are open."""
        if not self._open:
            self._now = max(self._now, time)

    def tick(self) -> int:
        """Returns the turn of a retrieval that begins in this call now, and moves the clock on."""
        with _lock:
            turn = self._time()
            clock: TreeClock | None = self
            while clock is not None:
                if clock._time() <= turn:
                    clock._now = turn + 1
                clock = clock._around
        return turn

    def _time(self) -> int:
        if self._now < 0 and self._start is not None and self._around is not None:
            if self._start.time < 0:
                self._start.time = self._around._time()
            self._now = self._start.time
        return self._now


def node_clock(graph: TreeClock, id: UUID, metadata: Mapping[str, Any]) -> TreeClock:
    """Returns the clock of a node that begins.

    The nodes of one superstep run in parallel. A task of the functional API is parallel to the tasks that are open
    when it begins: the metadata do not say which results its caller has waited for.
    """
    path = metadata.get("langgraph_path")
    path = path if isinstance(path, (tuple, list)) else ()
    number = next((part for part in path[1:] if type(part) is int), None)
    if path and path[0] == _PUSH and isinstance(path[1], (tuple, list)):
        return graph.inside(id, rank=None if number is None else (number, ""))
    rank: Rank = (0, str(metadata.get("langgraph_node"))) if number is None else (number, "")
    return graph.inside(id, parallel=("superstep", metadata.get("langgraph_step")), rank=rank)


def rank_of_call(inputs: object, call_id: str) -> Rank | None:
    """Returns the position of a tool call among those of its message, read from the input of the node that runs it."""
    messages = inputs.get("messages") if isinstance(inputs, Mapping) else inputs
    if not isinstance(messages, Sequence) or isinstance(messages, str):
        return None
    for message in reversed(messages):
        calls = getattr(message, "tool_calls", None)
        if calls:
            ids = [call.get("id") for call in calls if isinstance(call, Mapping)]
            return (ids.index(call_id), "") if call_id in ids else None
    return None

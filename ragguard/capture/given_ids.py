"""The ids that users gave to the runs of this process: an id given twice is noticed without a look at the store."""

from __future__ import annotations

from collections import OrderedDict

IDS_KEPT = 10_000
"""How many given ids a process remembers; of older ones the store knows."""


class GivenIds:
    """The ids that users gave to the runs of this process, within a bound. Not thread-safe."""

    def __init__(self, limit: int = IDS_KEPT) -> None:
        self._ids: OrderedDict[str, None] = OrderedDict()
        self._limit = limit

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._ids

    def discard(self, run_id: str) -> None:
        """Forgets an id."""
        self._ids.pop(run_id, None)

    def add(self, run_id: str) -> None:
        """Remembers an id; the oldest goes when there are too many."""
        self._ids[run_id] = None
        self._ids.move_to_end(run_id)
        if len(self._ids) > self._limit:
            self._ids.popitem(last=False)

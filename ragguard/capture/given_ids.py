"""The ids that users gave in this process: one given twice is noticed without a look at the store."""

from __future__ import annotations

IDS_KEPT = 10_000
"""The number of given ids that a process remembers, and a run of its steps; the store knows older ones."""


class GivenIds:
    """The ids that users gave to runs, or to the steps of one run, within a bound. Not thread-safe."""

    __slots__ = ("_ids",)

    def __init__(self) -> None:
        self._ids: dict[str, None] = {}

    def take(self, id: str) -> bool:
        """Remembers an id; returns False for one that was given before."""
        is_new = id not in self._ids
        self.discard(id)
        self._ids[id] = None
        if len(self._ids) > IDS_KEPT:
            self.discard(next(iter(self._ids)))
        return is_new

    def discard(self, id: str) -> None:
        """Forgets an id."""
        self._ids.pop(id, None)

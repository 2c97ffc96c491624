"""Where each call of a framework's call tree belongs: which run, inside which retrieval or tool.

Frameworks report calls one by one, each with its parent's id. A place is what a call's
descendants need to know of it. Places live until their root ends or their run is closed, and
never grow beyond the bound.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

TurnKey: TypeAlias = tuple[Hashable, Hashable]
"""(group, branch): branches of one group run in parallel, steps of one branch follow each other."""


@dataclass(slots=True, eq=False)
class Place:
    """One open call in the tree."""

    id: Hashable
    run_id: str
    root: Place | None = None
    """None for the first call of the tree, which is its own root."""
    sampled: bool = True
    step_id: str = ""
    """The retrieval that this call is, or is a part of."""
    tool: str = ""
    """The tool that this call is, or is a part of."""
    turn: TurnKey | None = None
    notes: Any = None
    """What an integration remembers between a call's start and its end, or for the call's descendants."""
    members: set[Hashable] = field(default_factory=set)
    """Of a root: all open calls of its tree."""


class Places:
    """A bounded map of open calls; the oldest go first. Thread-safe."""

    def __init__(self, limit: int = 65_536) -> None:
        self._limit = limit
        self.clear()

    def clear(self) -> None:
        """Lets go of everything, and of a lock that another thread held when this process was forked."""
        self._lock = threading.RLock()
        self._places: dict[Hashable, Place] = {}
        self._roots: dict[str, set[Place]] = {}
        """Of each run, the roots of its trees."""

    def __len__(self) -> int:
        return len(self._places)

    def get(self, id: Hashable) -> Place | None:
        """The open call of that id."""
        return self._places.get(id)

    def put(self, id: Hashable, place: Place) -> bool:
        """Takes a call in; False when that id is known already (a handler that was attached twice)."""
        with self._lock:
            if self._places.setdefault(id, place) is not place:
                return False
            if place.root is None:
                self._roots.setdefault(place.run_id, set()).add(place)
            (place.root or place).members.add(id)
            if len(self._places) > self._limit:
                self.pop(next(iter(self._places)))
            return True

    def pop(self, id: Hashable) -> Place | None:
        """Lets go of a call that ended."""
        with self._lock:
            place = self._places.pop(id, None)
            if place is not None:
                (place.root or place).members.discard(id)
            return place

    def drop(self, root: Place) -> list[Place]:
        """Lets go of a root and of all that is still open in its tree; gives what was."""
        with self._lock:
            roots = self._roots.get(root.run_id)
            if roots is not None:
                roots.discard(root)
                if not roots:
                    del self._roots[root.run_id]
            left = [self._places.pop(id) for id in root.members if id in self._places]
            root.members.clear()
            return left

    def forget(self, run_id: str) -> None:
        """Lets go of all calls of a run."""
        with self._lock:
            for root in list(self._roots.get(run_id, ())):
                self.drop(root)

"""Where each node of a framework's call tree belongs: which run, inside which retrieval or tool.

Frameworks report calls one by one, each with its parent's id. A place is what a call's
descendants need to know of it. Places live until their run is closed, and never longer than
the bound allows.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

TurnKey: TypeAlias = tuple[Hashable, Hashable]
"""(group, branch): branches of one group run in parallel, steps of one branch follow each other."""


@dataclass(slots=True)
class Place:
    """One call in the tree."""

    id: Hashable
    run_id: str
    parent: Place | None = None
    step_id: str = ""
    """The retrieval that this call is, or is a part of."""
    tool: str = ""
    """The tool call that this call is, or is a part of."""
    turn: TurnKey | None = None
    owner: bool = False
    """True for the root that opened its run, and so has to end it."""
    notes: dict[str, Any] = field(default_factory=dict)
    """What an integration has to remember between a call's start and its end."""

    @property
    def is_root(self) -> bool:
        """True for the first call of the tree."""
        return self.parent is None


class Places:
    """A bounded map of open calls; the oldest go first. Thread-safe."""

    def __init__(self, limit: int = 65_536) -> None:
        self._limit = limit
        self._places: dict[Hashable, Place] = {}
        self._of_run: dict[str, set[Hashable]] = {}
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._places)

    def get(self, id: Hashable) -> Place | None:
        """The open call of that id."""
        return self._places.get(id)

    def put(self, place: Place) -> bool:
        """Takes the call in; False when that id is there already (a handler that was attached twice)."""
        with self._lock:
            if self._places.setdefault(place.id, place) is not place:
                return False
            self._of_run.setdefault(place.run_id, set()).add(place.id)
            if len(self._places) > self._limit:
                self.pop(next(iter(self._places)))
            return True

    def pop(self, id: Hashable) -> Place | None:
        """Lets go of a call that ended."""
        with self._lock:
            place = self._places.pop(id, None)
            if place is not None and (siblings := self._of_run.get(place.run_id)) is not None:
                siblings.discard(id)
                if not siblings:
                    del self._of_run[place.run_id]
            return place

    def forget(self, run_id: str) -> None:
        """Lets go of all calls of a run."""
        with self._lock:
            for id in self._of_run.pop(run_id, ()):
                self._places.pop(id, None)

    def clear(self) -> None:
        """Lets go of everything, and of a lock that another thread held when this process was forked."""
        self._lock = threading.RLock()
        self._places, self._of_run = {}, {}

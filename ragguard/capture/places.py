"""Where each call of a framework's call tree belongs: which run, inside which retrieval or tool.

Frameworks report calls one by one, each with its parent's id. A place is what a call's
descendants need to know of it. Places live until their root ends or their run is closed, and
never grow beyond the bound.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

TurnKey: TypeAlias = tuple[Hashable, Hashable]
"""(group, branch): branches of one group run in parallel, steps of one branch follow each other."""

N = TypeVar("N")


@dataclass(slots=True, eq=False)
class Place(Generic[N]):
    """One open call in the tree."""

    id: Hashable
    run_id: str
    notes: N
    """What an integration remembers for the call's descendants."""
    root: Place[N] | None = None
    """None for the first call of the tree, which is its own root."""
    sampled: bool = True
    step_id: str = ""
    """The retrieval that this call is, or is a part of."""
    is_step: bool = False
    """True where this call itself is that retrieval."""
    tool: str = ""
    """The tool that this call is, or is a part of."""
    turn: TurnKey | None = None
    started_ns: int = 0
    members: set[Hashable] | None = None
    """Of a root: the open calls below it."""


class Places(Generic[N]):
    """A bounded map of open calls; the oldest go first.

    Without a lock, since it is on every call's path: each line is one operation of a dictionary or
    a set, which is whole by itself, and what a race leaves behind goes with its root or the bound.
    """

    def __init__(self, limit: int = 65_536) -> None:
        self._limit = limit
        self._places: dict[Hashable, Place[N]] = {}
        self._roots: dict[str, Place[N]] = {}
        """By the run that a tree is."""

    def __len__(self) -> int:
        return len(self._places)

    def clear(self) -> None:
        """Lets go of everything."""
        self._places.clear()
        self._roots.clear()

    def get(self, id: Hashable) -> Place[N] | None:
        """The open call of that id."""
        return self._places.get(id)

    def plant(self, root: Place[N], *, owner: bool) -> None:
        """Takes in the first call of a tree; the `owner` of a run goes when that is closed."""
        root.members = set()
        self._places[root.id] = root
        if owner:
            self._roots[root.run_id] = root
        self._bound()

    def put(self, id: Hashable, place: Place[N], root: Place[N]) -> None:
        """Takes a call in. The calls of an unsampled run may all share the place of their root."""
        self._places[id] = place
        if root.members is not None:
            root.members.add(id)
        self._bound()

    def pop(self, id: Hashable) -> Place[N] | None:
        """Lets go of a call that ended; of a root, `drop` lets go of what is left below it."""
        place = self._places.pop(id, None)
        if place is not None:
            members = (place.root or place).members
            if members:
                members.discard(id)
        return place

    def drop(self, root: Place[N]) -> list[Place[N]]:
        """Lets go of a root and of all that is still open below it; gives the latter."""
        self._places.pop(root.id, None)
        if self._roots.get(root.run_id) is root:
            del self._roots[root.run_id]
        left = []
        while root.members:
            place = self._places.pop(root.members.pop(), None)
            if place is not None and place is not root:
                left.append(place)
        return left

    def forget(self, run_id: str) -> None:
        """Lets go of all calls of the tree that is that run."""
        root = self._roots.get(run_id)
        if root is not None:
            self.drop(root)

    def _bound(self) -> None:
        if len(self._places) > self._limit:
            self.pop(next(iter(self._places), None))

    def roots_before(self, started_ns: int) -> list[Place[N]]:
        """The roots that began before an instant."""
        places = list(self._places.values())
        return [place for place in places if place.root is None and place.started_ns < started_ns]

"""Where each call of LangChain's call tree belongs: which run, inside which retrieval or tool.

LangChain reports calls one by one, each with its parent's id. A place is what a call's
descendants need to know of it. Places live until their root ends or their run is closed, and
never grow beyond the bound.
"""

from __future__ import annotations

import weakref
from asyncio import Task
from typing import Any, Generic, TypeVar
from uuid import UUID

from ragguard_langchain.clock import TreeClock
from ragguard_langchain.stack import Where

N = TypeVar("N")


class Place(Generic[N]):
    """One open call in the tree. What is not said of it is read from the class: a place is made for every call."""

    root: Place[N] | None = None
    """None for the first call of the tree, which is its own root."""
    sampled = True
    inputs: object = None
    """The input of the call; kept for nodes of a graph and for calls that make one text of documents."""
    stuffs = False
    """True for a classic stuff chain, whose text of documents is known with the call of its model's chain."""
    models = 0
    """How often a model had been asked in the run when the call began; kept for calls that are given documents."""
    formats = False
    """True for a call that makes one text of documents."""
    step_id = ""
    """The retrieval that this call is, or is a part of."""
    outer_step = ""
    """Of a retrieval that is a part of another one: that one."""
    is_step = False
    """True where this call itself is that retrieval."""
    tool = ""
    """The tool that this call is, or is a part of."""
    condenses = False
    """True in a history-aware retriever, which has a model write the question that stands by itself."""
    query = ""
    """Of a retrieval."""
    around: Place[N] | None = None
    """Of a retrieval: an open one that the code seems to be inside of."""
    task: weakref.ref[Task[Any]] | None = None
    """Of a root that says nothing when it is cancelled: the task that runs it."""
    gone_ns = 0
    """When that task was first found to be over."""
    started_ns = 0
    began_in: Where | None = None
    """Of a retrieval."""
    over = False
    """Of a retrieval: told by the places that are open."""
    members: set[UUID | None] | None = None
    """Of a root: the open calls below it."""

    def __init__(self, id: UUID, run_id: str, notes: N, clock: TreeClock | None = None) -> None:
        self.id, self.run_id, self.notes = id, run_id, notes
        self.clock = clock or TreeClock()


class Places(dict[UUID | None, Place[N]], Generic[N]):
    """The open calls by their ids, within a bound; the oldest go first.

    Without a lock, since it is on every call's path: each line is one operation of a dictionary or
    a set, which is whole by itself, and what a race leaves behind goes with its root or the bound.
    """

    def __init__(self, limit: int = 65_536) -> None:
        super().__init__()
        self._limit = limit
        self._trees: dict[str, Place[N]] = {}
        """The roots of the trees that are runs, by run."""

    def plant(self, root: Place[N], *, owner: bool) -> None:
        """Takes in the first call of a tree; one that is the `owner` of its run goes when that is closed."""
        root.members = set()
        self[root.id] = root
        if owner:
            self._trees[root.run_id] = root
        if len(self) > self._limit:
            self.take(next(iter(self)))

    def grow(self, id: UUID, place: Place[N], root: Place[N]) -> None:
        """Takes in a further call. The calls of an unsampled run may all share the place of their root."""
        self[id] = place
        if root.members is not None:
            root.members.add(id)
        if len(self) > self._limit:
            self.take(next(iter(self)))

    def take(self, id: UUID | None) -> Place[N] | None:
        """Lets go of a call that ended; of a root, `fell` lets go of what is left below it."""
        place = self.pop(id, None)
        if place is not None:
            members = (place.root or place).members
            if members:
                members.discard(id)
        return place

    def fell(self, root: Place[N]) -> list[Place[N]]:
        """Lets go of a root and of all that is still open below it; gives the latter."""
        self.pop(root.id, None)
        if self._trees.get(root.run_id) is root:
            del self._trees[root.run_id]
        left = []
        while root.members:
            place = self.pop(root.members.pop(), None)
            if place is not None and place is not root:
                left.append(place)
        return left

    def forget(self, run_id: str) -> None:
        """Lets go of all calls of the tree that is that run."""
        root = self._trees.get(run_id)
        if root is not None:
            self.fell(root)

    def roots(self) -> list[Place[N]]:
        """The first calls of all trees."""
        return [place for place in list(self.values()) if place.root is None]

    def clear(self) -> None:
        """Lets go of everything."""
        super().clear()
        self._trees.clear()

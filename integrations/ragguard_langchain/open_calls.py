"""The open calls of LangChain's call tree, each with the run, the retrieval and the tool that it belongs to.

LangChain reports calls one by one, each with its parent's id. An `OpenCall` is what
the calls below it need to know of it. It lives until the outermost call of its tree ends or its run is
closed, and at most 65,536 are kept.
"""

from __future__ import annotations

import weakref
from asyncio import Task
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from ragguard.capture.decisions import Verdict
from ragguard.capture.events import Branch, TurnKey
from ragguard.records import TraceContext
from ragguard_langchain.tree_runs import TreeRun


@dataclass(slots=True)
class ToolCall:
    """A tool call under way, and the steps made in it."""

    name: str
    query: str
    id: str
    started_ns: int
    outer: ToolCall | None = None
    metadata: Mapping[str, Any] | None = None
    trace: TraceContext | None = None
    """The span that another instrumentation has made of the tool call."""
    steps: list[str] = field(default_factory=list)
    """The steps made in this call and in the tool calls inside of it."""

    def add(self, step_id: str) -> None:
        """Remembers a step that was made in this call."""
        call: ToolCall | None = self
        while call is not None:
            call.steps.append(step_id)
            call = call.outer


@dataclass(slots=True)
class Scope:
    """The state of a call that the calls inside it inherit."""

    run: TreeRun
    graph_node: str = ""
    """LangGraph's name for the node execution that the call is in."""
    tool: ToolCall | None = None


@dataclass(frozen=True, slots=True, eq=False)
class VerdictReport:
    """A guard's verdict, with the query and the tool call whose result was judged."""

    verdict: Verdict
    query: str
    tool: str = ""
    """The name of the tool whose result was judged; empty where no tool's result was."""
    call: str = ""
    """The id of the tool call whose result was judged."""
    started_ns: int = 0
    """The time at which the tool call began, in nanoseconds since 1970."""
    metadata: Mapping[str, Any] | None = None
    """The node of the graph and the agent in whose call the tool's result was judged."""


class OpenCall:
    """An open call in the tree. Default values stay on the class, since a hook makes an object of it for every call."""

    root: OpenCall | None = None
    """None for the first call of the tree, which is its own root."""
    sampled = True
    messages = 0
    """The number of messages that models have written in this call; the tool calls of one message are parallel."""
    step_id = ""
    """The id of the retrieval that this call is, or is a part of."""
    outer_step = ""
    """The id of the retrieval around this one, for a retrieval that is a part of another one."""
    is_step = False
    """True where this call itself is that retrieval."""
    tool = ""
    """The name of the tool that this call is, or is a part of."""
    condenses = False
    """True in a history-aware retriever, which has a model rewrite the question without references to the history."""
    query = ""
    """The query of a retrieval."""
    task: weakref.ref[Task[Any]] | None = None
    """The task that runs a root that reports nothing when it is cancelled."""
    gone_ns = 0
    """The time at which `task` was first found to be over."""
    started_ns = 0
    members: set[UUID | None] | None = None
    """The open calls below a root."""

    def __init__(self, id: UUID, run_id: str, notes: Scope, turn: TurnKey = ()) -> None:
        self.id, self.run_id, self.notes, self.turn = id, run_id, notes, turn
        """`turn` has the parallel branches that the call is in."""

    def branch_of_call(self, id: UUID) -> Branch:
        """Returns the branch of a tool call inside this call: the tool calls of one message are parallel."""
        return ("calls", self.id, self.messages), id


class OpenCalls(dict[UUID | None, OpenCall]):
    """The open calls by their ids, within a bound; beyond it the oldest are forgotten.

    There is no lock, since every call uses this class: each line is one atomic operation of a dictionary or a set, and
    entries that a race leaves behind are removed with their root or by the bound.
    """

    def __init__(self, limit: int = 65_536) -> None:
        super().__init__()
        self._limit = limit
        self._trees: dict[str, OpenCall] = {}
        """The roots of the trees that are runs, by the run's id."""

    def add_root(self, root: OpenCall, *, owner: bool) -> None:
        """Adds the first call of a tree. With `owner` the tree is the run, so that `forget` of the run removes it."""
        root.members = set()
        self[root.id] = root
        if owner:
            self._trees[root.run_id] = root
        if len(self) > self._limit:
            self.take(next(iter(self)))

    def add(self, id: UUID, open_call: OpenCall, root: OpenCall) -> None:
        """Adds a call below a root. All calls of an unsampled run share the `OpenCall` of their root."""
        self[id] = open_call
        if root.members is not None:
            root.members.add(id)
        if len(self) > self._limit:
            self.take(next(iter(self)))

    def take(self, id: UUID | None) -> OpenCall | None:
        """Removes and returns a call that has ended; below a root, `remove_tree` removes what is left."""
        open_call = self.pop(id, None)
        if open_call is not None:
            members = (open_call.root or open_call).members
            if members:
                members.discard(id)
        return open_call

    def remove_tree(self, root: OpenCall) -> list[OpenCall]:
        """Removes a root and all calls that are still open below it; returns the latter."""
        self.pop(root.id, None)
        if self._trees.get(root.run_id) is root:
            del self._trees[root.run_id]
        left = []
        while root.members:
            open_call = self.pop(root.members.pop(), None)
            if open_call is not None and open_call is not root:
                left.append(open_call)
        return left

    def forget(self, run_id: str) -> None:
        """Removes all open calls of the tree that is the run of this id."""
        root = self._trees.get(run_id)
        if root is not None:
            self.remove_tree(root)

    def roots(self) -> list[OpenCall]:
        """Returns the first calls of all trees."""
        return [open_call for open_call in list(self.values()) if open_call.root is None]

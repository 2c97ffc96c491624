"""Reads LangGraph's metadata of a call: its node, the superstep and the graph of the node, and the caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from ragguard_langchain.clock import Rank, TreeClock

_PUSH = "__pregel_push"


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

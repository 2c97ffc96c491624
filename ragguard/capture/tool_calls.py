"""Reads the requests for tools in a message, and whose results it holds, in the form of any framework or provider."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple


class ToolCall(NamedTuple):
    """A request of a model for a tool."""

    id: str
    arguments: str
    """The arguments as JSON."""


def _part(item: Any, *names: str) -> Any:
    """Returns the first of these parts of a mapping or an object that it has."""
    for name in names:
        value = item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)
        if value is not None:
            return value
    return None


def _blocks_of(message: Any) -> list[Any]:
    """Returns the blocks of a message's content."""
    if isinstance(message, (list, tuple)):
        return []
    held = [_part(message, name) for name in ("content", "parts", "blocks")]
    return [block for one in held if isinstance(one, (list, tuple)) for block in one]


def calls_of(message: Any) -> list[ToolCall]:
    """Returns the requests for tools in a message, in the form of any framework or provider."""
    if isinstance(message, (list, tuple)):
        return []
    more = _part(message, "additional_kwargs")
    listed = _part(message, "tool_calls") or (_part(more, "tool_calls") if more else None)
    kinds = ("tool_call", "tool_use", "function_call", "tool-call")
    blocks = [one for one in _blocks_of(message) if _part(one, "type", "block_type") in kinds]
    calls: dict[ToolCall, None] = {}
    for one in [*(listed if isinstance(listed, (list, tuple)) else ()), *blocks]:
        function = _part(one, "function")
        given = _part(
            one if function is None else function, "args", "arguments", "tool_kwargs", "input", "toolInput"
        )
        calls[
            ToolCall(str(_part(one, "id", "tool_call_id", "toolCallId", "call_id") or ""), json_text(given))
        ] = None
    return list(calls)


def json_text(arguments: Any) -> str:
    """Returns arguments as JSON, in one order of their names."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return str(arguments)
    return json.dumps(arguments, sort_keys=True, ensure_ascii=False, default=str)


def results_of(message: Any) -> list[str]:
    """Returns the ids of the requests for tools whose results a message holds."""
    if isinstance(message, (list, tuple)):
        return []
    more = _part(message, "additional_kwargs")
    ids = [_part(message, "tool_call_id", "toolCallId"), _part(more, "tool_call_id") if more else None]
    ids += [_part(_part(one, "origin"), "id") for one in _part(message, "tool_call_results") or ()]
    blocks = (
        one
        for one in _blocks_of(message)
        if _part(one, "type") in ("tool_result", "tool_call_response", "tool-result")
    )
    ids += [_part(block, "tool_use_id", "toolCallId", "id") for block in blocks]
    return [str(one) for one in ids if one]

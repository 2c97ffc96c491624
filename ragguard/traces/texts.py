"""Reads the texts in which frameworks log values on spans: JSON, Python's mappings, and reprs of messages."""

from __future__ import annotations

import ast
import json
import re
from contextlib import suppress
from typing import Any

from ragguard.capture.splitters import OBJECT, json_of

_CHAT_MESSAGE = re.compile(
    r"ChatMessage\(role=<MessageRole\.\w+: '(\w+)'>.*?(?=ChatMessage\(role=|\Z)", re.DOTALL
)
_TEXT_BLOCK = re.compile(r"text=('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")", re.DOTALL)
_LONGEST_REPR = 100_000


def parsed(value: Any) -> Any:
    """Returns what a text holds in JSON or as a mapping of Python's; anything else as it is."""
    if not isinstance(value, str):
        return value
    if len(value) > 1 and value[0] == value[-1] == '"':  # MLflow writes a text as JSON, too
        with suppress(ValueError):
            return json.loads(value)
    if value.startswith(("{'", "{}")) and len(value) < _LONGEST_REPR:
        return _literal(value, value)
    return json_of(value)


def logged(value: Any) -> Any:
    """Returns what a text holds, as `parsed` does, and the messages whose reprs stand in it."""
    value = parsed(value)
    if isinstance(value, str) and "ChatMessage(role=" in value:
        return [
            {
                "role": found[1],
                "content": "\n".join(_literal(one, one[1:-1]) for one in _TEXT_BLOCK.findall(found[0])),
            }
            for found in _CHAT_MESSAGE.finditer(value)
        ] or value
    return value


def said(value: Any) -> Any:
    """Returns what a text holds, as `logged` does; '' for the repr of an object, which nobody has asked or answered."""
    value = logged(value)
    return "" if isinstance(value, str) and OBJECT.match(value) else value


def _literal(text: str, otherwise: str) -> Any:
    """Returns the value that a text is in Python."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return otherwise

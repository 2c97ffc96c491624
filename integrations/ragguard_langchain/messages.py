"""Reads the outputs of LangChain's tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from langchain_core.messages import ToolMessage

from ragguard.capture.snapshot import text_of


def tool_text(output: object) -> tuple[str, bool]:
    """Returns the text of a tool's output, and whether it is the text of an error."""
    message = tool_message(output)
    if message is not None:
        return text_of(message.content)[0], message.status == "error"
    return text_of(output)[0] or ("" if output is None else str(output)), False


def block_texts(content: object) -> list[str]:
    """Returns the texts in a message's content: one text, or one for each block where the content comes in blocks."""
    if isinstance(content, (list, tuple)):
        return [text for text, _ in map(text_of, content) if text]
    return [text_of(content)[0]]


def tool_message(output: object) -> ToolMessage | None:
    """Returns the message in a tool's output; that of a graph command stands in the command's update."""
    if isinstance(output, ToolMessage):
        return output
    update = getattr(output, "update", None)
    messages = update.get("messages") if isinstance(update, Mapping) else None
    if isinstance(messages, Sequence):
        return next((one for one in reversed(messages) if isinstance(one, ToolMessage)), None)
    return None


Metadata: TypeAlias = Mapping[str, Any] | None
"""The metadata that LangChain tells of a call."""

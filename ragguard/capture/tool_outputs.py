"""Reads the output of a tool, in the form of any framework: its documents, its texts and its data, or its error.

A hook keeps the result without taking it apart; that happens when the step is read. The result is a value, a message of
LangChain (which may stand in a command of LangGraph) with an artifact, LlamaIndex's output around the function's value,
or MCP's result with content blocks and structured data.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragguard.capture.snapshot import documents_in, is_document, text_of
from ragguard.capture.splitters import Splitter, json_passages, passages_in_text, search_results
from ragguard.records import Passage
from ragguard.runtime.faults import NOTICES

_DATA = ("artifact", "raw_output", "structured_content", "structuredContent")
"""Names of what a tool's result holds beside the text that the model reads. The package `mcp` spells its fields in
snake case from version 2 on."""
_CONTENT = ("blocks", "content")
_FAILED = ("is_error", "isError")


def tool_message(output: object) -> Any:
    """Returns the message or the result in which a tool's output stands beside its text; None for any other output."""
    update = getattr(output, "update", None)
    messages = update.get("messages") if isinstance(update, Mapping) else None
    if isinstance(messages, Sequence):  # of a command
        return next((one for one in reversed(messages) if getattr(one, "type", "") == "tool"), None)
    if is_document(output) or not any(hasattr(output, name) for name in _DATA):
        return None
    return output if any(hasattr(output, name) for name in _CONTENT) else None


def tool_texts(output: object) -> tuple[list[str], bool]:
    """Returns the texts of a tool's output, one for each block of its content, and whether they are those of an error.
    FastMCP makes a block of each item of a list."""
    message = tool_message(output)
    if message is None:
        return [text_of(output)[0] or ("" if output is None else str(output))], False
    content = next(getattr(message, name) for name in _CONTENT if hasattr(message, name))
    blocks = content if isinstance(content, (list, tuple)) else [content]
    texts = [one.text if isinstance(getattr(one, "text", None), str) else text_of(one)[0] for one in blocks]
    failed = getattr(message, "status", "") == "error" or any(
        getattr(message, name, False) for name in _FAILED
    )
    return list(filter(None, texts)), failed


def _data_in(message: Any) -> Any:
    """Returns the data beside a message's text: its artifact, or the structured data of an MCP server."""
    data = next((held for name in _DATA if (held := getattr(message, name, None)) is not None), None)
    return data.get("structured_content", data) if isinstance(data, Mapping) else data


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The output of one call of a tool."""

    blocks: Sequence[str] = ()
    """The texts of the result."""
    structure: Any = None
    """The result as structured data, where the tool gave that as well."""
    error: BaseException | str | None = None
    """The error, or its text, where the tool failed."""
    documents: list[Any] | None = None
    """The documents that the tool gave; None where it gave something else."""
    any_list: bool = False
    """True where the output is a bare list, which says nothing where it is empty."""
    by_rule: bool = False
    """True where the documents are those of a search result that was recognised by its shape."""

    @classmethod
    def of(cls, output: object, *, declared: bool, by_rule: bool = False, text: str = "") -> ToolResult:
        """Reads a tool's output. Where it holds no documents, it is kept only for a tool that is `declared`; `text` is
        then the framework's text of an output of another kind. With `by_rule` a search result in any other form counts
        as documents."""
        message = tool_message(output)
        texts, failed = ([], False) if message is None else tool_texts(output)
        if failed:
            return cls(error="\n".join(texts))
        if hasattr(message, "raw_output"):
            return cls.of(message.raw_output, declared=declared, by_rule=by_rule, text="\n".join(texts))
        value = output if message is None else _data_in(message)
        blocks = getattr(message, "content", None)
        blocks = [one for one in blocks if isinstance(one, dict)] if isinstance(blocks, list) else []
        if results := [one for one in blocks if one.get("type") == "search_result"]:
            return cls(documents=search_results(results))
        documents = documents_in(value)
        if documents is not None or not (declared or by_rule):
            return cls(documents=documents, any_list=message is None and isinstance(value, (list, tuple)))
        if message is None and not isinstance(value, (Mapping, list, tuple)):
            value, texts = None, [value if isinstance(value, str) else text or str(value)]
        if declared:
            return cls(texts, _copied(value))
        found = search_results(value) or search_results([{"type": "text", "text": one} for one in texts])
        return cls(documents=found, by_rule=True) if found else cls()

    @property
    def text(self) -> str:
        """The whole result as one text, which is its passage where no splitter can take it apart."""
        return "\n".join(self.blocks) or json.dumps(self.structure, ensure_ascii=False, default=str)

    def split(self, splitter: Splitter) -> Iterable[str | Passage]:
        """Returns the splitter's passages of each text; where the splitter fails, the items of the structured data. A
        result without a text whose data are an empty list has none."""
        items = json_passages(self.structure)
        if not self.blocks and (self.structure is None or items == []):
            return []
        try:
            if search_results(self.text, declared=True) == []:
                return []  # JSON of nothing found, whatever the splitter makes of it
            passages = [passage for block in self.blocks or [self.text] for passage in splitter(block)]
            if passages or splitter is passages_in_text or not self.text.strip():
                return passages
            NOTICES.once(
                "a splitter that finds nothing",
                "a splitter in tools={...} found no passage in a tool's text, so the whole text is one passage. If "
                "the tool found nothing, let it return [] as data, or name the tool in a list, tools=[...]. (Logged "
                "once)",
            )
            return [self.text]
        except Exception:
            if items is None:
                raise
            return items


def _copied(value: Any, depth: int = 3) -> Any:
    """Returns a copy three levels deep: what holds the list of items, the list, and each item."""
    if depth and isinstance(value, Mapping):
        return {key: _copied(inner, depth - 1) for key, inner in value.items()}
    if depth and isinstance(value, (list, tuple)):
        return [_copied(inner, depth - 1) for inner in value]
    return value

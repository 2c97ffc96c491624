"""The result of a tool in the forms that tools use (text, JSON, MCP's content blocks), and the retrieval in it.

The hook keeps the result without reading it; the result is taken apart when the step is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragguard.capture.search_results import search_results
from ragguard.capture.shapes import documents_in
from ragguard.capture.splitters import Splitter, json_passages
from ragguard.records import Passage


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The output of one call of a tool."""

    blocks: Sequence[str] = ()
    """The texts of the result: one text, or with MCP one for each content block. FastMCP makes a content block of
    each item of a list."""
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
    def of(cls, output: object, text: str, *, declared: bool, by_rule: bool = False) -> ToolResult:
        """Reads a tool's output. Where it holds no documents, it is kept only for a tool that is `declared`; `text` is
        then the framework's text of it. With `by_rule` a search result in any other form counts as documents."""
        documents = documents_in(output)
        if documents is not None or not (declared or by_rule):
            return cls(documents=documents, any_list=isinstance(output, (list, tuple)))
        result = cls._read(output, text)
        if declared or result.error is not None:
            return result
        for form in (result.structure, [{"type": "text", "text": one} for one in result.blocks]):
            found = search_results(form)
            if found:
                return cls(documents=found, by_rule=True)
        return cls()

    @classmethod
    def _read(cls, output: object, text: str) -> ToolResult:
        content = getattr(output, "content", None)
        if isinstance(content, (list, tuple)) and (spelling := _mcp_spelling(output)):
            blocks = [block.text for block in content if isinstance(getattr(block, "text", None), str)]
            failed, structured = spelling
            error = "\n".join(blocks) if getattr(output, failed) else None
            return cls(blocks, getattr(output, structured, None), error)
        if isinstance(output, (Mapping, list, tuple)):
            return cls(structure=_copied(output))
        return cls([output if isinstance(output, str) else text])

    def is_retrieval(self, *, known: bool) -> bool:
        """True for a result with documents. An error and an empty list say it only of a tool that is `known` to give
        documents."""
        if self.error is not None or (self.any_list and not self.documents):
            return known
        return self.documents is not None

    @property
    def text(self) -> str:
        """The whole result as one text."""
        if self.blocks or self.structure is None:
            return "\n".join(self.blocks)
        return json.dumps(self.structure, ensure_ascii=False, default=str)

    def split(self, splitter: Splitter) -> Iterable[str | Passage]:
        """Returns the splitter's passages of each text; where the splitter fails, the items of the structured data. A
        result without a text whose data are an empty list has none."""
        if not self.blocks and (self.structure is None or json_passages(self.structure) == []):
            return []
        try:
            return [passage for block in self.blocks or [self.text] for passage in splitter(block)]
        except Exception:
            items = None if self.structure is None else json_passages(self.structure)
            if items is None:
                raise
            return items


def _mcp_spelling(output: object) -> tuple[str, str] | None:
    """Returns how MCP's CallToolResult spells whether it is an error, and its structured data; None for anything else.
    The package `mcp` spells both in snake case from version 2 on."""
    spellings = ("is_error", "structured_content"), ("isError", "structuredContent")
    return next((spelling for spelling in spellings if hasattr(output, spelling[0])), None)


def _copied(value: Any) -> Any:
    """Returns a copy two levels deep: the list of items, and each item."""
    if isinstance(value, Mapping):
        return {key: _copied_items(inner) for key, inner in value.items()}
    return _copied_items(value)


def _copied_items(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [dict(item) if isinstance(item, Mapping) else item for item in value]
    return value

"""The result of a tool in the forms that tools use (text, JSON, MCP's content blocks), and the retrieval in it.

The hook keeps the result without reading it; the result is taken apart when the step is read.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragguard.capture.delivered import DELIVERED, UNKNOWN, delivered
from ragguard.capture.events import Delivered
from ragguard.capture.splitters import Splitter, json_passages
from ragguard.records import Passage


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The output of one call of a declared tool."""

    blocks: Sequence[str]
    """The texts of the result: one text, or with MCP one for each content block. FastMCP makes a content block of
    each item of a list."""
    structure: Any = None
    """The result as structured data, where the tool gave that as well."""
    error: bool = False

    @classmethod
    def of(cls, output: object, text: str) -> ToolResult:
        """Wraps a tool's output; `text` is LlamaIndex's text of that output."""
        content = getattr(output, "content", None)
        if isinstance(content, (list, tuple)) and hasattr(output, "isError"):  # MCP's CallToolResult
            blocks = [block.text for block in content if isinstance(getattr(block, "text", None), str)]
            structure = getattr(output, "structuredContent", None)
            return cls(blocks, structure, bool(output.isError))
        if isinstance(output, (Mapping, list, tuple)):
            return cls([], _copied(output))
        return cls([output if isinstance(output, str) else text])

    @property
    def text(self) -> str:
        """The whole result as one text."""
        if self.blocks or self.structure is None:
            return "\n".join(self.blocks)
        return json.dumps(self.structure, ensure_ascii=False, default=str)

    def split(self, splitter: Splitter) -> Iterable[str | Passage]:
        """Returns the splitter's passages of each text; where the splitter fails, the items of the structured data."""
        try:
            return [passage for block in self.blocks or [self.text] for passage in splitter(block)]
        except Exception:
            items = None if self.structure is None else json_passages(self.structure)
            if items is None:
                raise
            return items


class OutputShare:
    """Compares a tool's text with what was retrieved inside the tool, once, when the result is first needed."""

    def __init__(
        self,
        text: str,
        found: Sequence[Callable[[], list[Passage]]],
        bare: Callable[[], list[Passage]] = list,
        *,
        handed_on: bool = False,
    ) -> None:
        """Takes the tool's text and what each retrieval found; `bare` gives the same passages without the title or
        the metadata that a model would be shown, since many tools return a document's own text alone."""
        self._text, self._found, self._bare = text, found, bare
        self._handed_on = handed_on
        """True where the tool gave the documents beside its text, so that a text without them does not say that the
        model got none."""
        self._lock = threading.Lock()
        self._got: Mapping[tuple[str, str], Passage] | None = None
        self._order: list[tuple[str, str]] = []
        self._compared = False

    def of(self, number: int) -> Delivered:
        """Returns the passages that the model got of the retrieval with this number."""
        with self._lock:
            if not self._compared:
                self._compare()
        if self._got is None:
            return Delivered(None, {DELIVERED: UNKNOWN})
        mine = self._found[number]()
        keys = {_key(one) for one in mine}
        got = [self._got[key] for key in self._order if key in keys]
        return Delivered(None if got == mine else got, {})

    def _compare(self) -> None:
        self._compared = True
        candidates = list({_key(one): one for found in self._found for one in found()}.values())
        bodies = {one.id: one.text for one in self._bare() if one.id}
        got = delivered(candidates, self._text, [bodies.get(one.id, "") for one in candidates])
        if got is None or (self._handed_on and not got and self._text.strip()):
            return
        self._got = {}
        for number, one in got:
            key = _key(candidates[number])
            self._got[key] = one
            self._order.append(key)


def _copied(value: Any) -> Any:
    """Returns a copy two levels deep: the list of items, and each item."""
    if isinstance(value, Mapping):
        return {key: _copied_items(inner) for key, inner in value.items()}
    return _copied_items(value)


def _copied_items(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [dict(item) if isinstance(item, Mapping) else item for item in value]
    return value


def _key(passage: Passage) -> tuple[str, str]:
    return passage.id, passage.text

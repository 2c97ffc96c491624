"""Recognises the result of a search in plain data, such as JSON from a tool, an MCP server or a span.

    search_results(json_text)                 # passages, [] for a search that found nothing, None for anything else
    search_results(json_text, declared=True)  # of a call that is known to retrieve: texts alone count as well

A search result is a list in which each item has a text and an id, an address, a title or a score, or which holds
documents of LangChain or LlamaIndex as these are serialised. It may stand under a usual name (`results`,
`web.results`), in a tool's message beside its text, or in MCP's `structuredContent` or content blocks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ragguard.capture.snapshot import passage
from ragguard.capture.splitters import ID_NAMES, LIST_NAMES, TEXT_NAMES, passage_of_json
from ragguard.records import Passage

DEEPEST = 8
"""The most layers of messages, results and holders around a list of documents that are looked through."""
OBJECT = re.compile(r"<?[A-Za-z_][\w.]*(\(\w+=| object at )")
"""The beginning of an object's repr, as some instrumentations log objects."""
LONGEST = 16 * 2**20
"""The most characters of JSON that are parsed."""
_AROUND = ("artifact", "structuredContent", "structured_content", "raw_output", "tool_output")
"""Names under which tools' messages and outputs hold their result as data, beside the text that the model reads."""
_HOLDERS = (*LIST_NAMES, "nodes", "source_nodes", "docs", "records", "web", "news", "raw")
_EVIDENCE = (*ID_NAMES, "title", "score", "relevance_score", "distance", "file_name", "filename")
"""Names of which a found item has one beside its text."""


def search_results(value: object, *, declared: bool = False) -> list[Passage] | None:
    """Returns the passages of a search result; None for a value that is none.

    Args:
        value: The result: JSON, as text or parsed.
        declared: True for a call that is known to retrieve, so that a list of texts is a result, and a list that is
            empty is one of nothing found.
    """
    try:
        return _found(value, declared, DEEPEST)
    except (RecursionError, ValueError):  # an integer of too many digits is a ValueError
        return None


def found(text: str) -> list[Passage]:
    """Returns the passages of a search result; the whole text as one passage where it is none."""
    passages = search_results(text, declared=True)
    return passages if passages is not None else [passage(text, None, None, None)] if text.strip() else []


def json_of(text: str) -> Any:
    """Returns the list or the object that a text is in JSON; the text itself where it is neither."""
    if text.lstrip()[:1] not in ("[", "{") or len(text) > LONGEST:
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def unwrapped(value: Any) -> Any:
    """Returns the fields of an object that LangChain has serialised; any other value as it is."""
    if isinstance(value, Mapping):
        if isinstance(value.get("kwargs"), Mapping) and "lc" in value:
            return value["kwargs"]
        if isinstance(value.get("data"), Mapping) and isinstance(value.get("type"), str):
            return value["data"]
    return value


def _found(value: object, declared: bool, depth: int) -> list[Passage] | None:
    if isinstance(value, str):
        value = json_of(value)
    value = unwrapped(value)
    if not depth or not isinstance(value, (Mapping, list)):
        return None
    if isinstance(value, list):
        return _in_list(value, declared, depth)
    if (document := _document(value)) is not None:
        return [document]
    for name in _AROUND:
        if value.get(name) and (inner := _found(value[name], declared, depth - 1)) is not None:
            return inner
    if (blocks := _texts_of_blocks(value.get("content"))) is not None:
        return _in_blocks(blocks, declared, depth)
    for name in _HOLDERS:
        held = value.get(name)
        if isinstance(held, (list, Mapping)) and (inner := _found(held, declared, depth - 1)) is not None:
            return inner
    content = value.get("content")
    return _found(content, declared, depth - 1) if isinstance(content, str) and _is_json(content) else None


def _in_list(items: list[Any], declared: bool, depth: int) -> list[Passage] | None:
    if not items:
        return [] if declared else None
    if (blocks := _texts_of_blocks(items)) is not None:
        return _in_blocks(blocks, declared, depth)
    passages = []
    for item in items:
        item = unwrapped(json_of(item) if isinstance(item, str) else item)
        if (
            isinstance(item, list) and len(item) == 2 and isinstance(item[1], (int, float))
        ):  # a pair with its score
            item = unwrapped(item[0])
            passage_found = (
                None if not isinstance(item, Mapping) else _document(item) or _item(item, declared)
            )
        elif isinstance(item, Mapping):
            passage_found = _document(item) or _item(item, declared)
        else:
            text = declared and isinstance(item, str) and not OBJECT.match(item)
            passage_found = passage_of_json(item) if text else None
        if passage_found is None:
            return None
        passages.append(passage_found)
    return passages


def _document(item: Mapping[str, Any]) -> Passage | None:
    """Returns the passage of a document of LangChain or a node of LlamaIndex; None for anything else."""
    if isinstance(node := item.get("node"), Mapping) and isinstance(node.get("text"), str):
        return passage(node["text"], node.get("id_"), item.get("score"), node.get("metadata"))
    if isinstance(item.get("text"), str) and "id_" in item and "class_name" in item:
        return passage(item["text"], item["id_"], None, item.get("metadata"))
    if isinstance(item.get("page_content"), str):
        return passage(item["page_content"], item.get("id"), item.get("score"), item.get("metadata"))
    return None


def _item(item: Mapping[str, Any], declared: bool) -> Passage | None:
    """Returns the passage of an item of a search result; None for an item of another kind of list."""
    highlights = item.get("highlights")
    if isinstance(highlights, list) and not any(isinstance(item.get(name), str) for name in TEXT_NAMES):
        item = {**item, "text": "\n".join(str(one) for one in highlights)}
    if not any(isinstance(item.get(name), str) and item[name].strip() for name in TEXT_NAMES):
        return None
    evident = declared or any(item.get(name) is not None for name in _EVIDENCE)
    return passage_of_json(item) if evident else None


def _texts_of_blocks(content: object) -> list[str] | None:
    """Returns the texts of content blocks, as MCP and messages have them; None for anything else."""
    if not isinstance(content, list) or not content:
        return None
    blocks = [one for one in content if isinstance(one, Mapping) and one.get("type") == "text"]
    if len(blocks) < len(content) or not all(
        set(one) <= {"type", "text", "annotations", "id"} for one in blocks
    ):
        return None
    return [str(one.get("text", "")) for one in blocks]


def _in_blocks(blocks: Iterable[str], declared: bool, depth: int) -> list[Passage] | None:
    """Returns the passages in the texts of content blocks. FastMCP makes a block of each item of a list."""
    parsed = [json_of(text) for text in blocks]
    if len(parsed) == 1 and not isinstance(parsed[0], str):
        return _found(parsed[0], declared, depth - 1) or _found(parsed, declared, depth - 1)
    return _in_list(parsed, declared, depth - 1)


def _is_json(text: str) -> bool:
    return not isinstance(json_of(text), str)

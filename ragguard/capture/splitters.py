"""Splits a tool's output into passages: by a user's splitter, or because plain data looks like the result of a search.

    RagGuardCallback(rg, tools={"search": paragraphs, "wiki": separated_by("---")})

    search_results(json_text)                 # passages, [] for a search that found nothing, None for anything else
    search_results(json_text, declared=True)  # of a call that is known to retrieve: texts alone count as well

A splitter is any function from a text to texts or passages; these are the usual ones. It runs when the step is first
read, never in a hook. Where one fails, the whole text is kept as one passage, and the step's metadata says what
happened.

A search result is a list in which each item has a text and an id, an address, a title or a score, or which holds
documents of LangChain or LlamaIndex as these are serialised. It may stand under a usual name (`results`,
`web.results`), in a tool's message beside its text, or in MCP's `structuredContent` or content blocks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from ragguard.capture.names import IDS, LISTS, LISTS_AROUND, RESULTS, TEXTS
from ragguard.capture.shapes import DEEPEST, content_text, unwrapped
from ragguard.capture.snapshot import passage
from ragguard.errors import InvalidInput
from ragguard.records import Passage
from ragguard.runtime.faults import NOTICES

Splitter: TypeAlias = Callable[[str], Iterable[str | Passage]]

_BLANK_LINES = re.compile(r"\n[^\S\n]*\n\s*")
_NUMBER = re.compile(r"^[^\S\n]*(?:\[\d{1,4}\]|\(\d{1,4}\)|\d{1,4}[.):])[^\S\n]+", re.MULTILINE)


def paragraphs(text: str) -> list[str]:
    """Splits at blank lines, with which `create_retriever_tool` joins its documents."""
    return [part for part in map(str.strip, _BLANK_LINES.split(text)) if part]


def numbered(text: str) -> list[str]:
    """Splits a list whose lines begin with `1.`, `1)`, `(1)` or `[1]`; text before the first item is no passage."""
    parts = _NUMBER.split(text)
    return [part for part in map(str.strip, parts[1:] or parts) if part]


def separated_by(separator: str) -> Splitter:
    """Returns a splitter of texts in which a fixed separator stands between passages.

    Args:
        separator: The separator, at least one character.
    """
    if not isinstance(separator, str) or not separator:
        raise InvalidInput("separator", separator, "a text of at least one character")

    def split(text: str) -> list[str]:
        return [part for part in map(str.strip, text.split(separator)) if part]

    return split


def json_items(text: str) -> list[Passage]:
    """Splits JSON: a list of texts or objects, or an object that holds one under a usual name, such as `results`."""
    value: Any = json.loads(text)
    items = json_passages(value)
    return [passage_of_json(value)] if items is None else items


def json_passages(value: Any) -> list[Passage] | None:
    """Returns the passages in the list that a JSON value is, or holds under a usual name; None where there is none."""
    if isinstance(value, Mapping):
        value = next((value[key] for key in LISTS if isinstance(value.get(key), list)), None)
    return [passage_of_json(item) for item in value] if isinstance(value, list) else None


def passage_of_json(item: object) -> Passage:
    """Returns the passage that a JSON value is: its text, its id, its score, and the rest as metadata."""
    if not isinstance(item, Mapping):
        return passage(item if isinstance(item, str) else json.dumps(item))
    content = next((item[key] for key in TEXTS if isinstance(item.get(key), str)), None)
    id = next((item[key] for key in IDS if item.get(key) is not None), None)
    rest = {key: value for key, value in item.items() if value is not content and key != "metadata"}
    nested = item.get("metadata")
    metadata = {**rest, **nested} if isinstance(nested, Mapping) else rest
    return passage(json.dumps(item) if content is None else content, id, item.get("score"), metadata)


OBJECT = re.compile(r"<?[A-Za-z_][\w.]*(\(\w+=|\(\)\Z| object at )")
"""The beginning of an object's repr, as some instrumentations log objects."""
LONGEST = 16 * 2**20
"""The most characters of JSON that are parsed."""
_SEARCH_RESULT = "search_result"
"""The type of the content blocks in which some models take what was found."""
_BLOCK_FIELDS = {"type", "text", "annotations", "id"}
_EVIDENCE = (*IDS, "title", "score", "relevance_score", "distance", "file_name", "filename")
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


def passages_in_text(text: str) -> list[Passage]:
    """Returns the passages of a search result. A text that is none is one passage; of JSON that is said."""
    passages = search_results(text, declared=True)
    if passages is not None or not text.strip():
        return passages or []
    if not isinstance(json_of(text), str):
        NOTICES.once(
            "JSON without passages",
            "a tool that tools= names returned JSON without passages that ragguard recognises, so the whole text is "
            "one passage. Give a function that returns its texts: tools={NAME: function}. (Logged once)",
        )
    return [passage(text)]


def json_of(text: Any) -> Any:
    """Returns the list or the object that a text is in JSON; any other value as it is."""
    if not isinstance(text, str) or text.lstrip()[:1] not in ("[", "{") or len(text) > LONGEST:
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _found(value: object, declared: bool, depth: int) -> list[Passage] | None:
    value = unwrapped(json_of(value))
    if not depth or not isinstance(value, (Mapping, list)):
        return None
    if isinstance(value, list):
        return _in_list(value, declared, depth)
    if (document := _document(value)) is not None:
        return [document]
    for name in RESULTS:
        if value.get(name) and (inner := _found(value[name], declared, depth - 1)) is not None:
            return inner
    if (blocks := _texts_of_blocks(value.get("content"))) is not None:
        return _in_blocks(blocks, declared, depth)
    for name in LISTS_AROUND:
        held = value.get(name)
        if isinstance(held, (list, Mapping)) and (inner := _found(held, declared, depth - 1)) is not None:
            return inner
    content = value.get("content")
    if isinstance(content, str) and (inner := _found(content, declared, depth - 1)) is not None:
        return inner
    only = _item(value, declared) if declared or value.get("type") == _SEARCH_RESULT else None
    return None if only is None else [only]


def _in_list(items: list[Any], declared: bool, depth: int) -> list[Passage] | None:
    if not items:
        return [] if declared else None
    if (blocks := _texts_of_blocks(items)) is not None:
        return _in_blocks(blocks, declared, depth)
    passages = [_passage_in(item, declared) for item in items]
    return None if None in passages else [one for one in passages if one is not None]


def _passage_in(item: object, declared: bool) -> Passage | None:
    """Returns the passage that an item of a search result is; None for an item of another kind of list."""
    item = unwrapped(json_of(item))
    if isinstance(item, list) and len(item) == 2 and isinstance(item[1], (int, float)):
        item = unwrapped(item[0])  # a pair with its score
    if isinstance(item, Mapping):
        return _document(item) or _item(item, declared)
    is_text = isinstance(item, str) and not OBJECT.match(item)
    return passage_of_json(item) if declared and is_text else None


def _document(item: Mapping[str, Any]) -> Passage | None:
    """Returns the passage of a document of LangChain or a node of LlamaIndex; None for anything else."""
    node = item.get("node")
    if node is None and "id_" in item and "class_name" in item:
        node = item
    if isinstance(node, Mapping) and isinstance(node.get("text"), str):
        return passage(node["text"], node.get("id_"), item.get("score"), node.get("metadata"))
    if isinstance(item.get("page_content"), str):
        return passage(item["page_content"], *map(item.get, ("id", "score", "metadata")))
    return None


def _item(item: Mapping[str, Any], declared: bool) -> Passage | None:
    """Returns the passage of an item of a search result; None for an item of another kind of list."""
    if item.get("type") == _SEARCH_RESULT and not isinstance(item.get("content"), str):
        item = {**item, "content": content_text(item.get("content"))}
    highlights = item.get("highlights")
    if isinstance(highlights, list) and not any(isinstance(item.get(name), str) for name in TEXTS):
        item = {**item, "text": "\n".join(str(one) for one in highlights)}
    if not any(isinstance(item.get(name), str) and item[name].strip() for name in TEXTS):
        return None
    evident = declared or any(item.get(name) is not None for name in _EVIDENCE)
    return passage_of_json(item) if evident else None


def _texts_of_blocks(content: object) -> list[str] | None:
    """Returns the texts of content blocks, as MCP and messages have them; None for anything else."""
    if not isinstance(content, list) or not content:
        return None
    texts = [
        str(one.get("text", ""))
        for one in content
        if isinstance(one, Mapping) and one.get("type") == "text" and one.keys() <= _BLOCK_FIELDS
    ]
    return texts if len(texts) == len(content) else None


def _in_blocks(blocks: Iterable[str], declared: bool, depth: int) -> list[Passage] | None:
    """Returns the passages in the texts of content blocks. FastMCP makes a block of each item of a list."""
    parsed = [json_of(text) for text in blocks]
    if len(parsed) == 1 and not isinstance(parsed[0], str):
        return _found(parsed[0], declared, depth - 1) or _found(parsed, declared, depth - 1)
    return _in_list(parsed, declared, depth - 1)

"""Splits the one string that a tool returned into passages; runs when the step is first read, never in a hook.

    RagGuardCallback(rg, tools={"search": paragraphs, "wiki": separated_by("---")})

A splitter is any function from a text to texts or passages; these are the usual ones. Where one
fails, the whole text is kept as one passage, and the step's metadata says what happened.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from ragguard.capture.snapshot import passage
from ragguard.errors import InvalidInput
from ragguard.records import Passage

Splitter: TypeAlias = Callable[[str], Iterable[str | Passage]]

_BLANK_LINES = re.compile(r"\n[^\S\n]*\n\s*")
_NUMBER = re.compile(r"^[^\S\n]*(?:\[\d{1,4}\]|\(\d{1,4}\)|\d{1,4}[.):])[^\S\n]+", re.MULTILINE)
LIST_NAMES = (
    "results", "result", "documents", "passages", "hits", "items", "data", "organic", "matches", "sources",
)  # fmt: skip
"""Names under which JSON holds the list of what was found."""
TEXT_NAMES = ("text", "content", "page_content", "snippet", "body", "passage", "summary", "description")
"""Names under which an item of such a list holds its text."""
ID_NAMES = ("id", "doc_id", "document_id", "id_", "node_id", "url", "href", "link", "uri", "source")
"""Names under which an item of such a list holds what identifies it."""


def whole(text: str) -> list[str]:
    """Returns the whole text as one passage."""
    return [text] if text.strip() else []


def paragraphs(text: str) -> list[str]:
    """Splits at blank lines, with which `create_retriever_tool` joins its documents."""
    return [part for part in map(str.strip, _BLANK_LINES.split(text)) if part]


def lines(text: str) -> list[str]:
    """Makes each line a passage."""
    return [part for part in map(str.strip, text.splitlines()) if part]


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


def tagged(name: str) -> Splitter:
    """Returns a splitter of texts in which each passage stands in a tag: `<name …>…</name>`.

    Args:
        name: The tag's name, such as `document`.
    """
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][\w.-]*", name):
        raise InvalidInput("name", name, "the name of a tag, such as document")
    opening, closing = re.compile(rf"<{re.escape(name)}(?:\s[^<>]*)?>"), f"</{name}>"

    def split(text: str) -> list[str]:
        parts = [part.partition(closing)[0].strip() for part in opening.split(text)[1:]]
        return [part for part in parts if part]

    return split


def json_items(text: str) -> list[Passage]:
    """Splits JSON: a list of texts or objects, or an object that holds one under a usual name, such as `results`."""
    value: Any = json.loads(text)
    items = json_passages(value)
    return [passage_of_json(value)] if items is None else items


def json_passages(value: Any) -> list[Passage] | None:
    """Returns the passages in the list that a JSON value is or holds; None where there is no list."""
    items = json_list(value)
    return None if items is None else [passage_of_json(item) for item in items]


def json_list(value: Any) -> list[Any] | None:
    """Returns the list that a JSON value is, or holds under a usual name; None where there is none."""
    if isinstance(value, Mapping):
        value = next((value[key] for key in LIST_NAMES if isinstance(value.get(key), list)), None)
    return value if isinstance(value, list) else None


def passage_of_json(item: object) -> Passage:
    """Returns the passage that a JSON value is: its text, its id, its score, and the rest as metadata."""
    if not isinstance(item, Mapping):
        return passage(item if isinstance(item, str) else json.dumps(item), None, None, None)
    content = next((item[key] for key in TEXT_NAMES if isinstance(item.get(key), str)), None)
    id = next((item[key] for key in ID_NAMES if item.get(key) is not None), None)
    rest = {key: value for key, value in item.items() if value is not content and key != "metadata"}
    nested = item.get("metadata")
    metadata = {**rest, **nested} if isinstance(nested, Mapping) else rest
    return passage(json.dumps(item) if content is None else content, id, item.get("score"), metadata)

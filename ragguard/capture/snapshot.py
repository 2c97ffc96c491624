"""Copies of what a retriever gave, made at once: texts by reference, metadata one level deep.

Strings cannot change, so a reference to them is a copy. Whatever comes is recorded as what it
is; nothing here raises for strange content, and nothing is changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import NoneType
from typing import Any

from ragguard.records import Passage

KIND = "ragguard.content"
"""Metadata key that says what a passage without text was."""
LOST = "ragguard.metadata"
"""Metadata key that says why the metadata is missing."""


def passages_of(value: object) -> list[Passage]:
    """The passages in what somebody gave: None, one text, one passage or document, or several of them."""
    if value is None:
        return []
    if isinstance(value, (str, bytes, Passage, Mapping)) or _has_text(value):
        return [passage_of(value)]
    if isinstance(value, Iterable):
        return [passage_of(item) for item in value]
    return [passage_of(value)]


def passage_of(item: object) -> Passage:
    """One passage, from a Passage, a text, a mapping, or an object with a text."""
    try:
        return _read(item)
    except Exception as error:  # noqa: BLE001 - an item of the user's may raise anything when it is read
        return unreadable(item, error)


def unreadable(item: object, error: BaseException) -> Passage:
    """What stands for an item that raises when it is read."""
    return Passage("", metadata={KIND: f"{type(item).__name__}, unreadable: {type(error).__name__}"})


def _read(item: object) -> Passage:
    if isinstance(item, Passage):
        if type(item.text) is type(item.id) is str and type(item.score) in (float, NoneType):
            return Passage(item.text, item.id, item.score, metadata_of(item.metadata), item.grade)
        return replace(passage(item.text, item.id, item.score, item.metadata), grade=item.grade)
    if isinstance(item, Mapping):
        content = next((item[key] for key in ("text", "page_content", "content") if key in item), None)
        return passage(content, item.get("id"), item.get("score"), item.get("metadata"))
    if _has_text(item):
        content = getattr(item, "page_content", None)
        if content is None:
            content = getattr(item, "text", None)
        return passage(
            content, getattr(item, "id", None), getattr(item, "score", None), getattr(item, "metadata", None)
        )
    return passage(item, None, None, None)


def passage(content: object, id: object, score: object, metadata: object) -> Passage:
    """A passage from parts of any type."""
    copied = metadata_of(metadata)
    if not isinstance(content, str):
        text, kind = text_of(content)
        if kind:
            copied[KIND] = kind
        content = text
    return Passage(content, "" if id is None else str(id), score_of(score, copied), copied)


def score_of(score: object, metadata: Mapping[str, Any]) -> float | None:
    """The retriever's score, from the item itself or from where retrievers usually put it."""
    if score is None and metadata:
        score = metadata.get("relevance_score")
        if score is None:
            score = metadata.get("score")
    if score is None or isinstance(score, (str, bytes, bool)):
        return None
    try:
        return float(score)  # type: ignore[arg-type]  # NumPy scalars and the like
    except Exception:  # noqa: BLE001 - a number of the user's may raise anything
        return None


def metadata_of(metadata: object) -> dict[str, Any]:
    """A copy one level deep; what cannot be copied leaves a word about why."""
    if metadata is None:
        return {}
    try:
        return dict(metadata)  # type: ignore[call-overload,no-any-return]
    except Exception as error:  # noqa: BLE001 - a mapping of the user's may raise anything
        return {LOST: f"{type(metadata).__name__} could not be copied: {type(error).__name__}"}


def text_of(content: object) -> tuple[str, str]:
    """The text in some content, and what else it is (an image, bytes, a number): '' where it is all text."""
    if isinstance(content, str):
        return content, ""
    if content is None:
        return "", "none"
    if isinstance(content, (list, tuple)):
        texts, kinds = [], []
        for block in content:
            text, kind = _block(block)
            texts.append(text)
            kinds.append(kind)
        return "\n".join(filter(None, texts)), ", ".join(dict.fromkeys(filter(None, kinds)))
    if isinstance(content, Mapping):
        return _block(content)
    return "", type(content).__name__


def _block(block: object) -> tuple[str, str]:
    """One block of a message's content, in the shapes that model providers agree on."""
    if isinstance(block, str):
        return block, ""
    if not isinstance(block, Mapping):
        return "", type(block).__name__
    kind, text = block.get("type", "text"), block.get("text")
    if isinstance(text, str):
        return text, ""
    return "", str(kind)


def _has_text(item: object) -> bool:
    try:
        return hasattr(item, "page_content") or isinstance(getattr(item, "text", None), str)
    except Exception:  # noqa: BLE001 - it has one that raises when it is read
        return True

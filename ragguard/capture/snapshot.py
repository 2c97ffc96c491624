"""Copies what a retriever returned, at the time of the call: texts by reference, metadata one level deep.

Strings cannot change, so a reference to them is a copy. Content of any
type is recorded as what it is: no function here raises for it or changes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sized
from dataclasses import replace
from itertools import islice, zip_longest
from types import NoneType
from typing import Any

from ragguard.capture.shapes import HOLDERS, documents_in, held_by, is_document, node_content, node_in, scored
from ragguard.errors import InvalidInput
from ragguard.records import CONTENT_KIND, CUT_PASSAGES, GRADE_ERROR, Passage
from ragguard.runtime.faults import NOTICES, describe
from ragguard.text.plain import CUT, METADATA, plain
from ragguard.text.secret_filter import without_secrets

LOST = "ragguard.metadata"
"""Metadata key that says why the metadata is missing."""
_TEXTS = ("text", "page_content", "content")
"""Names under which a mapping holds the text of one passage."""

_GRADES = range(1, 6)
MOST_PASSAGES = 1_000
"""The most passages of one retrieval: a hook has little time, and an endless iterable would hold it for ever."""
MOST_ENTRIES = METADATA.breadth - 1
"""The most entries of a mapping that are copied: no more of them are kept."""


class OwnPassages(list[Passage]):
    """Passages that were made for one record, whose metadata nobody else holds: they are recorded without a copy."""

    __slots__ = ()


def passages_of(value: object) -> list[Passage]:
    """Returns the passages in a value.

    The value is None, one text, passage, document or node, a (document, score) pair, several of these, or a mapping or
    a response that holds several (`{"documents": [...]}`).
    """
    if value is None:
        return []
    if type(value) is OwnPassages:
        return list(value)
    if isinstance(value, (str, bytes, Passage)):
        return [passage_of(value)]
    try:
        held = _held(value)
    except Exception:  # noqa: BLE001 - a value of the user's may raise anything when it is read
        return [passage_of(value)]
    if not isinstance(held, Iterable):
        return [passage_of(value)]
    return _passages_in(held)


def _passages_in(items: Iterable[object]) -> list[Passage]:
    found: list[Passage] = []
    try:
        left = iter(items)
        for item in islice(left, MOST_PASSAGES):
            if isinstance(item, list) and (inner := documents_in(item)):
                found += [passage_of(one) for one in inner]
            else:
                found.append(passage_of(item))
        if found and next(left, left) is not left:
            total = f" of {len(items):,}" if isinstance(items, Sized) and len(found) == MOST_PASSAGES else ""
            cut = f"the first {len(found):,}{total} passages"
            NOTICES.once(
                "more passages than are captured",
                f"only {cut} of a retrieval are captured, and no number counts the others; record fewer passages, "
                "such as those that the model gets. (Logged once)",
            )
            found[-1] = replace(found[-1], metadata={**found[-1].metadata, CUT_PASSAGES: cut})
    except Exception as error:  # noqa: BLE001 - what came before it broke off is kept
        found.append(unreadable(items, error))
    return found


def _held(value: object) -> object:
    """Returns the items that a value holds, where it holds several; None where the value is one item itself."""
    if isinstance(value, Mapping):
        if any(name in value for name in _TEXTS):
            return None
        if (rows := _rows(value)) is not None:
            return rows
        return next((value[name] for name in HOLDERS if isinstance(value.get(name), (list, tuple))), None)
    if _has_text(value) or is_document(value) or scored(value) is not None:
        return None
    return value if isinstance(value, Iterable) else held_by(value)


def _rows(columns: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Returns the items of a vector database's reply in columns (Chroma's `ids`, `documents`, …), else None."""
    ids = columns.get("ids")
    if not isinstance(ids, list) or not isinstance(columns.get("documents"), list):
        return None
    of_queries = bool(ids) and isinstance(ids[0], list)
    names = ("ids", "documents", "metadatas", "distances")
    rows = zip_longest(*(_column(columns.get(name), of_queries) for name in names))
    return [
        {"id": id, "text": text, "metadata": {**(about or {}), **({} if far is None else {"distance": far})}}
        for id, text, about, far in rows
    ]


def _column(values: list[Any] | None, of_queries: bool) -> list[Any]:
    """Returns one column of a reply as a flat list; a reply to several queries holds one list for each query."""
    if of_queries:
        return [value for one in values or () for value in one or ()]
    return values or []


def passage_of(item: object) -> Passage:
    """Returns one passage, made of a Passage, a text, a mapping, or an object with a text."""
    try:
        return _read(item)
    except Exception as error:  # noqa: BLE001 - an item of the user's may raise anything when it is read
        return unreadable(item, error)


def unreadable(item: object, error: BaseException) -> Passage:
    """Returns an empty passage that stands for an item which raised when it was read; its metadata name the error."""
    return Passage("", metadata={CONTENT_KIND: f"{type(item).__name__}, unreadable: {type(error).__name__}"})


def _read(item: object) -> Passage:
    if isinstance(item, Passage):
        if (
            type(item.text) is type(item.id) is str
            and type(item.score) in (float, NoneType)
            and (item.grade is None or (type(item.grade) is int and item.grade in _GRADES))
        ):
            return Passage(item.text, item.id, item.score, metadata_of(item.metadata), grade=item.grade)
        return _graded(passage(item.text, item.id, item.score, item.metadata), item.grade)
    if isinstance(item, Mapping):
        content = next((item[key] for key in _TEXTS if key in item), None)
        if content is None and "type" not in item:  # what has a type is a block of content, such as an image
            _warn_without_text(item)
        found = passage(content, item.get("id"), item.get("score"), item.get("metadata"))
        return _graded(found, item.get("grade"))
    if (pair := scored(item)) is not None:
        found = _read(pair.item)
        return replace(found, score=score_of(pair.score, found.metadata))
    if (node := node_in(item)) is not None:
        text, kind = node_content(node)
        metadata = metadata_of(node.metadata)
        if kind:
            metadata[CONTENT_KIND] = kind
        return passage(text, node.id_, getattr(item, "score", None), metadata)
    if _has_text(item):
        content = getattr(item, "page_content", None)
        if content is None:
            content = getattr(item, "text", None)
        return passage(
            content, getattr(item, "id", None), getattr(item, "score", None), getattr(item, "metadata", None)
        )
    if not isinstance(item, (str, list, tuple)):
        _warn_without_text(item)
    return passage(item, None, None, None)


def _warn_without_text(item: object) -> None:
    NOTICES.once(
        "a passage without text",
        f"passages: got {type(item).__name__} without a text; allowed: Passages, texts, mappings with a `text`, or "
        "documents of a framework. It is recorded as a passage without text, which is not judged. (Logged once)",
    )


def _graded(found: Passage, grade: object) -> Passage:
    """Returns the passage with its grade, or with a reason in its metadata where the given grade is not a valid one."""
    if grade is None:
        return found
    if type(grade) is int and grade in _GRADES:
        return replace(found, grade=grade)
    error = InvalidInput("grade", grade, "a whole number from 1 to 5")
    return replace(found, metadata={**found.metadata, GRADE_ERROR: str(error)})


def passage(content: object, id: object, score: object, metadata: object) -> Passage:
    """Returns a passage made of a text, an id, a score and metadata of any type."""
    copied = metadata_of(metadata)
    if not isinstance(content, str):
        text, kind = text_of(content)
        if kind:
            copied[CONTENT_KIND] = kind
        content = text
    return Passage(content, "" if id is None else text_in(id), score_of(score, copied), copied)


def score_of(score: Any, metadata: Mapping[str, Any]) -> float | None:
    """Returns the retriever's score: the given one, else the one in the metadata, else None."""
    if score is None and metadata:
        score = metadata.get("relevance_score")
        if score is None:
            score = metadata.get("score")
    if score is None or isinstance(score, (str, bytes, bool)):
        return None
    try:
        return float(score)  # also of NumPy scalars and the like
    except Exception:  # noqa: BLE001 - a number of the user's may raise anything
        return None


def metadata_of(metadata: Any) -> dict[str, Any]:
    """Returns a copy of a mapping, one level deep; for one that cannot be copied, a mapping that says why."""
    if metadata is None:
        return {}
    try:
        if len(metadata) > MOST_ENTRIES and isinstance(metadata, Mapping):
            first = dict(islice(metadata.items(), MOST_ENTRIES))
            return {**first, CUT: f"the first {MOST_ENTRIES} of {len(metadata):,} entries only"}
        return dict(metadata)
    except Exception as error:  # noqa: BLE001 - a mapping of the user's may raise anything
        return {LOST: f"{type(metadata).__name__} could not be copied: {type(error).__name__}"}


def text_of(content: object) -> tuple[str, str]:
    """Returns the text in a message's content, and the kind of the content that is not text (image, bytes), else ""."""
    if isinstance(content, str):
        return content, ""
    if content is None:
        return "", "none"
    try:
        return _text_and_kind(content)
    except Exception as error:  # noqa: BLE001 - content of the user's may raise anything when it is read
        return "", f"{type(content).__name__}, unreadable: {type(error).__name__}"


def answer_of(answer: object) -> tuple[str, str]:
    """Returns an answer's text (JSON for numbers, mappings and objects), and the kind of content that is no text."""
    text, kind = text_of(answer)
    if text or answer is None or isinstance(answer, str | bytes | list | tuple):
        return text, kind
    try:
        if isinstance(answer, Mapping) and "type" in answer:
            return "", kind  # a block of a message's content, such as an image
        return json.dumps(plain(answer), ensure_ascii=False), kind or type(answer).__name__
    except Exception as error:  # noqa: BLE001 - an answer of the user's may raise anything when it is read
        return "", f"{type(answer).__name__}, unreadable: {type(error).__name__}"


def text_in(value: object) -> str:
    """Returns a name or an id as a text; "" where its `str()` fails."""
    if type(value) is str:
        return value
    try:
        return str.__str__(value) if isinstance(value, str) else str(value)
    except Exception:  # noqa: BLE001 - as above
        return ""


def error_text(error: BaseException | str) -> str:
    """Returns the text of an error without secrets."""
    return describe(error) if isinstance(error, BaseException) else without_secrets(text_in(error))


def top_k_in(value: object) -> int | None:
    """Returns how many passages a framework's retriever is asked for; None where the value is not such a number."""
    return value if type(value) is int and value > 0 else None


def _text_and_kind(content: object) -> tuple[str, str]:
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
    """Returns the text of one block of a message's content, or '' and the kind of the block where it has no text."""
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

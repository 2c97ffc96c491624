"""Recognises what a retriever returned and copies it, at the time of the call: texts by reference, metadata one level
deep. Imports no framework.

    documents_in(tool_output)    # [Document, …], [] for a retrieval that found nothing, None for anything else
    passages_of(anything)        # passages, of content of any type, which is recorded as what it is

A document is a Passage, an object with a `page_content` (LangChain), one with `content` and `meta` (Haystack), or a
node with a `get_content` (LlamaIndex), with or without a score. Strings cannot change, so a reference to them is a
copy. No function here raises or changes what it is given.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sized
from dataclasses import replace
from itertools import chain, islice, zip_longest
from numbers import Real
from types import NoneType
from typing import Any, TypeGuard

from ragguard.capture.names import HOLDERS, PASSAGE_TEXTS
from ragguard.errors import InvalidInput
from ragguard.records import CONTENT_KIND, CUT_PASSAGES, GRADE_ERROR, Passage
from ragguard.runtime.faults import NOTICES, describe
from ragguard.text.plain import CUT, FIELDS, plain
from ragguard.text.secret_filter import without_secrets

_MEDIA = ("image", "audio", "video")
LOST = "ragguard.metadata"
"""Metadata key that says why the metadata is missing."""
_GRADES = range(1, 6)
MOST_PASSAGES = 1_000
"""The most passages of one retrieval: a hook has little time, and an endless iterable would hold it for ever."""
MOST_ENTRIES = FIELDS - 1
"""The most entries of a mapping that are copied: no more of them are kept."""


def documents_in(value: object) -> list[Any] | None:
    """Returns the retrieved documents in a value, each as it came; None where the value is no retrieval.

    A retrieval is a document, a list of documents, of (document, score) pairs or of lists of them, or what holds such a
    list: a mapping under a usual name, a response of LlamaIndex. An empty list gives an empty list. Plain texts and
    mappings are not recognised, since a function may return those for any reason. An iterator is not read.
    """
    try:
        if is_document(value):
            return [value]
        if not isinstance(value, Mapping):
            return _documents(value if isinstance(value, (list, tuple)) else _held_by(value))
        for name in HOLDERS:
            found = _documents(value.get(name))
            # An empty list is a retrieval that found nothing; but a search of any kind has `results`.
            if found or (found is not None and name != "results"):
                return found
        return next(filter(None, map(_documents, value.values())), None)
    except Exception:  # noqa: BLE001, S110 - a value of the user's may raise anything when it is read
        pass
    return None


def _documents(items: object) -> list[Any] | None:
    """Returns the documents that a list consists of; None for anything else."""
    if not isinstance(items, (list, tuple)):
        return None
    found: list[Any] = []
    for item in items:
        inner = [item] if is_document(item) else _documents(item)
        if inner is None:
            return None
        found += inner
    return found


def is_document(item: object) -> bool:
    """True for a Passage and for a document or a node of a framework, also beside a score."""
    item = item[0] if is_scored(item) else item
    if isinstance(item, (str, bytes, list, tuple, Mapping)):
        return False
    return (
        isinstance(item, Passage)
        or hasattr(item, "page_content")
        or _is_haystack(item)
        or _node_in(item) is not None
    )


def _is_haystack(item: object) -> bool:
    return hasattr(item, "meta") and hasattr(item, "content") and hasattr(item, "score")


def is_scored(item: object) -> TypeGuard[tuple[Any, Any]]:
    """True for a pair of anything and a number, such as a document and its score."""
    return isinstance(item, tuple) and len(item) == 2 and _is_number(item[1]) and not _is_number(item[0])


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _node_in(item: object) -> Any | None:
    """Returns the LlamaIndex node that an item is, or holds beside a score; None for anything else."""
    node = getattr(item, "node", None)
    node = item if node is None else node
    if callable(getattr(node, "get_content", None)) and hasattr(node, "metadata") and hasattr(node, "id_"):
        return node
    return None


def node_content(node: Any) -> tuple[str, str]:
    """Returns a node's text as a model reads it, metadata included, and the kind of content that is no text."""
    forms = ("{}_resource", "{}", "{}_path", "{}_url")
    kinds = [kind for kind in _MEDIA if any(getattr(node, form.format(kind), None) for form in forms)]
    if kinds and not node.get_content():
        return "", ", ".join(kinds)
    text = node.get_content(metadata_mode="llm")
    return (text, "") if isinstance(text, str) else ("", type(text).__name__)


def _held_by(value: object) -> list[Any] | tuple[Any, ...] | None:
    """Returns the list of nodes that a response of LlamaIndex carries; None for anything else."""
    for name in ("source_nodes", "nodes"):
        held = getattr(value, name, None)
        if isinstance(held, (list, tuple)):
            return held
    return None


class OwnPassages(list[Passage]):
    """Passages that were made for one record, whose metadata nobody else holds: they are recorded without a copy."""

    __slots__ = ()


def passages_of(value: object) -> list[Passage]:
    """Returns the passages in a value.

    The value is None, one text, passage, document or node, a (document, score) pair, several of these, or a mapping or
    a response that holds several (`{"documents": [...]}`).
    """
    if value is None or type(value) is OwnPassages:
        return list(value or ())
    try:
        items = _items_in(value)
    except Exception:  # noqa: BLE001 - a value of the user's may raise anything when it is read
        items = None
    if items is None:
        return [passage_of(value)]
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
                f"only {cut} of a retrieval are captured, and all numbers leave out the others; record fewer "
                f"passages, such as those that the model gets. (Logged once)",
            )
            found[-1] = replace(found[-1], metadata={**found[-1].metadata, CUT_PASSAGES: cut})
    except Exception as error:  # noqa: BLE001 - what came before it broke off is kept
        found.append(unreadable(items, error))
    return found


def _items_in(value: object) -> Iterable[object] | None:
    """Returns the items that a value holds, where it holds several; None where the value is one item itself."""
    if isinstance(value, Mapping):
        if any(name in value for name in PASSAGE_TEXTS):
            return None
        if isinstance(value.get("ids"), list) and isinstance(value.get("documents"), list):
            return _rows(value)
        return next((value[name] for name in HOLDERS if isinstance(value.get(name), (list, tuple))), None)
    if isinstance(value, (str, bytes)) or is_document(value) or is_scored(value) or has_text(value):
        return None
    return value if isinstance(value, Iterable) else _held_by(value)


def _rows(reply: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the items of a vector database's reply in columns, as Chroma gives them, to one query or to several."""
    columns = [reply.get(name) or [] for name in ("ids", "documents", "metadatas", "distances")]
    if columns[0] and isinstance(columns[0][0], list):
        columns = [list(chain.from_iterable(one or () for one in column)) for column in columns]
    return [
        {"id": id, "text": text, "metadata": {**(about or {}), **({} if far is None else {"distance": far})}}
        for id, text, about, far in zip_longest(*columns)
    ]


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
        return passage(item.text, item.id, item.score, item.metadata, item.grade)
    if isinstance(item, Mapping):
        content = next((item[key] for key in PASSAGE_TEXTS if key in item), None)
        if content is None and "type" not in item:  # what has a type is a block of content, such as an image
            _warn_without_text(item)
        return passage(content, *map(item.get, ("id", "score", "metadata", "grade")))
    if is_scored(item):
        found = _read(item[0])
        return replace(found, score=score_of(item[1], found.metadata))
    of_langchain = hasattr(item, "page_content")  # asked first: its documents are slow to say what they lack
    if not of_langchain and (node := _node_in(item)) is not None:
        text, kind = node_content(node)
        metadata = metadata_of(node.metadata)
        if kind:
            metadata[CONTENT_KIND] = kind
        return passage(text, node.id_, getattr(item, "score", None), metadata)
    if not of_langchain and _is_haystack(item):
        document: Any = item
        return passage(document.content or "", document.id, document.score, document.meta)
    if has_text(item):
        content = getattr(item, "page_content", None)
        if content is None:
            content = getattr(item, "text", None)
        return passage(
            content, getattr(item, "id", None), getattr(item, "score", None), getattr(item, "metadata", None)
        )
    if not isinstance(item, (str, list, tuple)):
        _warn_without_text(item)
    return passage(item)


def _warn_without_text(item: object) -> None:
    NOTICES.once(
        "a passage without text",
        f"passages: got {type(item).__name__} without a text; allowed: Passages, texts, mappings with a `text`, or "
        "documents of a framework. It is recorded as a passage without text, which is not judged. (Logged once)",
    )


def passage(
    content: object, id: object = None, score: object = None, metadata: object = None, grade: object = None
) -> Passage:
    """Returns a passage made of a text, an id, a score, metadata and a grade of any type. For a grade that is none the
    metadata say why it is left out."""
    copied = metadata_of(metadata)
    if type(grade) is not int or grade not in _GRADES:
        if grade is not None:
            copied[GRADE_ERROR] = str(InvalidInput("grade", grade, "a whole number from 1 to 5"))
        grade = None
    if not isinstance(content, str):
        text, kind = text_of(content)
        if kind:
            copied[CONTENT_KIND] = kind
        content = text
    return Passage(content, "" if id is None else text_in(id), score_of(score, copied), copied, grade=grade)


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
        blocks = [_block(block) for block in (content if isinstance(content, (list, tuple)) else [content])]
    except Exception as error:  # noqa: BLE001 - content of the user's may raise anything when it is read
        return "", f"{type(content).__name__}, unreadable: {type(error).__name__}"
    kinds = dict.fromkeys(kind for _, kind in blocks if kind)
    return "\n".join(text for text, _ in blocks if text), ", ".join(kinds)


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


def has_text(item: object) -> bool:
    """True for a mapping or an object that holds a text under a usual name."""
    if isinstance(item, Mapping):
        return any(isinstance(item.get(name), str) for name in PASSAGE_TEXTS)
    return hasattr(item, "page_content") or isinstance(getattr(item, "text", None), str)

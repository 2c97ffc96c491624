"""Recognises retrieved documents in any value, and imports no framework to do so.

    documents_in(tool_output)    # [Document, …], [] for a retrieval that found nothing, None for anything else

A document is a Passage, an object with a `page_content` (LangChain), or a node with a `get_content`
(LlamaIndex), with or without a score. `snapshot.passages_of` makes passages of what is found here.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any, NamedTuple

from ragguard.records import Passage

HOLDERS = (
    "documents", "docs", "source_documents", "nodes", "source_nodes", "passages", "context", "results",
)  # fmt: skip
"""Names under which chains, engines and states hold what was retrieved."""
ANSWER_NAMES = (
    "answer", "final_answer", "response", "final_response", "output", "result", "text", "generation", "content",
    "reply", "completion", "summary", "report",
)  # fmt: skip
"""Names under which pipelines give their answer, the most usual ones first."""
_NAMES_AN_EMPTY_RETRIEVAL = frozenset(HOLDERS) - {"results"}
"""Names under which an empty list is a retrieval that found nothing; a search of any kind has `results`."""
_MEDIA = ("image", "audio", "video")


class ScoredItem(NamedTuple):
    """A document, or a text, and the score that its retriever gave beside it."""

    item: Any
    score: Any


def documents_in(value: object) -> list[Any] | None:
    """Returns the retrieved documents in a value, each as it came; None where the value is no retrieval.

    A retrieval is a document, a list of documents, of (document, score) pairs or of lists of them, or a mapping that
    holds such a list under a usual name. An empty list gives an empty list. Plain texts and mappings are not
    recognised, since a function may return those for any reason. An iterator is not read.
    """
    try:
        return _documents_in(value)
    except Exception:  # noqa: BLE001 - a value of the user's may raise anything when it is read
        return None


def _documents_in(value: object) -> list[Any] | None:
    if isinstance(value, (str, bytes)) or value is None:
        return None
    if is_document(value) or is_scored_document(value):
        return [value]
    if isinstance(value, (list, tuple)):
        return _all_documents(value)
    if isinstance(value, Mapping):
        for name in HOLDERS:
            held = value.get(name)
            found = _all_documents(held) if isinstance(held, (list, tuple)) else None
            if found or (found is not None and name in _NAMES_AN_EMPTY_RETRIEVAL):
                return found
        return None
    # A response of a query engine, or the result of a vector store's query.
    held = held_by(value)
    return None if held is None else _all_documents(held)


def _all_documents(items: list[Any] | tuple[Any, ...]) -> list[Any] | None:
    """Returns the documents that a list consists of; None where it holds anything else."""
    found: list[Any] = []
    for item in items:
        if is_document(item) or is_scored_document(item):
            found.append(item)
        elif isinstance(item, (list, tuple)) and (inner := _all_documents(item)) is not None:
            found += inner
        else:
            return None
    return found


def is_document(item: object) -> bool:
    """True for a Passage, a LangChain document and a LlamaIndex node."""
    if isinstance(item, Passage):
        return True
    if isinstance(item, (str, bytes, list, tuple, Mapping)):
        return False
    return hasattr(item, "page_content") or node_in(item) is not None


def is_scored_document(item: object) -> bool:
    """True for a (document, score) pair, as `similarity_search_with_score` returns them."""
    pair = scored(item)
    return pair is not None and is_document(pair.item)


def scored(item: object) -> ScoredItem | None:
    """Reads a pair whose second half is a number as an item and its score; None for anything else."""
    if not isinstance(item, tuple) or len(item) != 2 or _is_number(item[0]) or not _is_number(item[1]):
        return None
    return ScoredItem(*item)


def node_in(item: object) -> Any | None:
    """Returns the LlamaIndex node that an item is, or holds beside a score; None for anything else."""
    node = getattr(item, "node", None)
    node = item if node is None else node
    if callable(getattr(node, "get_content", None)) and hasattr(node, "metadata") and hasattr(node, "id_"):
        return node
    return None


def node_content(node: Any) -> tuple[str, str]:
    """Returns a node's text as a model reads it, metadata included, and the kind of content that is no text."""
    kinds = [kind for kind in _MEDIA if _holds(node, kind)]
    if kinds and not node.get_content():
        return "", ", ".join(kinds)
    text = node.get_content(metadata_mode="llm")
    return (text, "") if isinstance(text, str) else ("", type(text).__name__)


def held_by(value: object) -> list[Any] | tuple[Any, ...] | None:
    """Returns the list of nodes that a response of LlamaIndex carries; None for anything else."""
    for name in ("source_nodes", "nodes"):
        held = getattr(value, name, None)
        if isinstance(held, (list, tuple)):
            return held
    return None


def _holds(node: object, kind: str) -> bool:
    return any(
        getattr(node, name, None) for name in (f"{kind}_resource", kind, f"{kind}_path", f"{kind}_url")
    )


def _is_number(value: object) -> bool:
    if isinstance(value, (bool, str, bytes)):
        return False
    return isinstance(value, Real) or (getattr(value, "shape", None) == () and hasattr(value, "__float__"))

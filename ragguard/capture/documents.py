"""Takes snapshots of documents with `page_content`, `id` and `metadata`, as LangChain's retrievers give them, in the
hook, and makes passages of them later."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from ragguard.capture.snapshot import OwnPassages, passage, passage_of, passages_of
from ragguard.records import Passage

Taken: TypeAlias = list[Any]
"""A snapshot of a retriever's documents: text, id and metadata of each, one after the other; or passages where there
were no proper documents."""


def snapshot(documents: Any) -> Taken:
    """Returns a copy, made at once, of all that is needed to make passages of documents later: texts by reference,
    metadata as a shallow copy. Only the kind of a stream is noted, since the caller has to read it.

    The result is one flat list, since the garbage collector would visit tuples again and again while it waits.
    """
    if type(documents) is not list and isinstance(documents, Iterator):
        return [passage_of(documents)]
    taken: Taken = []
    add = taken.append
    try:
        for one in documents:
            add(one.page_content)
            add(one.id)
            add(one.metadata.copy())
        return taken
    except Exception:  # noqa: BLE001 - a document of the user's may raise anything; each is looked at by itself now
        return passages_of(documents)


def unpacked(taken: Taken) -> list[Passage]:
    """Returns the passages of a snapshot; called when the step is first read, never in a hook."""
    if taken and isinstance(taken[0], Passage):
        return OwnPassages(taken)
    parts = iter(taken)
    return OwnPassages([
        Passage(text, id or "", None, metadata)
        if type(text) is str
        and (id is None or type(id) is str)
        and type(metadata) is dict
        and "score" not in metadata
        and "relevance_score" not in metadata
        else passage(text, id, None, metadata)
        for text, id, metadata in zip(parts, parts, parts, strict=True)
    ])  # fmt: skip

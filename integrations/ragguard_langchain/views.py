"""Finds the text that the model reads of a document: its page content, or what the application gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from langchain_core.documents import Document

from ragguard.records import Passage
from ragguard.runtime.faults import describe
from ragguard.runtime.notices import NOTICES
from ragguard_langchain.messages import Taken, snapshot, unpacked

TextOf: TypeAlias = Callable[[Document], str]
"""A function that returns a document's text as the model reads it, with what a prompt adds, such as a title."""


def views(documents: Sequence[Any], text_of: TextOf | None = None) -> list[Passage]:
    """Returns the documents as passages with the texts that the model reads. A document for which `text_of` fails
    keeps its page content."""
    passages = unpacked(snapshot(list(documents)))
    return passages if text_of is None else _viewed(documents, passages, text_of)


def viewed(taken: Taken, text_of: TextOf) -> list[Passage]:
    """Returns the passages of a snapshot, with the texts that the model reads."""
    passages = unpacked(taken)
    documents = [Document(one.text, id=one.id or None, metadata=dict(one.metadata)) for one in passages]
    return _viewed(documents, passages, text_of)


def _viewed(documents: Sequence[Any], passages: Sequence[Passage], text_of: TextOf) -> list[Passage]:
    return [
        replace(passage, text=_text(document, passage.text, text_of))
        for document, passage in zip(documents, passages, strict=True)
    ]


def _text(document: Document, otherwise: str, text_of: TextOf) -> str:
    try:
        text: object = text_of(document)
    except Exception as error:  # noqa: BLE001 - a function of the user's must not cost a retrieval
        text = None
        why = describe(error)
    else:
        why = f"it gave {type(text).__name__}"
    if isinstance(text, str):
        return text
    NOTICES.warn(
        "text_of", f"`text_of` gave no text for a document, whose page content is judged instead: {why}"
    )
    return otherwise

"""Reads the text that a stuff chain makes of documents by its document prompt, and that the model reads.

LangChain's own chains format documents in a call named `format_docs`, and so do most chains by hand. The classic
`StuffDocumentsChain` makes no call for it: the text stands in the input of its model's chain. Where any other call is
given documents and returns a text, the text counts once it is in a prompt, unless a model wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from langchain_core.documents import Document

from ragguard.capture.events import Delivered
from ragguard.capture.tool_results import OutputShare
from ragguard.records import Passage
from ragguard_langchain.excerpt import framed
from ragguard_langchain.scopes import FormattedText
from ragguard_langchain.verdicts import Source

STUFFS = "StuffDocumentsChain"
"""The name of the classic chain that formats documents without a call of its own."""
_FORMATS = re.compile(r"(?:format|join|combine|render)_?\w*(?:doc|context|passage|source)", re.IGNORECASE)


def formats_documents(name: str | None) -> bool:
    """True where a call of this name makes one text of documents."""
    return bool(name) and _FORMATS.match(str(name)) is not None


def given_documents(inputs: object) -> list[Document]:
    """Returns the documents in the input of a call that makes a text of them: a list, or a mapping that holds some."""
    lists: Iterable[Any] = inputs.values() if isinstance(inputs, Mapping) else [inputs]
    return [document for one in lists if _are_documents(one) for document in one]


def stuffed_text(inputs: object, documents: Sequence[Document]) -> str:
    """Returns the text that a classic stuff chain has made of documents, from the input of its model's chain; ''
    where no text there holds all of them."""
    if not isinstance(inputs, Mapping) or not documents:
        return ""
    contents = [one.page_content for one in documents]
    return next(
        (text for text in inputs.values() if isinstance(text, str) and all(one in text for one in contents)),
        "",
    )


def made_texts(outputs: object, inputs: object, documents: Sequence[Source]) -> list[str]:
    """Returns the texts that a call has made of documents: its output where that is a text which the call was not
    given, else the new texts in its mapping that hold one of the documents as a whole."""
    if isinstance(outputs, str):
        return [] if isinstance(inputs, Mapping) and is_value_of(outputs, inputs) else [outputs]
    if not isinstance(outputs, Mapping):
        return []
    old = {id(value) for value in inputs.values()} if isinstance(inputs, Mapping) else ()
    texts = [value for value in outputs.values() if isinstance(value, str) and id(value) not in old]
    contents = [content for _, content in documents if content.strip()]
    return [text for text in texts if any(content in text for content in contents)]


def read_of(prompt: Sequence[FormattedText]) -> list[FormattedText]:
    """Returns those texts in a prompt that say which passages a model reads, and notes that all of them were read.

    A text says nothing where the text that it was made of was read, too; nor does a text without any document beside
    one that holds some of the same, such as the question that was picked from the same mapping."""
    for one in prompt:
        one.read = True
    new = [one for one in prompt if not any(earlier.read for earlier in one.earlier())]
    if len(new) < 2:
        return new
    holding = [one for one in new if one.holds_documents]
    return [
        one for one in new if one in holding or not any(one.documents == other.documents for other in holding)
    ]


def is_value_of(text: str, inputs: Mapping[Any, Any]) -> bool:
    """True where the text is one of the values of a mapping."""
    return any(isinstance(value, str) and value == text for value in inputs.values())


def variables_of(prompt: object) -> Sequence[str]:
    """Returns the names of the variables of a prompt template, from LangChain's description of it."""
    described = prompt.get("kwargs") if isinstance(prompt, Mapping) else None
    named = described.get("input_variables") if isinstance(described, Mapping) else None
    return [one for one in named if isinstance(one, str)] if isinstance(named, (list, tuple)) else []


def sources(inputs: object) -> list[Source]:
    """Returns the ids and texts of the documents in the input of such a call."""
    return [(one.id or "", one.page_content) for one in given_documents(inputs)]


def is_plain(text: str, documents: Sequence[Source]) -> bool:
    """True where the text consists of the bare texts of the documents, joined."""
    texts = [content for _, content in documents]
    return any(text == separator.join(texts) for separator in ("\n\n", "\n"))


def cut_document(text: str, documents: Sequence[Source]) -> tuple[Source, str] | None:
    """Returns the document in which the text ends, and the part of it that is there; None where the text does not
    begin with the bare texts of documents, joined, or ends with one of them."""
    for separator in ("\n\n", "\n"):
        at = 0
        for document in documents:
            rest = text[at:]
            if len(rest) < len(document[1]):
                if at and rest.strip() and document[1].startswith(rest):
                    return document, rest
                break
            if not rest.startswith(document[1] + separator):
                break
            at += len(document[1]) + len(separator)
    return None


def as_formatted(shown: Sequence[tuple[str, Sequence[Source]]], found: Sequence[Passage]) -> Delivered:
    """Returns the passages of one retrieval that are in the texts, each with its frame in there: the model got these.
    A text of bare documents that ends inside of one gives the part of that one as well. Where no passage is there as a
    whole, returns the parts that are there; None where there are no parts either.

    The candidates get these texts too, since scorers are to judge the texts that the model reads.
    """
    got: dict[Source, str] = {}
    cut: dict[Source, str] = {}
    for text, documents in shown:
        if (last := cut_document(text, documents)) is not None:
            cut |= [last]
            text = text[: len(text) - len(last[1])]
        there = [document for document in documents if document[1].strip() and document[1] in text]
        contents = [content for _, content in there]
        pieces = (framed(text, contents) or contents) if there else []
        got |= {one: piece.strip() for one, piece in zip(there, pieces, strict=True) if one not in got}
    read_as = [(one, replace(one, text=got[one.id, one.text])) for one in found if (one.id, one.text) in got]
    if read_as or not any(documents for _, documents in shown):
        parts = [
            replace(one, text=cut[key]) for one in found if (key := (one.id, one.text)) in cut.keys() - got
        ]
        return Delivered([*(read for _, read in read_as), *parts], {}, read_as)
    text = "\n".join(text for text, _ in shown)
    return OutputShare(text, [lambda: list(found)], handed_on=True).of(0)


def _are_documents(value: Any) -> bool:
    return (
        isinstance(value, (list, tuple)) and bool(value) and all(isinstance(one, Document) for one in value)
    )

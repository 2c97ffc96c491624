"""Reads questions whose documents are true, false or useless, in RAMDocs' form (`ramdocs.jsonl`).

{"question": "…", "documents": [{"text": "…", "type": "correct", "answer": "…"}], "gold_answers": ["…"],
 "wrong_answers": ["…"]}
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from ragguard.storage.files.jsonl import Fields, json_lines
from studies.readers.lists import objects

Kind = Literal["correct", "misinfo", "noise"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class Document:
    """A text, and whether it is true, false or useless for the question."""

    text: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class MixedQuestion:
    """A question with its right answers and documents of all kinds."""

    question: str
    references: tuple[str, ...]
    documents: tuple[Document, ...]

    def texts(self, kind: Kind) -> list[str]:
        """Returns the texts of the documents of a kind."""
        return [one.text for one in self.documents if one.kind == kind]


def read(path: Path) -> Iterator[MixedQuestion]:
    """Yields the questions of a file; of equal documents one counts, and one that is twice of different kinds is
    refused."""
    for fields in json_lines(path):
        kinds: dict[str, Kind] = {}
        for document in objects(fields, "documents"):
            text, kind = document.text("text"), _kind(document)
            if kinds.setdefault(text, kind) != kind:
                raise document.wrong("type", kind, f"{kinds[text]}, as the same text has before")
        references = tuple(one.strip() for one in fields.texts("gold_answers") if one.strip())
        documents = tuple(Document(text, kind) for text, kind in kinds.items() if text.strip())
        yield MixedQuestion(fields.text("question"), tuple(dict.fromkeys(references)), documents)


def _kind(document: Fields) -> Kind:
    value = document.text("type")
    for kind in KINDS:
        if value == kind:
            return kind
    raise document.wrong("type", value, f"one of {', '.join(KINDS)}")

"""A BEIR folder (`corpus.jsonl`, `queries.jsonl`, `qrels/*.tsv`) with a `NAME.run` a system beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ragguard.analysis.validation.contexts import Context
from ragguard.analysis.validation.readers.fields import json_lines
from ragguard.analysis.validation.readers.rankings import (
    Folder,
    Question,
    qrel_files,
    read_qrels,
    read_run,
    run_files,
)

CORPUS, QUERIES = "corpus.jsonl", "queries.jsonl"


def read(path: Path, k: int) -> Iterator[Context]:
    """Yields the contexts of all systems, with the texts of their documents."""
    wanted = {
        document
        for file in run_files(path)
        for documents in read_run(file).values()
        for document in documents[:k]
    }
    questions = {
        fields.text("_id"): Question(fields.text("text"), fields.texts("references", "answers"))
        for fields in json_lines(path / QUERIES)
    }
    yield from Folder(path, read_qrels(qrel_files(path)), questions, texts(path / CORPUS, wanted)).contexts(k)


def texts(path: Path, wanted: set[str]) -> dict[str, str]:
    """Returns the texts of these documents, each with its title before it."""
    found: dict[str, str] = {}
    for fields in json_lines(path):
        document = fields.text("_id")
        if document in wanted:
            title, text = fields.text("title", default=""), fields.text("text", default="")
            found[document] = f"{title}\n{text}".strip()
    return found

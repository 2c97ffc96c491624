"""A folder of TREC files: `qrels…`, a `NAME.run` a system, perhaps `topics.tsv` (`query<TAB>text`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ragguard.analysis.validation.contexts import Context
from ragguard.analysis.validation.readers.fields import lines_of
from ragguard.analysis.validation.readers.rankings import Folder, Question, qrel_files, read_qrels
from ragguard.errors import InvalidInput

TOPICS = "topics.tsv"


def read(path: Path, k: int) -> Iterator[Context]:
    """Yields the contexts of all systems, without texts: only rank measures can be computed."""
    yield from Folder(path, read_qrels(qrel_files(path)), read_topics(path / TOPICS)).contexts(k)


def read_topics(path: Path) -> dict[str, Question]:
    """Returns the questions; empty where there is no such file."""
    found: dict[str, Question] = {}
    if path.exists():
        for number, line in lines_of(path):
            query, tab, text = line.strip().partition("\t")
            if not tab:
                raise InvalidInput(f"{path}, line {number}", line.strip()[:60], "`query`, a tab and its text")
            found[query] = Question(text.strip())
    return found

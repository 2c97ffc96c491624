"""The documents of passages by the names that people know, and the passages in which a reference stands."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

from ragguard.facts.run_view import PassageView, RunView
from ragguard.records import Passage
from ragguard.text.statements.phrases import findable, mentions

_NAMES = ("source", "file_name", "filename", "file_path", "path", "url", "title")
"""The metadata keys under which retrievers name the document of a passage, the most telling first."""


def document_of(passage: Passage) -> str:
    """Returns the name of the document that a passage is from: its file, address or title, else the passage's id, else
    that it has none, with a digest that is equal for equal texts."""
    for key in _NAMES:
        if isinstance(name := passage.metadata.get(key), str) and name:
            return name
    if passage.id:
        return str(passage.id)
    return f"text without an id, {hashlib.sha256(passage.text.encode('utf-8', 'replace')).hexdigest()[:8]}"


def needed(view: RunView, ranks: Mapping[int, set[int]]) -> Iterator[PassageView]:
    """Yields those passages of a run, given by their ranks by the number of their hop, in which a reference stands."""
    references = findable(view.run.references or ())
    for hop in view.hops:
        for one in hop.passages:
            if one.rank in ranks.get(hop.number, ()) and mentions(one.passage.text, references):
                yield one

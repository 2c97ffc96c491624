"""How often `ragguard try` quotes a sentence that people selected, on CLAPnq: `python -m studies.quotes FILE`.

A line of the file has a question (`input`), a passage in sentences and the sentences that people selected. Even
questions chose the rule of `ragguard/cli/quotes.py`; odd ones are the ones to report.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ragguard.analysis.tables import Table
from ragguard.cli.quotes import AskedQuestion, Sentence
from ragguard.records import Passage
from ragguard.text.chunks import HEADING
from ragguard.text.search import Index, terms


class SelectedSentences(NamedTuple):
    """A question, and the sentences of a passage of which people selected some."""

    question: str
    title: str
    sentences: Sequence[str]
    selected: Sequence[bool]


def read(path: Path) -> Iterator[SelectedSentences]:
    """Yields the questions of a file of CLAPnq of which people selected a sentence."""
    for line in path.read_text(encoding="utf-8").splitlines():
        data = json.loads(line)
        passage = data["passages"][0]
        chosen = {
            sentence for answer in data["output"] for sentence in answer.get("selected_sentences") or ()
        }
        if chosen:
            marks = [sentence in chosen for sentence in passage["sentences"]]
            yield SelectedSentences(data["input"], passage["title"], passage["sentences"], marks)


def _quoted(item: SelectedSentences) -> int:
    question, passage = AskedQuestion(item.question), Passage("", metadata={HEADING: item.title})
    worths = question.worths(item.sentences, item.title)
    ranked = [Sentence(text, passage, worth) for text, worth in zip(item.sentences, worths, strict=True)]
    chosen = question.chosen(ranked)
    return next(at for at, sentence in enumerate(ranked) if sentence is chosen)


def _by_bm25(item: SelectedSentences) -> int:
    return next((at for at, _ in Index(map(terms, item.sentences)).best(terms(item.question))), 0)


WAYS: dict[str, Callable[[SelectedSentences], int]] = {
    "ragguard try": _quoted, "BM25 in the passage": _by_bm25, "the first sentence": lambda item: 0,
}  # fmt: skip


def table(items: Sequence[SelectedSentences]) -> Table:
    """Returns the share of questions of which each way finds a selected sentence, beside chance."""
    halves = [items[0::2], items[1::2]]
    rows: list[tuple[str | float | None, ...]] = [
        (name, *(sum(item.selected[way(item)] for item in half) / len(half) for half in halves))
        for name, way in WAYS.items()
    ]
    rows.append(
        (
            "chance",
            *(sum(sum(item.selected) / len(item.selected) for item in half) / len(half) for half in halves),
        )
    )
    columns = ("way", f"even ({len(halves[0])}, chose the rule)", f"odd ({len(halves[1])})")
    return Table("quotes", "Quoted sentences that people selected", columns, tuple(rows))


if __name__ == "__main__":
    print(table(list(read(Path(sys.argv[1])))).markdown())

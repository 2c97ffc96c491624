"""Reads questions of which people said whether their passages answer them: CLAPnq's and MTRAG's.

CLAPnq (`clapnq_answerable.jsonl`, `clapnq_unanswerable.jsonl`), with the sentences that people selected:
{"input": "…", "passages": [{"title": "…", "text": "…", "sentences": ["…"]}],
 "output": [{"answer": "…", "selected_sentences": ["…"]}]}
MTRAG (`mtragun.jsonl`), of which the last turn is the question:
{"input": [{"speaker": "user", "text": "…"}], "contexts": [{"text": "…"}], "answerability": ["ANSWERABLE"]}
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ragguard.storage.files.jsonl import json_lines
from studies.readers.lists import objects

ANSWERABLE = ("ANSWERABLE", "PARTIAL", "UNDERSPECIFIED", "UNANSWERABLE")


@dataclass(frozen=True, slots=True)
class JudgedPassages:
    """A question, its passages, and what people said about them."""

    question: str
    passages: tuple[str, ...]
    answerable: bool
    """True if the passages answer the whole question."""
    sentences: tuple[str, ...] = ()
    selected: frozenset[int] = frozenset()
    """The numbers of the sentences that a person selected."""


def read_clapnq(path: Path) -> Iterator[JudgedPassages]:
    """Yields the questions of a file. A question can be answered if a person selected sentences for it."""
    for fields in json_lines(path):
        passages = objects(fields, "passages")
        sentences = tuple(sentence for one in passages for sentence in one.texts("sentences"))
        chosen = {text for one in objects(fields, "output") for text in one.texts("selected_sentences")}
        yield JudgedPassages(
            fields.text("input"),
            tuple(f"{one.text('title', default='')}\n{one.text('text')}".strip() for one in passages),
            bool(chosen),
            sentences,
            frozenset(at for at, sentence in enumerate(sentences) if sentence in chosen),
        )


def read_mtrag(path: Path) -> Iterator[JudgedPassages]:
    """Yields the last questions of the conversations of a file."""
    for fields in json_lines(path):
        turns, said = objects(fields, "input"), fields.texts("answerability")
        if not turns:
            raise fields.wrong("input", [], "at least one turn")
        if len(said) != 1 or said[0] not in ANSWERABLE:
            raise fields.wrong("answerability", list(said), f"one of {', '.join(ANSWERABLE)}")
        texts = (one.text("text").strip() for one in objects(fields, "contexts"))
        yield JudgedPassages(
            turns[-1].text("text"), tuple(dict.fromkeys(filter(None, texts))), said[0] == ANSWERABLE[0]
        )

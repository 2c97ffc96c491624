"""Reads questions of several hops with their parts: MuSiQue's files, as `musique_ans_*.jsonl`, one question a line, and
HotpotQA's, one JSON list of them or one a line. HotpotQA has no sub-questions: a part asks the whole question.

{"question": "…", "answer": "…", "answer_aliases": ["…"], "paragraphs": [{"idx": 0, "title": "…", "paragraph_text": "…",
 "is_supporting": true}], "question_decomposition": [{"question": "#1 >> author", "answer": "…",
 "paragraph_support_idx": 0}]}
{"question": "…", "answer": "…", "type": "bridge", "context": [["title", ["sentence", "…"]]],
 "supporting_facts": [["title", 0]]}
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from ragguard.storage.files.jsonl import Fields, json_lines
from ragguard.text.language import normalise
from studies.readers.lists import json_objects, objects

_PART = re.compile(r"#(\d)")


@dataclass(frozen=True, slots=True)
class Part:
    """A sub-question of a question of several hops."""

    query: str
    """The sub-question, with the answers of the parts that it needs filled in."""
    answer: str
    paragraph: int
    """The number of the paragraph that answers it, among the question's paragraphs."""
    needs: frozenset[int]
    """The numbers of the parts whose answers it needs, from 0."""


@dataclass(frozen=True, slots=True)
class MultiHop:
    """A question of several hops."""

    question: str
    references: tuple[str, ...]
    paragraphs: tuple[str, ...]
    parts: tuple[Part, ...]
    supporting: frozenset[int]
    """The numbers of the paragraphs that the answer rests on."""

    @property
    def others(self) -> list[int]:
        """The numbers of the paragraphs that the answer does not rest on."""
        return [at for at in range(len(self.paragraphs)) if at not in self.supporting]


def read(path: Path) -> Iterator[MultiHop]:
    """Yields the questions of a file."""
    for fields in json_lines(path):
        yield _question(fields)


def read_hotpotqa(path: Path) -> Iterator[MultiHop]:
    """Yields the questions of a file of HotpotQA that rest on two paragraphs or more. Of a bridge the paragraph with
    the answer is found last."""
    for fields in json_objects(path):
        context = [(str(title), "".join(sentences)) for title, sentences in fields.data.get("context") or ()]
        titles = [title for title, _ in context]
        facts = dict.fromkeys(str(title) for title, _ in fields.data.get("supporting_facts") or ())
        found = [titles.index(title) for title in facts if title in titles]
        answer, bridge = fields.text("answer"), fields.text("type") == "bridge"
        if bridge:
            found.sort(key=lambda at: normalise(answer) in normalise(context[at][1]))
        if len(found) < 2:
            continue
        yield MultiHop(
            fields.text("question"),
            (answer,),
            tuple(f"{title}\n{text.strip()}" for title, text in context),
            tuple(
                Part(fields.text("question"), "", at, frozenset({number - 1} if bridge and number else ()))
                for number, at in enumerate(found)
            ),
            frozenset(found),
        )


def half(questions: Sequence[MultiHop], which: int) -> list[MultiHop]:
    """Returns one half of the questions, 0 or 1, by a digest of each: what is chosen on one half is measured on the
    other."""
    return [one for one in questions if sha256(one.question.encode()).digest()[0] % 2 == which]


def _question(fields: Fields) -> MultiHop:
    paragraphs = objects(fields, "paragraphs")
    numbers = {one.text("idx"): at for at, one in enumerate(paragraphs)}
    parts: list[Part] = []
    for one in objects(fields, "question_decomposition"):
        asked, paragraph = one.text("question"), one.text("paragraph_support_idx")
        needs = frozenset(int(number) - 1 for number in _PART.findall(asked))
        if paragraph not in numbers:
            raise one.wrong("paragraph_support_idx", paragraph, "the `idx` of a paragraph")
        if not all(0 <= at < len(parts) for at in needs):
            raise one.wrong("question", asked, "#1, #2, …, for answers of the parts before it")
        query = _PART.sub(lambda number: parts[int(number[1]) - 1].answer, asked)
        parts.append(Part(query, one.text("answer"), numbers[paragraph], needs))
    supporting = {at for at, one in enumerate(paragraphs) if one.data.get("is_supporting")}
    return MultiHop(
        fields.text("question"),
        tuple(dict.fromkeys([fields.text("answer"), *fields.texts("answer_aliases")])),
        tuple(f"{one.text('title')}\n{one.text('paragraph_text')}" for one in paragraphs),
        tuple(parts),
        frozenset(supporting | {part.paragraph for part in parts}),
    )

"""The cases of the examination: questions of ordinary English, each with passages that answer it and that do not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import NamedTuple

WITHOUT = "near", "other"
"""Passages about another subject than the question's."""
SAME_SUBJECT = "partial", "miss"
"""Passages about the subject of the question that do not answer it, as a search engine returns them."""
_OTHER = 7
"""The passage about another subject is taken from the question this many places further on."""


@dataclass(frozen=True, slots=True)
class ExamQuestion:
    """A question with its answer and six passages."""

    question: str
    answer: str
    same: str
    """The answer in other words."""
    wrong: str
    """Another answer, which contradicts the right one."""
    gold: str
    """The passage that answers."""
    near: str
    """A passage of the same kind about something else."""
    partial: str
    """A passage about the subject of the question that does not hold the answer."""
    miss: str
    """A passage about the subject that answers another question about it."""
    other: str
    """A passage about another subject."""

    @property
    def contradiction(self) -> str:
        """The passage that answers, with the wrong answer in it."""
        return self.gold.replace(self.answer, self.wrong)


class TwoHopQuestion(NamedTuple):
    """A question whose answer needs two passages."""

    question: str
    answer: str
    first: str
    second: str
    near: str


class Cases(NamedTuple):
    """All cases of the examination."""

    questions: Sequence[ExamQuestion]
    two_hop: Sequence[TwoHopQuestion]


@cache
def exam_cases() -> Cases:
    """Returns the cases that ship with the package."""
    data = json.loads((files("ragguard.scorers.exam") / "cases.json").read_text(encoding="utf-8"))
    golds = [row["gold"] for row in data["questions"]]
    return Cases(
        [
            ExamQuestion(question=row.pop("q"), other=golds[(at + _OTHER) % len(golds)], **row)
            for at, row in enumerate(data["questions"])
        ],
        [TwoHopQuestion(question=row.pop("q"), **row) for row in data["two_hop"]],
    )

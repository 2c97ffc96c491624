"""The cases of the examination: short passages of made-up facts, which no model knows by heart."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

VERSION = 2
"""The version of the cases; a model is examined anew when it changes."""
_OTHER = 7
"""The passage about another subject is taken from the question this many places further on."""


@dataclass(frozen=True, slots=True)
class ExamQuestion:
    """A question with its answer and five passages."""

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
    other: str
    """A passage about another subject."""

    @property
    def contradiction(self) -> str:
        """The passage that answers, with the wrong answer in it."""
        return self.gold.replace(self.answer, self.wrong)


@dataclass(frozen=True, slots=True)
class TwoHopQuestion:
    """A question whose answer needs two passages."""

    question: str
    answer: str
    first: str
    second: str
    near: str


@dataclass(frozen=True, slots=True)
class Cases:
    """All cases of the examination."""

    questions: Sequence[ExamQuestion]
    two_hop: Sequence[TwoHopQuestion]


@cache
def exam_cases() -> Cases:
    """Returns the cases that ship with the package."""
    data = json.loads((files("ragguard.scorers.exam") / "cases.json").read_text(encoding="utf-8"))
    listed = data["questions"]
    return Cases(
        [
            ExamQuestion(question=one.pop("q"), other=listed[(at + _OTHER) % len(listed)]["gold"], **one)
            for at, one in enumerate([dict(one) for one in listed])
        ],
        [TwoHopQuestion(question=one.pop("q"), **one) for one in data["two_hop"]],
    )

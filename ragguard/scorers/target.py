"""The answers against which beliefs about a run are measured: its references, else its own answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ragguard.records import ReferenceSource
from ragguard.scorers.view import View
from ragguard.text.statements.abstention import is_abstention


@dataclass(frozen=True, slots=True)
class Target:
    """The answers against which beliefs are measured."""

    references: tuple[str, ...] = ()
    source: ReferenceSource = "none"
    given: tuple[str, ...] = ()
    """The references as the run has them, before a long answer is shortened."""

    @property
    def fields(self) -> dict[str, Any]:
        """The fields that every score about these answers has."""
        support = "support" if self.source == "answer" else ""
        return {"label": support, "reference_source": self.source, "references": self.given}


def target_of(view: View) -> Target:
    """Returns the short references; the run's own answer where it has no references; else no answers: where all
    references are long texts, and where the run abstained."""
    if view.references:
        short = view.short_references
        return Target(short, "gold", short) if short else Target()
    return own_answer(view)


def own_answer(view: View) -> Target:
    """Returns the run's own answer, unless it is an abstention."""
    answer = (view.run.answer or "").strip()
    return (
        Target() if is_abstention(answer, view.setting.language) else Target((answer,), "answer", (answer,))
    )

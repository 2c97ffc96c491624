"""The probe of grades: how useful a passage is for the step's own query, from 1 to 5."""

from __future__ import annotations

from ragguard.engines.prompts import PromptSet
from ragguard.probes.question import LabelQuestion


def grade(prompts: PromptSet, query: str, passage: str) -> LabelQuestion:
    """Returns the question for the judge; `read_rating` reads the answer."""
    return LabelQuestion(prompts.render("grade", [passage], query=query), prompts.labels("grade"))

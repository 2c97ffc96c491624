"""How useful is a passage for the step's own query, 1 to 5?"""

from __future__ import annotations

from ragguard.engines.prompts import PromptSet
from ragguard.probes.question import LabelQuestion


def grade(prompts: PromptSet, query: str, passage: str) -> LabelQuestion:
    """The question; `read_rating` reads its answer."""
    return LabelQuestion(prompts.render("grade", [passage], query=query), prompts.labels("grade"))

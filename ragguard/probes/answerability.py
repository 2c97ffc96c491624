"""The probe of answerability: how well a text answers a sub-question, from 0 to 5."""

from __future__ import annotations

from ragguard.engines.prompts import PromptSet
from ragguard.probes.question import LabelQuestion


def answerability(prompts: PromptSet, sub_question: str, text: str) -> LabelQuestion:
    """Returns the question for the judge; `read_rating` reads the answer."""
    prompt = prompts.render("answerability", [text], question=sub_question)
    return LabelQuestion(prompt, prompts.labels("answerability"))

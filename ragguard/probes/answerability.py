"""How well does a text answer a sub-question, 0 to 5?"""

from __future__ import annotations

from ragguard.engines.prompts import PromptSet
from ragguard.probes.question import LabelQuestion


def answerability(prompts: PromptSet, sub_question: str, text: str) -> LabelQuestion:
    """The question; `read_rating` reads its answer."""
    prompt = prompts.render("answerability", [text], question=sub_question)
    return LabelQuestion(prompt, prompts.labels("answerability"))

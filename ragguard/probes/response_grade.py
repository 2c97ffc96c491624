"""How good is an answer beside the ideal ones, 1 to 5?"""

from __future__ import annotations

from collections.abc import Sequence

from ragguard.engines.prompts import PromptSet
from ragguard.probes.question import LabelQuestion


def response_grade(
    prompts: PromptSet, question: str, answer: str, references: Sequence[str]
) -> LabelQuestion:
    """The question; `read_rating` reads its answer."""
    prompt = prompts.render(
        "response_grade", question=question, answer=answer, references="\n".join(references)
    )
    return LabelQuestion(prompt, prompts.labels("response_grade"))

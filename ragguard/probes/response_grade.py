"""The probe of response grades: how much of an ideal answer's information an answer holds, from 1 to 5."""

from __future__ import annotations

from collections.abc import Sequence

from ragguard.engines.prompts import PromptSet
from ragguard.probes.question import LabelQuestion


def response_grade(
    prompts: PromptSet, question: str, answer: str, references: Sequence[str]
) -> LabelQuestion:
    """Returns the question for the judge, on the scale of Schwartz et al.; `read_rating` reads the answer.

    The grade is the share of the ideal answer's information: 1 clearly less than half, 2 about half, 3 most, 4 nearly
    all, 5 all. What the answer says beyond it is free.
    """
    prompt = prompts.render(
        "response_grade", question=question, answer=answer, references="\n".join(references)
    )
    return LabelQuestion(prompt, prompts.labels("response_grade"))

"""The probe of sub-questions: the smaller questions that a question holds."""

from __future__ import annotations

import re

from ragguard.engines.prompts import PromptSet
from ragguard.errors import ScoringError
from ragguard.scorers.probes.question import SampleAnswer, SampleQuestion
from ragguard.text.language import normalise

_MARKER = re.compile(r"^\s*(?:[-*•–]|\(?\d{1,2}[.):]|[qQ]\d{1,2}[.:])?\s*")


def sub_questions(prompts: PromptSet, question: str, seed: int) -> SampleQuestion:
    """Returns the question for the judge's likeliest answer, so that a run always gets the same sub-questions."""
    prompt = prompts.render("sub_questions", question=question)
    return SampleQuestion(
        prompt, 1, prompts.template("sub_questions").max_tokens, 0.0, seed=seed, who="judge"
    )


def read_sub_questions(answer: SampleAnswer) -> list[str]:
    """Returns the sub-questions in an answer, one for each line; raises ScoringError where there are none."""
    found = read_lines(answer)
    if not found:
        raise ScoringError(
            "the judge was asked for sub-questions, one a line, and gave none; "
            "give them with the run (`sub_questions`) or choose a judge that follows the prompt"
        )
    return found


def read_lines(answer: SampleAnswer) -> list[str]:
    """Returns the lines of an answer without list markers, blank lines and repetitions."""
    found: dict[str, str] = {}
    for line in answer.samples[0].text.splitlines() if answer.samples else []:
        text = _MARKER.sub("", line).strip()
        if key := normalise(text):
            found.setdefault(key, text)
    return list(found.values())

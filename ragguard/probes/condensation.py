"""The probe of condensation: what a long answer says in a few words."""

from __future__ import annotations

from ragguard.engines.prompts import PromptSet
from ragguard.errors import ScoringError
from ragguard.probes.question import SampleAnswer, SampleQuestion


def condensation(prompts: PromptSet, question: str, answer: str, seed: int) -> SampleQuestion:
    """Returns the question for the judge's likeliest short form of an answer."""
    prompt = prompts.render("condense", question=question, answer=answer)
    return SampleQuestion(prompt, 1, prompts.template("condense").max_tokens, 0.0, seed=seed, who="judge")


def read_condensation(answer: SampleAnswer) -> str:
    """Returns the short answer; raises ScoringError where the judge gave nothing."""
    text = " ".join(answer.samples[0].text.split()) if answer.samples else ""
    if not text:
        raise ScoringError("the judge was asked to shorten the run's answer and gave nothing back")
    return text

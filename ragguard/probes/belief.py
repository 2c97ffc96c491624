"""The probe of belief: answers that the reader draws for a question and a context. Before they are compared with the
run's own answer, the judge shortens that one where it is long."""

from __future__ import annotations

from collections.abc import Sequence

from ragguard.engines.base import Prompt
from ragguard.engines.prompts import PromptSet
from ragguard.errors import ScoringError
from ragguard.probes.question import SampleAnswer, SampleQuestion


def belief(
    prompts: PromptSet,
    question: str,
    passages: Sequence[str],
    *,
    cut_order: Sequence[int] = (),
    n: int,
    seed: int,
) -> SampleQuestion:
    """Returns the question for the reader. `cut_order` is the order in which passages are cut where it does not fit."""
    if not passages:
        prompt = prompts.render("answer_closed", question=question)
        tokens = prompts.template("answer_closed").max_tokens
    else:
        prompt = prompts.render("answer", passages, question=question)
        tokens = prompts.template("answer").max_tokens
        if len(prompt.cuttable) == len(passages) == len(cut_order):
            spans = prompt.cuttable[::-1]
            prompt = Prompt(prompt.messages, tuple(spans[index] for index in cut_order))
    return SampleQuestion(prompt, n, tokens, 1.0, seed=seed)


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

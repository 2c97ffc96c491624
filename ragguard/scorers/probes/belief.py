"""The probe of belief: answers that the reader draws for a question and a context. Before they are compared with the
run's own answer, the judge shortens that one where it is long."""

from __future__ import annotations

from collections.abc import Sequence

from ragguard.engines.base import Prompt
from ragguard.engines.prompts import PromptSet
from ragguard.errors import ScoringError
from ragguard.scorers.probes.question import SampleAnswer, SampleQuestion, TextQuestion
from ragguard.text.language import ENGLISH, Language, normalise


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


def likelihood(
    prompts: PromptSet,
    question: str,
    passages: Sequence[str],
    text: str,
    *,
    cut_order: Sequence[int] = (),
) -> TextQuestion:
    """Returns a question that measures how probable a given answer is as the text after the prompt of `belief`."""
    asked = belief(prompts, question, passages, cut_order=cut_order, n=1, seed=0).prompt
    return TextQuestion(Prompt(asked.messages, asked.cuttable, text), probe="likelihood")


def too_long_to_compare(prompts: PromptSet, answer: str, language: Language = ENGLISH) -> bool:
    """Returns whether an answer has more words than the model of this prompt set can compare."""
    template = prompts.templates.get("entailment")
    return template is not None and 0 < template.longest < len(normalise(answer, language).split())


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


def short_forms(prompts: PromptSet, question: str, answer: str, seed: int) -> list[SampleQuestion]:
    """Returns two questions for the judge that give the short answer in a sentence: to shorten it, and to answer the
    question from the sentence alone."""
    reading = prompts.render("answer", [answer], question=question)
    tokens = prompts.template("answer").max_tokens
    return [
        condensation(prompts, question, answer, seed),
        SampleQuestion(reading, 1, tokens, 0.0, seed=seed, who="judge"),
    ]


def read_short_form(
    replies: Sequence[SampleAnswer], question: str, answer: str, language: Language = ENGLISH
) -> str:
    """Returns the first reply whose words stand in the sentence and not in the question; raises ScoringError where
    there is none."""
    for reply in replies:
        short = " ".join(reply.samples[0].text.split()) if reply.samples else ""
        if short and _holds(answer, short, language) and not _holds(question, short, language):
            return short
    raise ScoringError(
        "the model that compares answers compares short ones only, and found none in the run's answer: point ragguard "
        'at a real model, such as RagGuard(engine="http://localhost:8000/v1"), or give short answers'
    )


def _holds(text: str, part: str, language: Language) -> bool:
    """Returns whether the words of a part stand in a text, one behind the other."""
    words, wanted = normalise(text, language).split(), normalise(part, language).split()
    return any(words[at : at + len(wanted)] == wanted for at in range(len(words) - len(wanted) + 1))

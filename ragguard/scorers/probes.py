"""The probes: what a model is asked about passages, answers and queries, and how its answer is read.

Ratings are digits of a scale, abstention and relevance are labels, beliefs are drawn answers, and a likelihood is that
of a given text behind a prompt.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ragguard.engines.base import Prompt
from ragguard.engines.prompts import PromptSet, Task
from ragguard.errors import LowLabelMass, ScoringError, shown_apart
from ragguard.records import Usage
from ragguard.scorers.question import (
    LabelAnswer,
    LabelQuestion,
    SampleAnswer,
    SampleQuestion,
    TextQuestion,
    Who,
)
from ragguard.text.language import ENGLISH, Language, normalise
from ragguard.text.statements.abstention import is_abstention

LEAST_MASS = 0.5


def answerability(prompts: PromptSet, sub_question: str, text: str) -> LabelQuestion:
    """Returns a question that rates, from 0 to 5, how well a text answers a sub-question."""
    prompt = prompts.render("answerability", [text], question=sub_question)
    return LabelQuestion(prompt, prompts.labels("answerability"), probe="ratings")


def grade(prompts: PromptSet, query: str, passage: str) -> LabelQuestion:
    """Returns a question that rates, from 1 to 5, how useful a passage is for its step's query."""
    asked = prompts.render("grade", [passage], query=query)
    return LabelQuestion(asked, prompts.labels("grade"), probe="grades")


def response_grade(
    prompts: PromptSet, question: str, answer: str, references: Sequence[str]
) -> LabelQuestion:
    """Returns the question how much of an ideal answer's information an answer holds, on the scale of Schwartz et al.

    1 is clearly less than half, 2 about half, 3 most, 4 nearly all, 5 all. What the answer says beyond it is free.
    """
    prompt = prompts.render(
        "response_grade", question=question, answer=answer, references="\n".join(references)
    )
    return LabelQuestion(prompt, prompts.labels("response_grade"))


def check_mass(mass: float, who: str, way_out: str) -> float:
    """Returns the probability that a model puts on all labels together; raises LowLabelMass where it rather says
    something else."""
    if mass < LEAST_MASS:
        shown, least = shown_apart(mass, LEAST_MASS)
        raise LowLabelMass(
            f"{who} puts only {shown} on them (at least {least} is needed); {way_out}, or, if the model thinks "
            f"first, switch its thinking off"
        )
    return mass


def _judged_mass(question: LabelQuestion, answer: LabelAnswer) -> float:
    asked = f"the judge was asked for one of {', '.join(question.labels)} and"
    return check_mass(
        sum(answer.p), asked, "take a prompt set that it follows, or an instruction-tuned model"
    )


@dataclass(frozen=True, slots=True)
class Reading:
    """A number that a model's answer gives: a probability, or a rating on a scale of digits."""

    value: float
    """The probability, or the most probable grade; of equally probable grades the lowest."""
    stderr: float | None = 0.0
    """The standard error of the probability, or of the expectation of a grade; None where it is not known."""
    remarks: Mapping[str, int | str] = field(default_factory=dict)
    """Facts for the reader of a score about how the question was answered."""
    usage: Usage = field(default_factory=Usage)
    expectation: float | None = None
    """The mean grade."""


def read_rating(question: LabelQuestion, answer: LabelAnswer, grades: Sequence[int] = ()) -> Reading:
    """Returns the rating in the probabilities of labels that are digits, or that stand for the given grades: the most
    probable digit, and the mean over all digits."""
    mass = _judged_mass(question, answer)
    grades = grades or [int(label) for label in question.labels]
    expectation = sum(digit * p for digit, p in zip(grades, answer.p, strict=True)) / mass
    by_grade: dict[int, float] = dict.fromkeys(grades, 0.0)
    for digit, p in zip(grades, answer.p, strict=True):
        by_grade[digit] += p
    value = max(by_grade, key=lambda digit: (by_grade[digit], -digit))
    stderr: float | None = None if answer.bound else 0.0
    if answer.stderr is not None:
        spread = sum(p / mass * (digit - expectation) ** 2 for digit, p in zip(grades, answer.p, strict=True))
        variances = [
            s * s / max(p * (1 - p), 1e-12) for s, p in zip(answer.stderr, answer.p, strict=True) if s > 0
        ]
        # Each p's error is sqrt(p(1 - p)/n): their ratio gives 1/n back, and the mean's error is sqrt(spread/n).
        stderr = (spread * max(variances, default=0.0)) ** 0.5
    return Reading(value, stderr, answer.remarks, answer.usage, expectation=expectation)


def abstention(prompts: PromptSet, query: str, *passages: str) -> LabelQuestion:
    """Returns the question for the model that reads, about one passage or about several together."""
    prompt = prompts.render("abstention", passages, query=query)
    return LabelQuestion(prompt, prompts.labels("abstention"), who="engine", probe="abstention")


def read_abstention(answer: LabelAnswer) -> Reading:
    """Reads the probability of abstention from an answer: that of the question's first label."""
    exact = None if answer.bound else 0.0
    stderr = exact if answer.stderr is None else answer.stderr[0]
    return Reading(min(1.0, answer.p[0]), stderr, answer.remarks, answer.usage)


def sees_references(query: str, question: str, references: Sequence[str]) -> bool:
    """Returns whether the judge is shown the references: only where the step asked the run's own question."""
    return bool(references) and normalise(query) == normalise(question)


def relevance(
    prompts: PromptSet, query: str, *passages: str, question: str = "", references: Sequence[str] = ()
) -> LabelQuestion:
    """Returns the question for the judge, about one passage or about several together. The judge is shown the
    references where the query is the run's own `question`."""
    task: Task = "relevance"
    slots = {"query": query}
    if sees_references(query, question, references):
        task, slots["references"] = "relevance_with_references", "\n".join(references)
    prompt = prompts.render(task, passages, **slots)
    return LabelQuestion(prompt, prompts.labels(task), probe="relevance", about=(query, *passages))


def read_relevance(question: LabelQuestion, answer: LabelAnswer) -> Reading:
    """Reads the relevance from an answer: the first of its two labels says yes."""
    mass = _judged_mass(question, answer)
    yes, no = answer.p
    stderr: float | None = None if answer.bound else 0.0
    if answer.stderr is not None:
        # The error of a ratio a / (a + b), to first order.
        stderr = ((no * answer.stderr[0]) ** 2 + (yes * answer.stderr[1]) ** 2) ** 0.5 / mass**2
    return Reading(yes / mass, stderr, answer.remarks, answer.usage)


def query_likelihood(prompts: PromptSet, query: str, *passages: str, who: Who = "engine") -> TextQuestion:
    """Returns a question that measures how probable a query is as the text after the passages, or after none."""
    asked = prompts.render("query", passages) if passages else prompts.render("query_closed")
    return TextQuestion(Prompt(asked.messages, asked.cuttable, query), who, "query_gain")


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
    task: Task = "answer" if passages else "answer_closed"
    prompt = prompts.render(task, passages, question=question)
    if passages and len(prompt.cuttable) == len(passages) == len(cut_order):
        spans = prompt.cuttable[::-1]
        prompt = Prompt(prompt.messages, tuple(spans[index] for index in cut_order))
    return SampleQuestion(prompt, n, prompts.template(task).max_tokens, 1.0, seed=seed)


def greedy(
    prompts: PromptSet,
    question: str,
    passages: Sequence[str],
    *,
    cut_order: Sequence[int] = (),
    seed: int = 0,
) -> SampleQuestion:
    """Returns the question for the answer that the reader finds the likeliest, by the prompt of `belief`."""
    drawn = belief(prompts, question, passages, cut_order=cut_order, n=1, seed=seed)
    return replace(drawn, temperature=0.0)


def likelihood(
    prompts: PromptSet, question: str, passages: Sequence[str], text: str, *, cut_order: Sequence[int] = ()
) -> TextQuestion:
    """Returns a question that measures how probable a given answer is as the text after the prompt of `belief`."""
    asked = belief(prompts, question, passages, cut_order=cut_order, n=1, seed=0).prompt
    return TextQuestion(Prompt(asked.messages, asked.cuttable, text), probe="likelihood")


def too_long_to_compare(prompts: PromptSet, answer: str, language: Language = ENGLISH) -> bool:
    """Returns whether an answer has more words than the model of this prompt set can compare."""
    template = prompts.templates.get("entailment")
    return template is not None and 0 < template.longest < len(normalise(answer, language).split())


def likeliest(
    prompts: PromptSet, task: Task, seed: int, passages: Sequence[str] = (), **slots: str
) -> SampleQuestion:
    """Returns a question for the text that the judge finds the likeliest, by the prompt of a task."""
    prompt, tokens = prompts.render(task, passages, **slots), prompts.template(task).max_tokens
    return SampleQuestion(prompt, 1, tokens, 0.0, seed=seed, who="judge")


def read_line(answer: SampleAnswer) -> str:
    """Returns the first text of an answer in one line; "" where there is none."""
    return " ".join(answer.samples[0].text.split()) if answer.samples else ""


def short_forms(prompts: PromptSet, question: str, answer: str, seed: int) -> list[SampleQuestion]:
    """Returns two questions for the judge that give the short answer in a sentence: to shorten it, and to answer the
    question from the sentence alone."""
    shortened = likeliest(prompts, "condense", seed, question=question, answer=answer)
    return [shortened, likeliest(prompts, "answer", seed, [answer], question=question)]


def read_short_form(
    replies: Sequence[SampleAnswer], question: str, answer: str, language: Language = ENGLISH
) -> str:
    """Returns the first reply whose words stand in the sentence and not in the question; raises ScoringError where
    there is none."""
    for short in map(read_line, replies):
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


_MARKER = re.compile(r"^\s*(?:[-*•–]|\(?\d{1,2}[.):]|[qQ]\d{1,2}[.:])?\s*")


def read_sub_questions(answer: SampleAnswer) -> list[str]:
    """Returns the sub-questions in an answer, one for each line; raises ScoringError where there are none."""
    found = [line for line in read_lines(answer) if not is_abstention(line)]
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

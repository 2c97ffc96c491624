"""The probes of ratings: questions that the judge answers with a digit of a scale, and how these answers are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ragguard.engines.prompts import PromptSet
from ragguard.errors import LowLabelMass, shown_apart
from ragguard.records import Usage
from ragguard.scorers.probes.question import LabelAnswer, LabelQuestion, Subject

LEAST_MASS = 0.5
_GRADES, _RATINGS = Subject("grades"), Subject("ratings")


def answerability(prompts: PromptSet, sub_question: str, text: str) -> LabelQuestion:
    """Returns a question that rates, from 0 to 5, how well a text answers a sub-question."""
    prompt = prompts.render("answerability", [text], question=sub_question)
    return LabelQuestion(prompt, prompts.labels("answerability"), subject=_RATINGS)


def grade(prompts: PromptSet, query: str, passage: str) -> LabelQuestion:
    """Returns a question that rates, from 1 to 5, how useful a passage is for its step's query."""
    asked = prompts.render("grade", [passage], query=query)
    return LabelQuestion(asked, prompts.labels("grade"), subject=_GRADES)


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


def check_mass(answer: LabelAnswer, labels: tuple[str, ...]) -> float:
    """Returns the probability of all labels together; raises LowLabelMass where the judge rather says something
    else."""
    mass = sum(answer.p)
    if mass < LEAST_MASS:
        shown, least = shown_apart(mass, LEAST_MASS)
        raise LowLabelMass(
            f"the judge was asked for one of {', '.join(labels)} and puts only {shown} on them "
            f"(at least {least} is needed)",
            "choose a prompt set it follows, or, where the model thinks, switch its thinking off",
        )
    return mass


@dataclass(frozen=True, slots=True)
class Rating:
    """A rating on a scale of digits."""

    value: int
    """The most probable grade; of equally probable ones the lowest."""
    expectation: float
    stderr: float | None
    """The standard error of the expectation."""
    remarks: Mapping[str, int | str]
    usage: Usage


def read_rating(question: LabelQuestion, answer: LabelAnswer, grades: Sequence[int] = ()) -> Rating:
    """Returns the rating in the probabilities of labels that are digits, or that stand for the given grades: the most
    probable digit, and the mean over all digits."""
    mass = check_mass(answer, question.labels)
    grades = grades or [int(label) for label in question.labels]
    expectation = sum(digit * p for digit, p in zip(grades, answer.p, strict=True)) / mass
    by_grade: dict[int, float] = dict.fromkeys(grades, 0.0)
    for digit, p in zip(grades, answer.p, strict=True):
        by_grade[digit] += p
    value = max((p, -digit) for digit, p in by_grade.items())[1]
    stderr: float | None = None if answer.bound else 0.0
    if answer.stderr is not None:
        spread = sum(p / mass * (digit - expectation) ** 2 for digit, p in zip(grades, answer.p, strict=True))
        variances = [
            s * s / max(p * (1 - p), 1e-12) for s, p in zip(answer.stderr, answer.p, strict=True) if s > 0
        ]
        # Each p's error is sqrt(p(1 - p)/n): their ratio gives 1/n back, and the mean's error is sqrt(spread/n).
        stderr = (spread * max(variances, default=0.0)) ** 0.5
    return Rating(-value, expectation, stderr, answer.remarks, usage=answer.usage)

"""The probe of relevance: whether a passage answers a query, as p(A) / (p(A) + p(B)) of the judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ragguard.engines.prompts import PromptSet
from ragguard.records import Usage
from ragguard.scorers.probes.question import LabelAnswer, LabelQuestion, Subject
from ragguard.scorers.probes.rating import check_mass
from ragguard.text.language import normalise


@dataclass(frozen=True, slots=True)
class Relevance:
    """The probability that a passage is relevant, with its standard error."""

    p: float
    stderr: float | None
    remarks: Mapping[str, int | str]
    usage: Usage


def sees_references(query: str, question: str, references: Sequence[str]) -> bool:
    """Returns whether the judge is shown the references: only where the step asked the run's own question."""
    return bool(references) and normalise(query) == normalise(question)


def relevance(
    prompts: PromptSet, query: str, *passages: str, question: str = "", references: Sequence[str] = ()
) -> LabelQuestion:
    """Returns the question for the judge, about one passage or about several together. The judge is shown the
    references where the query is the run's own `question`."""
    subject = Subject("relevance", query, passages)
    if sees_references(query, question, references):
        prompt = prompts.render(
            "relevance_with_references", passages, query=query, references="\n".join(references)
        )
        return LabelQuestion(prompt, prompts.labels("relevance_with_references"), subject=subject)
    asked = prompts.render("relevance", passages, query=query)
    return LabelQuestion(asked, prompts.labels("relevance"), subject=subject)


def read_relevance(question: LabelQuestion, answer: LabelAnswer) -> Relevance:
    """Reads the relevance from an answer: the first of its two labels says yes."""
    mass = check_mass(answer, question.labels)
    yes, no = answer.p
    stderr: float | None = None if answer.bound else 0.0
    if answer.stderr is not None:
        # The error of a ratio a / (a + b), to first order.
        stderr = ((no * answer.stderr[0]) ** 2 + (yes * answer.stderr[1]) ** 2) ** 0.5 / mass**2
    return Relevance(yes / mass, stderr, answer.remarks, answer.usage)

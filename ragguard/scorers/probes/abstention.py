"""The probe of abstention: the probability that the reader answers NO-RESPONSE and not the query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ragguard.engines.prompts import PromptSet
from ragguard.records import Usage
from ragguard.scorers.probes.question import LabelAnswer, LabelQuestion, Subject

_SUBJECT = Subject("abstention")


@dataclass(frozen=True, slots=True)
class Abstention:
    """The probability that the reader abstains, with its standard error."""

    p: float
    stderr: float | None
    remarks: Mapping[str, int | str]
    usage: Usage


def abstention(prompts: PromptSet, query: str, *passages: str) -> LabelQuestion:
    """Returns the question for the model that reads, about one passage or about several together."""
    prompt = prompts.render("abstention", passages, query=query)
    return LabelQuestion(prompt, prompts.labels("abstention"), who="engine", subject=_SUBJECT)


def read_abstention(answer: LabelAnswer) -> Abstention:
    """Reads the probability of abstention from an answer: that of the question's first label."""
    return Abstention(min(1.0, answer.p[0]), answer.stderr_of(0), answer.remarks, answer.usage)

"""Judges passages: whether the reader would abstain after a passage, and whether it is relevant to the query.

Scorers, the guard and advice put these two questions here, and nowhere else, so that they say the same of a passage and
share the engine's cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from ragguard.engines.prompts import PromptSet
from ragguard.errors import RagguardError
from ragguard.metrics.answers import query_gain
from ragguard.metrics.distraction import RELEVANT_FROM, Relevance, utility
from ragguard.records import CUT_TOKENS
from ragguard.scorers.probes import (
    Reading,
    abstention,
    query_likelihood,
    read_abstention,
    read_relevance,
    relevance,
)
from ragguard.scorers.question import Ask, LabelAnswer, LabelQuestion, TextAnswer, answered

Probe = Literal["abstention", "relevance"]
BOTH: tuple[Probe, ...] = ("abstention", "relevance")
Asked: TypeAlias = tuple[str, ...]
"""A query, and the text that is judged for it; or several texts, which are read together."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The two numbers of a passage. An error stands for a number that the models could not give, and is raised if the
    number is needed; a probe that was not asked has None."""

    abstention: Reading | RagguardError | None = None
    """The probability that the reader abstains after it has read the passage."""
    relevance: Reading | RagguardError | None = None
    """The probability that the passage answers the query."""

    @property
    def p_abstain(self) -> Reading:
        """The abstention; raises the error in its place."""
        return _number(self.abstention)

    @property
    def p_relevant(self) -> Reading:
        """The relevance; raises the error in its place."""
        return _number(self.relevance)

    @property
    def p_answers(self) -> float:
        """The probability that the reader answers instead of abstaining."""
        return 1 - self.p_abstain.value

    @property
    def is_relevant(self) -> bool:
        """True if the passage is called relevant."""
        return self.p_relevant.value >= RELEVANT_FROM

    def utility(self, relevance: Relevance) -> float | None:
        """Returns the utility; None if one of its two numbers is missing."""
        if not isinstance(self.abstention, Reading) or not isinstance(self.relevance, Reading):
            return None
        return float(utility(self.relevance.value, self.abstention.value, relevance))


@dataclass(slots=True)
class PassageQuestions:
    """The questions about passages. They are written as passages are added, and sent together."""

    prompts: PromptSet
    """The prompts of the model that reads."""
    judge_prompts: PromptSet
    probes: Sequence[Probe] = BOTH
    question: str = ""
    """The run's question: the judge sees the references where the query is this question."""
    references: Sequence[str] = ()
    asked: list[LabelQuestion] = field(default_factory=list)
    """The questions so far: of each passage its probes, in their order, so that a cap leaves whole passages."""

    def add(self, passages: Iterable[Asked]) -> None:
        """Writes the prompts about passages."""
        for query, *texts in passages:
            for probe in self.probes:
                self.asked.append(
                    abstention(self.prompts, query, *texts)
                    if probe == "abstention"
                    else relevance(
                        self.judge_prompts, query, *texts, question=self.question, references=self.references
                    )
                )

    async def put(self, ask: Ask) -> list[Judgement]:
        """Sends the questions; returns what the models say of each passage, in the order in which they were added."""
        readings = [_read(*both) for both in zip(self.asked, await ask(self.asked), strict=True)]
        size = len(self.probes)
        return [
            Judgement(**dict(zip(self.probes, readings[at : at + size], strict=True)))
            for at in range(0, len(readings), size)
        ]


async def judge_passages(
    passages: Iterable[Asked],
    ask: Ask,
    prompts: PromptSet,
    judge_prompts: PromptSet,
    *,
    probes: Sequence[Probe] = BOTH,
    question: str = "",
    references: Sequence[str] = (),
) -> list[Judgement]:
    """Returns what the models say of each passage for its query, in order; see `PassageQuestions` for the arguments."""
    questions = PassageQuestions(
        prompts, judge_prompts, probes=probes, question=question, references=references
    )
    questions.add(passages)
    return await questions.put(ask)


async def query_gains(
    prompts: PromptSet, passages: Sequence[tuple[str, str]], ask: Ask
) -> list[Reading | RagguardError]:
    """Returns how much likelier each passage makes its query, or the error for which that is not known."""
    alone = [query_likelihood(prompts, query) for query, _ in passages]
    answers = await ask([*alone, *(query_likelihood(prompts, query, text) for query, text in passages)])
    return [
        _query_gain(given, closed)
        for closed, given in zip(answers[: len(alone)], answers[len(alone) :], strict=True)
    ]


def _query_gain(
    given: TextAnswer | RagguardError, closed: TextAnswer | RagguardError
) -> Reading | RagguardError:
    try:
        known = answered(given)
        gain = query_gain(known.logprobs, answered(closed).logprobs)
    except RagguardError as error:
        return error
    return Reading(gain, 0.0, {CUT_TOKENS: known.truncated} if known.truncated else {}, known.usage)


def _read(question: LabelQuestion, answer: LabelAnswer | RagguardError) -> Reading | RagguardError:
    try:
        if question.probe == "abstention":
            return read_abstention(answered(answer))
        return read_relevance(question, answered(answer))
    except RagguardError as error:
        return error


def _number(reading: Reading | RagguardError | None) -> Reading:
    assert reading is not None, "this probe was not asked"
    if isinstance(reading, RagguardError):
        raise reading
    return reading

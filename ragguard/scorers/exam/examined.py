"""Answers for models that failed an examination: another probe's answer, or an error with the reason, takes the place
of theirs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from ragguard.engines.prompts import PromptSet
from ragguard.errors import RagguardError
from ragguard.metrics.answers import query_gain
from ragguard.scorers.asker import Respondent
from ragguard.scorers.exam.record import Verdicts
from ragguard.scorers.probes import query_likelihood
from ragguard.scorers.question import Answer, LabelAnswer, LabelQuestion, Question, TextAnswer, answered


class Examined:
    """Wraps models of which some failed an examination, and answers their questions as `Respondent` does.

    Relevance is told by the likelihood of the query where its labels failed and that passed.
    """

    def __init__(self, models: Respondent, verdicts: Verdicts, judge_prompts: PromptSet) -> None:
        self._models, self._verdicts, self._prompts = models, verdicts, judge_prompts

    async def respond(self, questions: Sequence[Question]) -> Sequence[Answer | RagguardError]:
        """Returns one answer for each question, or the reason for which there is none."""
        asked = {question: self._instead(question) for question in questions}
        wanted = list(dict.fromkeys(one for ones in asked.values() for one in ones))
        replies = dict(zip(wanted, await self._models.respond(wanted) if wanted else (), strict=True))
        return [self._answer(question, [replies[one] for one in asked[question]]) for question in questions]

    def _instead(self, question: Question) -> tuple[Question, ...]:
        """Returns what is asked in place of a question: itself; the likelihood of its query with and without the
        passage; or nothing, where its probe failed."""
        if question.probe not in self._verdicts.failed:
            return (question,)
        if not (question.probe == "relevance" and self._verdicts.relevance_by_likelihood):
            return ()
        assert isinstance(question, LabelQuestion)
        query, who = question.about[0], question.who
        return (
            query_likelihood(self._prompts, *question.about, who=who),
            query_likelihood(self._prompts, query, who=who),
        )

    def _answer(
        self, question: Question, replies: Sequence[Answer | RagguardError]
    ) -> Answer | RagguardError:
        if not replies:
            return self._verdicts.error(question.probe)
        if len(replies) == 1:
            return self._with_spread(question, self._calibrated(question, replies[0]))
        try:
            given, alone = (cast(TextAnswer, answered(reply)) for reply in replies)
        except RagguardError as error:
            return error
        p = probability(self._verdicts, query_gain(given.logprobs, alone.logprobs))
        return LabelAnswer((p, 1.0 - p), "likelihood", truncated=given.truncated, usage=given.usage)

    def _calibrated(self, question: Question, answer: Answer | RagguardError) -> Answer | RagguardError:
        """Returns the answer of a reranker about relevance with a probability in place of its score."""
        odds = self._verdicts.relevance_odds
        if odds is None or question.probe != "relevance" or not isinstance(answer, LabelAnswer):
            return answer
        intercept, slope = odds
        p = logistic(intercept + slope * log_odds_of(*answer.p))
        return replace(answer, p=(p, 1.0 - p))

    def _with_spread(self, question: Question, answer: Answer | RagguardError) -> Answer | RagguardError:
        spread = self._verdicts.spread.get(question.probe, 0.0)
        if not spread or not isinstance(answer, LabelAnswer):
            return answer
        if question.probe == "relevance":  # whose spread is that of the first label's share of both
            spread *= sum(answer.p) ** 2 / max(math.hypot(*answer.p), 1e-300)
        stated = answer.stderr or (0.0,) * len(answer.p)
        return replace(answer, stderr=tuple(max(error, spread) for error in stated))


def probability(verdicts: Verdicts, gain: float) -> float:
    """Returns the probability that a passage of a given query gain answers its query."""
    intercept, slope = verdicts.log_odds or (0.0, 0.0)
    return logistic(intercept + slope * gain)


def log_odds_of(yes: float, no: float) -> float:
    """Returns the log-odds of two probabilities."""
    return math.log(max(yes, 1e-300)) - math.log(max(no, 1e-300))


def logistic(log_odds: float) -> float:
    """Returns the probability with these log-odds."""
    return 1 / (1 + math.exp(-max(-700.0, min(700.0, log_odds))))

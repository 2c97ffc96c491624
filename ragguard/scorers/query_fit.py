"""Scores about how well each passage fits its step's query, from the query's likelihood: no label, no reference.

One prompt for each passage, and one for each query. It is what a model can tell that is too small to judge by label.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ragguard.errors import RagguardError
from ragguard.metrics.likelihood import query_gain
from ragguard.records import CUT_TOKENS, Result
from ragguard.runtime.arguments import true_or_false
from ragguard.scorers.exam.examined import probability
from ragguard.scorers.probes.query import query_likelihood
from ragguard.scorers.probes.question import Ask, TextAnswer, answered
from ragguard.scorers.score_writer import ScoreWriter
from ragguard.scorers.view import StepView, View


@dataclass(frozen=True, slots=True)
class QueryFit:
    """Gives `query_gain`, and `p_relevant` where it is known what a gain means for the engine."""

    name: ClassVar[str] = "fit"
    version: ClassVar[str] = "1"
    models: ClassVar[tuple[str, ...]] = ("engine",)
    live = "at once"

    relevance: bool = False
    """True to give `p_relevant` for any examined engine; False for those alone whose labels failed, of which the
    scorer utility gives the same number."""

    def __post_init__(self) -> None:
        true_or_false("QueryFit.relevance", self.relevance)

    async def score(self, view: View, ask: Ask) -> Sequence[Result]:
        writer = ScoreWriter(view, self)
        writer.left_out()
        steps = [step for step in view.steps if view.query_of(step).strip()]
        prompts = view.setting.prompts
        queries = list(dict.fromkeys(view.query_of(step) for step in steps))
        passages = [(step, at) for step in steps for at in sorted(step.judged)]
        answers = await ask(
            [query_likelihood(prompts, query) for query in queries]
            + [query_likelihood(prompts, view.query_of(step), step.all[at].text) for step, at in passages]
        )
        alone = dict(zip(queries, answers, strict=False))
        for (step, at), given in zip(passages, answers[len(queries) :], strict=True):
            self._add(writer, step, at, given, alone[view.query_of(step)])
        return writer.results()

    def _add(
        self,
        writer: ScoreWriter,
        step: StepView,
        at: int,
        given: TextAnswer | RagguardError,
        alone: TextAnswer | RagguardError,
    ) -> None:
        with writer.failing(f"query_gain of passage {at + 1}", step):
            text = answered(given)
            gain = query_gain(text.logprobs, answered(alone).logprobs)
            cut = {CUT_TOKENS: text.truncated} if text.truncated else {}
            writer.add("query_gain", gain, step=step, at=at, stderr=0.0, usage=text.usage, metadata=cut)
            exam = writer.view.setting.exam
            if exam.relevance_by_likelihood or (self.relevance and exam.log_odds):
                how = {**cut, "how": "likelihood"}
                writer.add(
                    "p_relevant",
                    probability(exam, gain),
                    step=step,
                    at=at,
                    label="by likelihood",
                    metadata=how,
                )

"""Scores about how well each passage fits its step's query, from the query's likelihood: no label, no reference.

One prompt for each passage, and one for each query. It is what a model can tell that is too small to judge by label.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ragguard.errors import InvalidInput, RagguardError
from ragguard.metrics.likelihood import query_gain
from ragguard.records import CUT_TOKENS, Result
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

    log_odds: tuple[float, float] | None = None
    """The intercept and the slope of the log-odds that a passage of a given gain is relevant, as the engine's
    examination has measured them. None: no `p_relevant`."""

    def __post_init__(self) -> None:
        if self.log_odds is not None and not (
            len(self.log_odds) == 2 and all(map(math.isfinite, self.log_odds))
        ):
            raise InvalidInput("QueryFit.log_odds", self.log_odds, "an intercept and a slope")

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
            if self.log_odds is not None:
                intercept, slope = self.log_odds
                p = 1 / (1 + math.exp(-max(-700.0, min(700.0, intercept + slope * gain))))
                writer.add("p_relevant", p, step=step, at=at, label="by likelihood", metadata=cut)

"""Estimates what scoring would cost, and checks that the models answer at all, before many runs are scored.

For an estimate the scorers run against a price list that asks no model.

The estimate assumes three different answers in a context, three sub-questions where they must be made, answers of the
greatest allowed length, and tokens counted without the model's tokenizer.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from ragguard.engines.base import Engine, EngineInfo, Sample
from ragguard.engines.prompts import PromptSet, load_prompts
from ragguard.records import Failure, Usage
from ragguard.scorers.asker import SCORING, Models, tokens_of
from ragguard.scorers.probes import abstention, belief, read_relevance, relevance
from ragguard.scorers.question import (
    Answer,
    EntailAnswer,
    EntailQuestion,
    LabelAnswer,
    LabelQuestion,
    Question,
    SampleAnswer,
    SampleQuestion,
    TextAnswer,
    TextQuestion,
)
from ragguard.scorers.view import Setting

UNKNOWN = EngineInfo("unknown", "unknown", "unknown")
"""The description of a model that cannot be reached; a plan takes it for one that answers many prompts at once."""
_ANSWERS = 3
_LINES = "\n".join(f"sub-question {number}" for number in range(1, 4))


@dataclass(frozen=True, slots=True)
class Plan:
    """The calls that scoring one run, or several, would make. Plans can be added."""

    calls: Mapping[tuple[str, str], Usage] = field(default_factory=dict)
    """The cost of all calls of one kind to one model, by the model (`engine`, `judge` or `entailer`) and the verb
    (`sample`, `label_probs`, `continuations` or `entail`, of which the prompts are pairs). Of output tokens it is the
    most that can be written."""
    failures: tuple[Failure, ...] = ()
    """Failures for what would not be judged, such as what lies over a cap."""
    runs: int = 0
    unreachable: tuple[str, ...] = ()
    """The errors of models that did not answer; how many requests they would need is a guess."""

    @property
    def total(self) -> Usage:
        """The cost of all calls."""
        return sum(self.calls.values(), Usage())

    def price(self, prompt: float, output: float) -> float:
        """Returns the cost, from the prices of a million tokens read and of a million written."""
        return (self.total.prompt_tokens * prompt + self.total.output_tokens * output) / 1e6

    def __add__(self, other: Plan) -> Plan:
        return Plan(
            {
                call: self.calls.get(call, Usage()) + other.calls.get(call, Usage())
                for call in {**self.calls, **other.calls}
            },
            self.failures + other.failures,
            self.runs + other.runs,
            unreachable=tuple(dict.fromkeys(self.unreachable + other.unreachable)),
        )


@dataclass(slots=True)
class PriceList:
    """A respondent that answers with placeholders and notes what was asked."""

    setting: Setting
    plan: Plan = field(default_factory=Plan)
    """The calls so far."""

    async def respond(self, questions: Sequence[Question]) -> list[Answer]:
        """Notes what one call with these questions costs and returns placeholders."""
        first, around_pair = questions[0], self.setting.around_pair
        # A longer prompt than the model reads is cut and costs no more.
        most = self.setting.engine.context or sys.maxsize
        tokens = sum(min(tokens_of(question, around_pair), most) for question in questions)
        requests, times, written = self._each(first, len(questions))
        cost = Usage(requests, len(questions), tokens * times, written * len(questions))
        self.plan += Plan({(first.who, first.verb): cost})
        return [_placeholder(question) for question in questions]

    def _each(self, question: Question, prompts: int) -> tuple[int, int, int]:
        """Returns the requests of a call with so many prompts, how often a prompt is read, and the most tokens that are
        written for one, as the model takes and answers them."""
        if isinstance(question, EntailQuestion):
            if not self.setting.around_pair:  # a classifier
                return 1, 1, 0
            info, options = self.setting.judge, False
        else:
            info, options = getattr(self.setting, question.who), bool(question.prompt.options)
        if isinstance(question, SampleQuestion):
            times = 1 if info is UNKNOWN or "n_samples" in info.capabilities else question.n
            written = question.n * (question.max_tokens + info.thinking_tokens)
        elif isinstance(question, TextQuestion):
            times, written = 1, 1
        elif options and "typed_questions" in info.capabilities:
            times, written = 1, 0
        else:
            times, written = info.label_requests, info.label_tokens
        together = info is UNKNOWN or "batch" in info.capabilities
        return 1 if together else times * prompts, times, written


def _placeholder(question: Question) -> Answer:
    if isinstance(question, EntailQuestion):
        return EntailAnswer((0.0, 1.0, 0.0))
    if isinstance(question, LabelQuestion):
        share = 1.0 / max(2, len(question.labels))
        return LabelAnswer((share,) * len(question.labels))
    if isinstance(question, TextQuestion):
        return TextAnswer((-1.0,))
    if question.n == 1:
        return SampleAnswer((Sample(_LINES, (-1.0,)),))
    mark = f"{hash(question.prompt) % 10**8:08}"
    texts = [f"{mark} {number % _ANSWERS}" for number in range(question.n)]
    return SampleAnswer(tuple(Sample(text, (-1.0,)) for text in texts))


_QUESTION, _PASSAGE = "Who founded the firm?", "Ada Berg founded the firm."


async def check_models(engine: Engine, judge: Engine, prompts: PromptSet | None = None) -> None:
    """Raises LowLabelMass for a judge that does not answer with a label, and what a model raises that cannot be asked.

    Args:
        engine: The model that reads.
        judge: The model that judges; it may be the engine.
        prompts: The prompts; None: those that fit each model.
    """
    models = Models(engine, judge, priority=SCORING)
    theirs = prompts or load_prompts((await judge.info()).prompts)
    mine = prompts or load_prompts((await engine.info()).prompts)
    question = relevance(theirs, _QUESTION, _PASSAGE)
    (answer,) = await models.respond([question])
    read_relevance(question, cast(LabelAnswer, answer))
    await models.respond([abstention(mine, _QUESTION, _PASSAGE)])
    await models.respond([belief(mine, _QUESTION, (_PASSAGE,), cut_order=(0,), n=2, seed=0)])

"""Sends the questions of scorers to the engine, the judge and the entailer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from ragguard.engines.base import Engine
from ragguard.engines.entailment.base import Entailer, rows_of
from ragguard.errors import EngineProtocolError
from ragguard.probes.question import (
    Answer,
    EntailAnswer,
    EntailQuestion,
    LabelAnswer,
    LabelQuestion,
    Question,
    SampleAnswer,
    SampleQuestion,
    label_answers,
)
from ragguard.records import Usage
from ragguard.scorers.asker import tokens_of


def apportion(usage: Usage, weights: Sequence[int]) -> list[Usage]:
    """Returns shares of one call's usage that add up to it exactly; the request counts in the first share."""
    total = sum(weights) or 1
    edges = [0]
    for weight in weights:
        edges.append(edges[-1] + weight)

    def share(amount: int, index: int) -> int:
        return amount * edges[index + 1] // total - amount * edges[index] // total

    return [
        Usage(
            requests=usage.requests if index == 0 else 0,
            prompts=usage.prompts * (index + 1) // len(weights) - usage.prompts * index // len(weights),
            prompt_tokens=share(usage.prompt_tokens, index),
            output_tokens=share(usage.output_tokens, index),
            seconds=usage.seconds * weights[index] / total,
            cached=usage.cached * (index + 1) // len(weights) - usage.cached * index // len(weights),
        )
        for index in range(len(weights))
    ]


@dataclass(frozen=True, slots=True)
class Engines:
    """A respondent that sends questions to the engine, the judge and the entailer."""

    engine: Engine
    judge: Engine
    entailer: Entailer
    priority: int = 10
    deadline: float | None = None

    @property
    def one_model(self) -> bool:
        """True where the judge is the engine."""
        return self.engine is self.judge

    async def respond(self, questions: Sequence[Question]) -> Sequence[Answer]:
        """Sends questions that share a call to their model."""
        weights = [max(1, tokens_of(question)) for question in questions]
        first = questions[0]
        if isinstance(first, LabelQuestion):
            return await self._labels(first, cast(Sequence[LabelQuestion], questions), weights)
        if isinstance(first, SampleQuestion):
            return await self._samples(first, cast(Sequence[SampleQuestion], questions), weights)
        return await self._entailments(cast(Sequence[EntailQuestion], questions), weights)

    def _engine(self, question: LabelQuestion | SampleQuestion) -> Engine:
        return self.engine if question.who == "engine" else self.judge

    async def _labels(
        self, first: LabelQuestion, questions: Sequence[LabelQuestion], weights: Sequence[int]
    ) -> list[LabelAnswer]:
        probs = await self._engine(first).label_probs(
            [question.prompt for question in questions],
            first.labels,
            deadline=self.deadline,
            priority=self.priority,
        )
        answers = label_answers(probs, len(questions), len(first.labels))
        return [
            replace(answer, usage=usage)
            for answer, usage in zip(answers, apportion(probs.usage, weights), strict=True)
        ]

    async def _samples(
        self, first: SampleQuestion, questions: Sequence[SampleQuestion], weights: Sequence[int]
    ) -> list[SampleAnswer]:
        drawn = await self._engine(first).sample(
            [question.prompt for question in questions],
            n=first.n,
            max_tokens=first.max_tokens,
            temperature=first.temperature,
            seed=first.seed,
            deadline=self.deadline,
            priority=self.priority,
        )
        if len(drawn) != len(questions) or any(len(answers) != first.n for answers in drawn):
            counts = sorted({len(answers) for answers in drawn})
            raise EngineProtocolError(
                f"{first.n} answers to each of {len(questions)} prompts were asked; "
                f"the engine gave lists of {counts} answers to {len(drawn)}"
            )
        return [
            SampleAnswer(tuple(answers), drawn.truncated.get(row, 0), usage)
            for row, (answers, usage) in enumerate(zip(drawn, apportion(drawn.usage, weights), strict=True))
        ]

    async def _entailments(
        self, questions: Sequence[EntailQuestion], weights: Sequence[int]
    ) -> list[EntailAnswer]:
        judged = await self.entailer.entail(
            [question.pair for question in questions], deadline=self.deadline, priority=self.priority
        )
        p = rows_of(judged, len(questions))
        mass = np.ones(len(questions)) if judged.mass is None else judged.mass
        return [
            EntailAnswer(
                (p[row, 0], p[row, 1], p[row, 2]), float(mass[row]), judged.truncated.get(row, 0), usage
            )
            for row, usage in enumerate(apportion(judged.usage, weights))
        ]

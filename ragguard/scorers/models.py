"""The models that are asked, and the one way to ask them: scorers, guard and advice send their questions here.

Each of the three has its priority, so that a guard, which holds up a retrieval, is served before advice, and advice
before scoring; and its deadline, where it has one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from ragguard.engines.base import Engine
from ragguard.engines.engine import only_judges, send_to
from ragguard.engines.entailment.entailer import Entailer, rows_of
from ragguard.engines.requests.continuations import ContinuationRequest
from ragguard.errors import EngineProtocolError
from ragguard.records import Usage
from ragguard.scorers.asker import tokens_of
from ragguard.scorers.probes.question import (
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
    label_answers,
)


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


def _shares(usage: Usage, questions: Sequence[Question]) -> list[Usage]:
    """Returns the share of each question in the usage of their call, by its tokens."""
    return apportion(usage, [max(1, tokens_of(question)) for question in questions])


GUARDING = -10
"""The priority of a guard's questions: a retrieval waits for them."""
ADVISING = -5
"""The priority of questions for advice: an agent waits for them."""
DEMANDED = 5
"""The priority of scores that somebody waits for."""
SCORING = 10
"""The priority of what is asked in the background."""


@dataclass(frozen=True, slots=True)
class Models:
    """The model that reads, the one that judges and what compares answers, asked with one priority and deadline."""

    engine: Engine
    judge: Engine
    entailer: Entailer | None = None
    """None for callers that never compare answers."""
    priority: int = SCORING
    deadline: float | None = None

    @property
    def one_model(self) -> bool:
        """True where the judge is the engine."""
        return self.engine is self.judge

    async def respond(self, questions: Sequence[Question]) -> Sequence[Answer]:
        """Sends questions that share a call to their model."""
        if isinstance(questions[0], LabelQuestion):
            return await self._labels(cast(Sequence[LabelQuestion], questions))
        if isinstance(questions[0], SampleQuestion):
            return await self._samples(cast(Sequence[SampleQuestion], questions))
        if isinstance(questions[0], TextQuestion):
            return await self._texts(cast(Sequence[TextQuestion], questions))
        return await self._entailments(cast(Sequence[EntailQuestion], questions))

    def _engine(self, question: LabelQuestion | SampleQuestion | TextQuestion) -> Engine:
        """Returns the model that a question goes to. A judge that cannot write text leaves such questions to the
        reader."""
        writes = not isinstance(question, LabelQuestion)
        return self.engine if question.who == "engine" or (writes and only_judges(self.judge)) else self.judge

    async def labels(self, questions: Sequence[LabelQuestion]) -> tuple[list[LabelAnswer], Usage]:
        """Asks label questions that share a call; returns the answers, and what all of them cost."""
        first = questions[0]
        probs = await self._engine(first).label_probs(
            [question.prompt for question in questions],
            first.labels,
            deadline=self.deadline,
            priority=self.priority,
        )
        return label_answers(probs, len(questions), len(first.labels)), probs.usage

    async def _labels(self, questions: Sequence[LabelQuestion]) -> list[LabelAnswer]:
        answers, usage = await self.labels(questions)
        shares = _shares(usage, questions)
        return [replace(answer, usage=share) for answer, share in zip(answers, shares, strict=True)]

    async def _samples(self, questions: Sequence[SampleQuestion]) -> list[SampleAnswer]:
        first = questions[0]
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
            for row, (answers, usage) in enumerate(zip(drawn, _shares(drawn.usage, questions), strict=True))
        ]

    async def _texts(self, questions: Sequence[TextQuestion]) -> list[TextAnswer]:
        prompts = tuple(question.prompt for question in questions)
        request = ContinuationRequest(prompts, self.deadline, self.priority)
        reply = await send_to(self._engine(questions[0]), request)
        if len(reply) != len(questions):
            raise EngineProtocolError(f"{len(questions)} texts were asked about, {len(reply)} answers came")
        return [
            TextAnswer(found.logprobs, reply.truncated.get(row, 0), usage)
            for row, (found, usage) in enumerate(
                zip(reply.found, _shares(reply.usage, questions), strict=True)
            )
        ]

    async def _entailments(self, questions: Sequence[EntailQuestion]) -> list[EntailAnswer]:
        assert self.entailer is not None
        judged = await self.entailer.entail(
            [question.pair for question in questions], deadline=self.deadline, priority=self.priority
        )
        p = rows_of(judged, len(questions))
        mass = np.ones(len(questions)) if judged.mass is None else judged.mass
        return [
            EntailAnswer(
                (p[row, 0], p[row, 1], p[row, 2]), float(mass[row]), judged.truncated.get(row, 0), usage
            )
            for row, usage in enumerate(_shares(judged.usage, questions))
        ]

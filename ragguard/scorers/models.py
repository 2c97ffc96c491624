"""The models that are asked, and the one way to ask them: scorers, guard and advice send their questions here.

Each of the three has its priority, so that a guard, which holds up a retrieval, is served before advice, and advice
before scoring; and its deadline, where it has one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from ragguard.engines.base import Engine, LabelProbs
from ragguard.engines.engine import only_judges, send_to
from ragguard.engines.entailer import Entailer, rows_of
from ragguard.engines.requests import ContinuationRequest
from ragguard.errors import EngineProtocolError
from ragguard.records import Usage
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
    label_answers,
)


def apportion(usage: Usage, weights: Sequence[int]) -> list[Usage]:
    """Returns shares of one call's usage that add up to it exactly; the request counts in the first share."""
    total, number = sum(weights) or 1, len(weights)
    shares, before = [], 0
    for index, weight in enumerate(weights):
        upto = before + weight
        shares.append(
            Usage(
                requests=0 if index else usage.requests,
                prompts=usage.prompts * (index + 1) // number - usage.prompts * index // number,
                prompt_tokens=usage.prompt_tokens * upto // total - usage.prompt_tokens * before // total,
                output_tokens=usage.output_tokens * upto // total - usage.output_tokens * before // total,
                seconds=usage.seconds * weight / total,
                cached=usage.cached * (index + 1) // number - usage.cached * index // number,
            )
        )
        before = upto
    return shares


def _shares(usage: Usage, questions: Sequence[Question]) -> list[Usage]:
    """Returns the share of each question in the usage of their call, by its length."""
    return apportion(usage, [max(1, _length(question)) for question in questions])


def _length(question: Question) -> int:
    """Returns how many characters the texts of a question have."""
    if isinstance(question, EntailQuestion):
        return len(question.pair.question) + len(question.pair.premise) + len(question.pair.hypothesis)
    return sum(len(message.content) for message in question.prompt.messages) + len(question.prompt.text)


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
        probs = await self._label_probs(questions)
        return label_answers(probs, len(questions), len(questions[0].labels)), probs.usage

    async def _labels(self, questions: Sequence[LabelQuestion]) -> list[LabelAnswer]:
        probs = await self._label_probs(questions)
        shares = _shares(probs.usage, questions)
        return label_answers(probs, len(questions), len(questions[0].labels), shares)

    async def _label_probs(self, questions: Sequence[LabelQuestion]) -> LabelProbs:
        return await self._engine(questions[0]).label_probs(
            [question.prompt for question in questions],
            questions[0].labels,
            deadline=self.deadline,
            priority=self.priority,
        )

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
        request = ContinuationRequest(prompts, deadline=self.deadline, priority=self.priority)
        reply = await send_to(self._engine(questions[0]), request)
        if len(reply.values) != len(questions):
            raise EngineProtocolError(
                f"{len(questions)} texts were asked about, {len(reply.values)} answers came"
            )
        return [
            TextAnswer(logprobs, cut, usage)
            for (logprobs, cut), usage in zip(reply.values, _shares(reply.usage, questions), strict=True)
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

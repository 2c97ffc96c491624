"""The models that are asked, and the one way to ask them: scorers, guard and advice send their questions here.

Each of the three has its priority, so that a guard, which holds up a retrieval, is served before advice, and advice
before scoring; and its deadline, where it has one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from ragguard.engines.base import Engine
from ragguard.engines.engine import only_judges, send_to
from ragguard.engines.entailer import Entailer, rows_of
from ragguard.engines.requests import ContinuationRequest, apportion
from ragguard.errors import EngineProtocolError
from ragguard.scorers.question import (
    Answer,
    EntailAnswer,
    EntailQuestion,
    LabelQuestion,
    PromptQuestion,
    Question,
    SampleAnswer,
    TextAnswer,
    TextQuestion,
    label_answers,
)

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
    shares: bool = True
    """False for a caller that reads no usage of labels, so that none is shared out: that takes time."""

    @property
    def one_model(self) -> bool:
        """True where the judge is the engine."""
        return self.engine is self.judge

    async def respond(self, questions: Sequence[Question]) -> Sequence[Answer]:
        """Sends questions that share a call to their model; each answer has its share of the usage."""
        first = questions[0]
        if isinstance(first, EntailQuestion):
            return await self._entailments(cast(Sequence[EntailQuestion], questions))
        asked = cast(Sequence[PromptQuestion], questions)
        prompts, deadline, priority = [one.prompt for one in asked], self.deadline, self.priority
        weights = [
            len(one.prompt.text) + sum(len(part.content) for part in one.prompt.messages) for one in asked
        ]
        # A judge that cannot write text leaves such questions to the reader.
        writes = not isinstance(first, LabelQuestion)
        reads = first.who == "engine" or (writes and only_judges(self.judge))
        engine = self.engine if reads else self.judge
        if isinstance(first, LabelQuestion):
            probs = await engine.label_probs(prompts, first.labels, deadline=deadline, priority=priority)
            shares = apportion(probs.usage, weights) if self.shares else ()
            return label_answers(probs, len(asked), len(first.labels), shares)
        if isinstance(first, TextQuestion):
            request = ContinuationRequest(tuple(prompts), deadline=deadline, priority=priority)
            reply = await send_to(engine, request)
            if len(reply.values) != len(asked):
                raise EngineProtocolError(
                    f"{len(asked)} texts were asked about, {len(reply.values)} answers came"
                )
            shares = apportion(reply.usage, weights)
            return [
                TextAnswer(logprobs, cut, usage)
                for (logprobs, cut), usage in zip(reply.values, shares, strict=True)
            ]
        drawn = await engine.sample(
            prompts,
            n=first.n,
            max_tokens=first.max_tokens,
            temperature=first.temperature,
            seed=first.seed,
            deadline=deadline,
            priority=priority,
        )
        if len(drawn) != len(asked) or any(len(answers) != first.n for answers in drawn):
            counts = sorted({len(answers) for answers in drawn})
            raise EngineProtocolError(
                f"{first.n} answers to each of {len(asked)} prompts were asked; "
                f"the engine gave lists of {counts} answers to {len(drawn)}"
            )
        return [
            SampleAnswer(tuple(answers), drawn.truncated.get(row, 0), usage)
            for row, (answers, usage) in enumerate(zip(drawn, apportion(drawn.usage, weights), strict=True))
        ]

    async def _entailments(self, questions: Sequence[EntailQuestion]) -> list[EntailAnswer]:
        assert self.entailer is not None
        pairs = [question.pair for question in questions]
        judged = await self.entailer.entail(pairs, deadline=self.deadline, priority=self.priority)
        p = rows_of(judged, len(pairs))
        mass = np.ones(len(pairs)) if judged.mass is None else judged.mass
        weights = [sum(map(len, (pair.question, pair.premise, pair.hypothesis))) for pair in pairs]
        return [
            EntailAnswer(
                (p[row, 0], p[row, 1], p[row, 2]), float(mass[row]), judged.truncated.get(row, 0), usage
            )
            for row, usage in enumerate(apportion(judged.usage, weights))
        ]

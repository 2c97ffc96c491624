"""DecisionModel: turns label requests into typed questions, whatever answers them: a server, or a model in this
process."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import numpy as np

from ragguard.engines.base import EngineInfo, LabelProbs, Prompt, Samples
from ragguard.engines.decisions.questions import TypedAnswer, TypedQuestion, state_text, typed
from ragguard.engines.layers.retry import Patience
from ragguard.engines.requests.continuations import ContinuationReply, ContinuationRequest
from ragguard.engines.requests.draws import DrawRequest
from ragguard.engines.requests.labels import LabelRequest
from ragguard.engines.truncation import asked_shorter
from ragguard.errors import EngineRejected
from ragguard.records import Usage
from ragguard.runtime.limiter import in_parallel

FORM = 1
"""The version of how label questions become typed ones; part of the fingerprint."""
JUDGES_ONLY = (
    "answers typed questions and neither writes nor abstains, and cannot tell how probable a given text is: give it as "
    "`judge=`, and a model that reads as the engine"
)
_MOST_QUESTIONS = 64
"""The most questions of one request: vLLM's limit, the lowest of the servers known."""

Decided: TypeAlias = tuple[list[TypedAnswer], Usage]
Decide: TypeAlias = Callable[[str, Sequence[TypedQuestion], float | None], Awaitable[Decided]]
"""Answers questions about one state until a deadline."""


def info_of(model: str, fingerprint: str, location: str, notes: tuple[str, ...] = ()) -> EngineInfo:
    """Returns the description of a decision model."""
    return EngineInfo(
        model=model,
        kind="decisions",
        fingerprint=f"decisions/{fingerprint}/{FORM}",
        prompts="decisions",
        capabilities=frozenset({"exact_labels", "decisions"}),
        location=location,
        notes=notes,
    )


@dataclass(frozen=True, slots=True)
class DecisionModel:
    """A `FoundModel`: turns label requests into typed questions, those about one state together."""

    info: EngineInfo
    decide: Decide
    patience: Patience | None = None
    """The schedule by which one request is repeated, so that the others are not paid for twice. None: it is not."""
    at_once: int = 16
    """The most requests of one call that are in flight."""

    async def labels(self, request: LabelRequest) -> LabelProbs:
        """Returns the probability of each label; of a typed question, of its own labels, and 0 for the others."""
        if len(request.labels) == 1:
            raise self._refusal()
        began = time.monotonic()
        states: dict[Prompt, dict[TypedQuestion, list[int]]] = {}
        for row, prompt in enumerate(request.prompts):
            state, question = typed(prompt, request.labels)
            states.setdefault(state, {}).setdefault(question, []).append(row)
        calls = [
            (state, dict(list(rows.items())[first : first + _MOST_QUESTIONS]))
            for state, rows in states.items()
            for first in range(0, len(rows), _MOST_QUESTIONS)
        ]
        replies = await in_parallel(
            [partial(self._one, request, state, [*rows]) for state, rows in calls], self.at_once
        )
        p = np.zeros((len(request.prompts), len(request.labels)))
        usage, cuts = Usage(), dict[int, int]()
        for (_, rows), ((answers, spent), cut) in zip(calls, replies, strict=True):
            usage += spent
            for (question, places), answer in zip(rows.items(), answers, strict=True):
                columns = [request.labels.index(label) for label in question.labels]
                for row in places:
                    p[row, columns] = answer.p
                    if cut:
                        cuts[row] = cut
        spent = replace(usage, prompts=len(request.prompts), seconds=time.monotonic() - began)
        return LabelProbs(p, usage=spent, truncated=cuts)

    async def _one(
        self, request: LabelRequest, state: Prompt, questions: Sequence[TypedQuestion]
    ) -> tuple[Decided, int]:
        """Returns the answers to the questions about one state, which is cut where it is too long."""

        async def ask(about: Prompt) -> Decided:
            return await self.decide(state_text(about), questions, request.deadline)

        async def persist() -> tuple[Decided, int]:
            return await asked_shorter(state, ask, 1)

        return await (
            persist() if self.patience is None else self.patience.persist(persist, request.deadline)
        )

    async def draws(self, request: DrawRequest) -> Samples:
        """Refuses: nothing is written."""
        raise self._refusal()

    async def continuations(self, request: ContinuationRequest) -> ContinuationReply:
        """Refuses: only options have probabilities."""
        raise self._refusal()

    def _refusal(self) -> EngineRejected:
        return EngineRejected(f"{self.info.model} at {self.info.location} {JUDGES_ONLY}")

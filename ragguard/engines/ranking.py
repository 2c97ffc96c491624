"""Rerankers as judges of relevance: their scores become answers to label questions.

A score is no probability: models give logits, or squeeze them in ways of their own. So the answer to a label question
is the score's logistic, which keeps the order alone, and the examination's cases make probabilities of it
(`scorers/exam/record.py`). Such a judge reads nothing, writes nothing and cannot abstain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from ragguard.engines.base import EngineInfo
from ragguard.engines.labels import LabelRequest
from ragguard.engines.requests import Reply, Request
from ragguard.errors import EngineRejected
from ragguard.records import Usage
from ragguard.runtime.limiter import in_parallel

KIND = "rerank"
NOTE = (
    "a reranker's scores are no probabilities: run `ragguard doctor ADDRESS --exam`, which turns them into "
    "probabilities"
)
Scores: TypeAlias = Callable[
    [str, Sequence[str], float | None], Coroutine[Any, Any, tuple[list[float], list[int], Usage]]
]
"""Returns the scores of passages for a query, the tokens that were cut from each, and the usage."""
_AT_ONCE = 4
_LARGEST = 700.0
"""The largest size of a score whose logistic is computed."""


@dataclass(frozen=True, slots=True)
class Ranker:
    """A `FoundModel` that ranks: its description, what gives the scores, and its name in refusals."""

    info: EngineInfo
    scores: Scores
    name: str

    async def answer(self, request: Request) -> Reply:
        """Answers label questions about the relevance of passages, those for one query at once."""
        if not isinstance(request, LabelRequest) or len(request.labels) != 2:
            raise self._refusal()
        by_query: dict[str, list[int]] = {}
        for row, prompt in enumerate(request.prompts):
            if [message.role for message in prompt.messages] != ["system", "user"]:
                raise self._refusal()
            by_query.setdefault(prompt.messages[0].content, []).append(row)
        texts = [prompt.messages[-1].content for prompt in request.prompts]
        calls = [
            partial(self.scores, query, [texts[row] for row in rows], request.deadline)
            for query, rows in by_query.items()
        ]
        found, usage = dict[int, tuple[float, int]](), Usage()
        for rows, (scores, cuts, cost) in zip(
            by_query.values(), await in_parallel(calls, _AT_ONCE), strict=True
        ):
            usage += cost
            logistic = [1 / (1 + math.exp(-max(-_LARGEST, min(_LARGEST, score)))) for score in scores]
            found |= dict(zip(rows, zip(logistic, cuts, strict=True), strict=True))

        ordered = [found[row] for row in range(len(texts))]
        return Reply([((p, 1.0 - p), True, "first_token", None, None, cut) for p, cut in ordered], usage)

    def _refusal(self) -> EngineRejected:
        return EngineRejected(
            f"{self.name} only judges the relevance of passages: the engine has to read, write, grade and compare"
        )

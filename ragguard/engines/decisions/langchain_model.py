"""LangChainJudge: a decision model of LangChain's (`langchain_core.decisions.BaseDecisionModel`) as a judge."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from ragguard.engines.decisions.decision_model import Decided, DecisionModel, info_of
from ragguard.engines.decisions.questions import TypedQuestion, read_answer
from ragguard.engines.engine import ModelEngine
from ragguard.errors import UnfitText
from ragguard.records import Usage

_MODULE = "langchain_core.decisions"


def is_decision_model(value: object) -> bool:
    """Returns whether an object is a decision model of LangChain's, without importing LangChain."""
    return any(base.__module__.startswith(_MODULE) for base in type(value).__mro__)


class LangChainJudge(ModelEngine):
    """The decision model that a user has built with LangChain.

    Args:
        model: The model; its asynchronous call is awaited.
    """

    only_judges = True

    def __init__(self, model: Any) -> None:
        super().__init__()
        self._model = model

    async def look(self) -> DecisionModel:
        """Returns the model under its own name and that of its class."""
        kind, name = type(self._model).__name__, str(self._model.model)
        return DecisionModel(info_of(name, f"langchain/{kind}/{name}", kind), self._decide)

    async def _decide(
        self, state: str, questions: Sequence[TypedQuestion], deadline: float | None
    ) -> Decided:
        kinds = sys.modules[_MODULE]
        asked = {}
        for one in questions:
            if one.is_score:
                asked[one.id] = kinds.Score(criteria=[*one.names], instructions=one.instructions)
            else:
                meanings = one.criteria or (None,) * len(one.labels)
                criteria = dict(zip(one.labels, meanings, strict=True))
                asked[one.id] = kinds.Choice(criteria=criteria, instructions=one.instructions)
        try:
            reply = await self._model.ainvoke({"state": state, "questions": asked})
        except Exception as error:
            if "refusal" in type(error).__name__.lower():
                raise UnfitText(f"{self._model.model} declined to judge a text: {error}") from error
            raise
        found = {name: answer.model_dump() for name, answer in reply.answers.items()}
        answers = [read_answer(one, found.get(one.id), None, self._model.model) for one in questions]
        spent = reply.usage or {}
        counts = (int(spent.get(name, 0)) for name in ("input_tokens", "output_tokens"))
        return answers, Usage(1, len(questions), *counts)

    async def aclose(self) -> None:
        """Leaves the model open: the code that made it closes it."""

"""A decision model that a user has built with LangChain, as a judge."""

from __future__ import annotations

import sys
from typing import Any

from ragguard.engines.engine import ModelEngine
from ragguard.engines.http.decisions import Decided, DecisionModel, Questions, read_answers
from ragguard.errors import UnfitText
from ragguard.records import Usage


class LangChainJudge(ModelEngine):
    """An engine on a model of `langchain_core.decisions`.

    Args:
        model: The model; its asynchronous call is awaited.
    """

    only = "judges"

    def __init__(self, model: Any) -> None:
        super().__init__()
        self._model = model

    async def look(self) -> DecisionModel:
        """Returns the model under its own name and that of its class."""
        kind, name = type(self._model).__name__, str(self._model.model)
        return DecisionModel.named(name, f"langchain/{kind}/{name}", kind, self._decide)

    async def _decide(self, state: str, questions: Questions, deadline: float | None) -> Decided:
        kinds = sys.modules["langchain_core.decisions"]
        asked = {}
        for one in questions:
            if one.kind == "score":
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
        answers = {"answers": {name: answer.model_dump() for name, answer in reply.answers.items()}}
        spent = reply.usage or {}
        counts = (int(spent.get(name, 0)) for name in ("input_tokens", "output_tokens"))
        return read_answers(answers, questions, self._model.model), Usage(1, len(questions), *counts)

    async def aclose(self) -> None:
        """Leaves the model open: the code that made it closes it."""

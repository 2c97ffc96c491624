"""EngineEntailer: a language model as entailer, asked with the task `entailment` of its prompt set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ragguard.engines.base import Engine, EngineInfo
from ragguard.engines.entailment.entailer import RELATIONS, Entailments, Pair, entail_distinct
from ragguard.engines.prompts import PromptSet, load_prompts
from ragguard.errors import InvalidInput


class EngineEntailer:
    """Compares answers by asking a language model which of three labels follows.

    Args:
        engine: The engine that is asked.
        prompts: A set of prompts, its name or its TOML file. None: the engine's own.
    """

    def __init__(self, engine: Engine, prompts: str | Path | PromptSet | None = None) -> None:
        self._engine = engine
        self._prompts = None if prompts is None else load_prompts(prompts)

    async def entail(
        self, pairs: Sequence[Pair], *, deadline: float | None = None, priority: int = 0
    ) -> Entailments:
        """Returns one row for each pair: the probabilities of the three labels, made to sum to 1, and their mass."""
        prompts = await self._set()
        labels = prompts.labels("entailment")
        if len(labels) != len(RELATIONS):
            raise InvalidInput(
                f"labels of task `entailment` in prompt set {prompts.identity}",
                labels,
                "three: one each for entailment, neutral, contradiction, in this order",
            )

        async def ask(distinct: Sequence[Pair]) -> Entailments:
            rendered = [
                prompts.render(
                    "entailment",
                    cuttable=("first", "second"),
                    question=pair.question,
                    first=pair.premise,
                    second=pair.hypothesis,
                )
                for pair in distinct
            ]
            answer = await self._engine.label_probs(rendered, labels, deadline=deadline, priority=priority)
            # Where a model puts no probability on its labels, all three get the same, and the mass is 0.
            heard = np.where(answer.mass[:, None] > 0, answer.p, 1.0)
            p = heard / heard.sum(axis=-1, keepdims=True)
            return Entailments(p, answer.usage, answer.mass, answer.truncated)

        return await entail_distinct(pairs, ask)

    async def info(self) -> EngineInfo:
        """Returns the engine's info, with the prompts as part of its fingerprint."""
        info = await self._engine.info()
        identity = (await self._set()).identity
        return replace(info, fingerprint=f"{info.fingerprint} entailment {identity}", prompts=identity)

    async def aclose(self) -> None:
        """Does nothing: the code that made the engine closes it."""

    async def _set(self) -> PromptSet:
        return self._prompts or load_prompts((await self._engine.info()).prompts)

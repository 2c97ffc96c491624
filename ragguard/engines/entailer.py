"""Entailers judge entailment. `EngineEntailer` asks a language model for a label; `nli_models.py` has classifiers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from ragguard.engines.base import Engine, EngineInfo
from ragguard.engines.engine import Layer, send_to
from ragguard.engines.entailment import Entailments, EntailRequest, Pair
from ragguard.engines.labels import LabelRequest
from ragguard.engines.prompts import PromptSet, load_prompts
from ragguard.engines.requests import Reply, Request


@runtime_checkable
class Entailer(Protocol):
    """A model that judges entailment: whether one answer follows from another."""

    async def entail(
        self, pairs: Sequence[Pair], *, deadline: float | None = None, priority: int = 0
    ) -> Entailments:
        """Returns one row for each pair. `deadline` and `priority` mean what they mean to an engine."""
        ...

    async def info(self) -> EngineInfo:
        """Returns the description of the entailer; its fingerprint is part of the scores that use it."""
        ...

    async def aclose(self) -> None:
        """Releases connections, threads and memory. Safe to call twice."""
        ...


class EngineEntailer(Layer):
    """Compares answers by asking a language model which of three labels follows.

    Args:
        engine: The engine that is asked.
        prompts: A set of prompts, its name or its TOML file. None: the engine's own.
    """

    only = "compares"

    def __init__(self, engine: Engine, prompts: str | Path | PromptSet | None = None) -> None:
        super().__init__(engine)
        self._prompts = None if prompts is None else load_prompts(prompts)

    async def send(self, request: Request) -> Reply:
        """Sends the pairs as questions for one of the three labels, whose probabilities are made to sum to 1."""
        if not isinstance(request, EntailRequest):
            return await send_to(self._engine, request)
        prompts = await self._prompt_set()
        rendered = [
            prompts.render(
                "entailment",
                cuttable=("first", "second"),
                question=pair.question,
                first=pair.premise,
                second=pair.hypothesis,
            )
            for pair in request.prompts
        ]
        asked = LabelRequest(
            tuple(rendered),
            prompts.labels("entailment"),
            deadline=request.deadline,
            priority=request.priority,
        )
        answer = asked.answer(await send_to(self._engine, asked))
        # Where a model puts no probability on its labels, all three get the same, and the mass is 0.
        p = np.where(answer.mass[:, None] > 0, answer.p, 1.0)
        p = p / p.sum(axis=-1, keepdims=True)
        return request.read(Entailments(p, answer.usage, answer.mass, answer.truncated))

    async def info(self) -> EngineInfo:
        """Returns the engine's info, with the prompts as part of its fingerprint."""
        info = await self._engine.info()
        identity = (await self._prompt_set()).identity
        return replace(info, fingerprint=f"{info.fingerprint} entailment {identity}", prompts=identity)

    async def aclose(self) -> None:
        """Does nothing: the code that made the engine closes it."""

    async def _prompt_set(self) -> PromptSet:
        return self._prompts or load_prompts((await self._engine.info()).prompts)

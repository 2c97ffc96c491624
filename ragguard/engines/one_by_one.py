"""OneByOne: each prompt is a call of its own, for servers that take one conversation a request.

So what a layer below does, it does for one prompt: a refused one is asked again alone, and the
others need not be paid for twice.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from ragguard.engines.base import Engine, EngineInfo, LabelMode, LabelProbs, PromptLike, Samples, as_prompts
from ragguard.engines.parallel import in_parallel
from ragguard.records import Usage


class OneByOne:
    """Splits calls into single prompts, `at_once` of them under way together."""

    def __init__(self, engine: Engine, at_once: int = 16) -> None:
        self._engine, self._at_once = engine, at_once

    async def sample(
        self,
        prompts: Sequence[PromptLike],
        n: int = 10,
        max_tokens: int = 64,
        temperature: float = 1.0,
        seed: int | None = None,
        *,
        deadline: float | None = None,
        priority: int = 0,
    ) -> Samples:
        """`n` answers to each prompt."""
        prompts = as_prompts(prompts)
        ask = partial(
            self._engine.sample, n=n, max_tokens=max_tokens, temperature=temperature, seed=seed,
            deadline=deadline, priority=priority,
        )  # fmt: skip
        if len(prompts) < 2:
            return await ask(prompts)
        began = time.monotonic()
        parts = await in_parallel([partial(ask, [prompt]) for prompt in prompts], self._at_once)
        return Samples(
            [part.answers[0] for part in parts],
            _together([part.usage for part in parts], began),
            {index: part.truncated[0] for index, part in enumerate(parts) if part.truncated},
        )

    async def label_probs(
        self,
        prompts: Sequence[PromptLike],
        labels: Sequence[str],
        mode: LabelMode | None = None,
        deadline: float | None = None,
        priority: int = 0,
    ) -> LabelProbs:
        """The probability of each label as what follows each prompt."""
        prompts = as_prompts(prompts)
        ask = partial(
            self._engine.label_probs, labels=labels, mode=mode, deadline=deadline, priority=priority
        )
        if len(prompts) < 2:
            return await ask(prompts)
        began = time.monotonic()
        parts = await in_parallel([partial(ask, [prompt]) for prompt in prompts], self._at_once)
        bound = [
            np.zeros(part.p.shape, dtype=np.bool_) if part.bound is None else part.bound for part in parts
        ]
        stderr = [part.stderr for part in parts if part.stderr is not None]
        return LabelProbs(
            np.concatenate([part.p for part in parts]),
            exact=all(part.exact for part in parts),
            mode=parts[0].mode,
            usage=_together([part.usage for part in parts], began),
            bound=np.concatenate(bound) if any(part.bound is not None for part in parts) else None,
            stderr=np.concatenate(stderr) if len(stderr) == len(parts) else None,
            truncated={index: part.truncated[0] for index, part in enumerate(parts) if part.truncated},
        )

    async def info(self) -> EngineInfo:
        """What the wrapped engine is."""
        return await self._engine.info()

    async def aclose(self) -> None:
        """Closes the wrapped engine."""
        await self._engine.aclose()


def _together(usages: Sequence[Usage], began: float) -> Usage:
    return replace(sum(usages, Usage()), seconds=time.monotonic() - began)

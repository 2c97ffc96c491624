"""HfEngine: a transformers model in this process, on CPU or CUDA, for machines without a server.

PyTorch and transformers are imported when the model is first used, in the thread that computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ragguard.engines.labels import NextTokenAsk
from ragguard.engines.local.engine import Drawn, Loaded, LocalEngine
from ragguard.engines.local.hf_loading import Source, context_of, load
from ragguard.engines.local.hf_model import CausalModel
from ragguard.engines.local.tokens import LocalTokens
from ragguard.engines.local.worker import Worker
from ragguard.errors import InvalidInput


class HfEngine(LocalEngine):
    """A causal language model that transformers runs in this process. Needs the extra `hf`.

    Args:
        model: The model's name on the Hugging Face hub, or its folder.
        device: `cpu`, `cuda`, `cuda:1` …. None: CUDA where there is one.
        dtype: `float32`, `float16`, `bfloat16`, or `auto`: the checkpoint's own, but float32 on a CPU.
        revision: The branch, tag or commit on the hub. None: the latest.
        max_batch_tokens: How many tokens are computed at a time, prompts and samples together, 1 or more: more is
            faster and takes more memory.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        device: str | None = None,
        dtype: str = "auto",
        revision: str | None = None,
        max_batch_tokens: int = 32_768,
    ) -> None:
        if max_batch_tokens < 1:
            raise InvalidInput("max_batch_tokens", max_batch_tokens, "1 or more")
        source = Source(str(model), device, dtype, revision, purpose="an engine on transformers")
        super().__init__(_HfModel(source, max_batch_tokens))


class _HfModel:
    kind = "hf"

    def __init__(self, source: Source, max_batch_tokens: int) -> None:
        self._source, self._max_batch_tokens = source, max_batch_tokens
        self._worker = Worker(f"the transformers model {source.name}")
        self._there: tuple[Loaded, CausalModel] | None = None

    async def load(self) -> Loaded:
        loaded, _ = await self._worker.run(lambda still_wanted: self._ready())
        return loaded

    async def logprobs(
        self,
        prompts: Sequence[Sequence[int]],
        asks: Sequence[NextTokenAsk],
        *,
        deadline: float | None,
        priority: int,
    ) -> list[NDArray[np.float64]]:
        return await self._worker.run(
            lambda still_wanted: self._ready()[1].logprobs(prompts, asks, still_wanted), deadline
        )

    async def draw(
        self,
        prompts: Sequence[Sequence[int]],
        n: int,
        max_tokens: int,
        temperature: float,
        seed: int | None,
        *,
        deadline: float | None,
        priority: int,
    ) -> list[list[Drawn]]:
        return await self._worker.run(
            lambda still_wanted: self._ready()[1].draw(
                prompts, n, max_tokens, temperature, seed, still_wanted
            ),
            deadline,
        )

    async def aclose(self) -> None:
        await self._worker.close(self._forget)

    def _ready(self) -> tuple[Loaded, CausalModel]:
        """Loads at first use. Only the worker's one thread comes here."""
        if self._there is None:
            found = load(self._source, "AutoModelForCausalLM")
            tokens = LocalTokens(found.tokenizer)
            ends = _ends(found.model.generation_config.eos_token_id, found.tokenizer.eos_token_id)
            pad = found.tokenizer.pad_token_id
            model = CausalModel(found.model, ends, pad if pad is not None else 0, self._max_batch_tokens)
            loaded = Loaded(
                name=self._source.name,
                tokens=tokens,
                context=context_of(found.model.config, found.tokenizer),
                identity=found.identity,
                location=f"in this process, on {found.device}",
                capabilities=frozenset(
                    {"exact_labels", "sequence", "sample_logprobs", "batch", "n_samples", "seed"}
                ),
            )
            self._there = loaded, model
        return self._there

    def _forget(self) -> None:
        self._there = None


def _ends(*said: int | list[int] | None) -> frozenset[int]:
    """All tokens that end an answer, from whoever names some."""
    ends: set[int] = set()
    for one in said:
        ends.update([] if one is None else [one] if isinstance(one, int) else one)
    return frozenset(ends)

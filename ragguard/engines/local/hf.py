"""HfEngine: a transformers model in this process, on CPU or CUDA, for machines without a server.

PyTorch and transformers are imported when the model is first used, in the thread that computes.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from ragguard.engines.local.engine import LOCAL_CAPABILITIES, Loaded, LocalEngine, ThreadModel
from ragguard.engines.local.hf_loading import Source, context_of, load
from ragguard.engines.local.hf_model import CausalModel
from ragguard.engines.local.tokens import HfTokens
from ragguard.engines.local.worker import Worker
from ragguard.engines.profile import ModelFacts
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
        worker = Worker(f"the transformers model {source.name}")
        super().__init__(ThreadModel(worker, partial(_open, source, max_batch_tokens)))


def _open(source: Source, max_batch_tokens: int) -> tuple[Loaded, CausalModel]:
    found = load(source, "AutoModelForCausalLM")
    ends = _ends(found.model.generation_config.eos_token_id, found.tokenizer.eos_token_id)
    pad = found.tokenizer.pad_token_id
    context = context_of(found.model.config, found.tokenizer)
    facts = ModelFacts(
        kind="hf",
        name=source.name,
        identity=found.identity,
        context=context,
        location=f"in this process, on {found.device}",
        capabilities=LOCAL_CAPABILITIES,
    )
    model = CausalModel(found.model, ends, pad if pad is not None else 0, max_batch_tokens)
    return Loaded(HfTokens(found.tokenizer), facts, context), model


def _ends(*said: int | list[int] | None) -> frozenset[int]:
    """Returns all tokens that end an answer, given those that the config and the tokenizer name."""
    ends: set[int] = set()
    for one in said:
        ends.update([] if one is None else [one] if isinstance(one, int) else one)
    return frozenset(ends)

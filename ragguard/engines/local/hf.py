"""HfEngine: a transformers model in this process, on CPU or CUDA, for machines without a server.

PyTorch and transformers are imported when the model is first used, in the thread that computes. Prompts of like length
are padded on the left and prefilled together. For samples, a prompt is prefilled once and its KV cache repeated.
Whatever the weights' number type, probabilities are computed in float32.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ragguard.engines.local.local_engine import (
    Drawn,
    Loaded,
    LocalEngine,
    Rows,
    StillWanted,
    Worker,
    described,
    uniform,
)
from ragguard.engines.local.pretrained import HfTokens, Source, batches, load
from ragguard.engines.requests import DrawRequest, PromptRequest
from ragguard.engines.token_model import Ids

if TYPE_CHECKING:
    from torch import Tensor

_MOST_LOGITS = 2**26
"""The most numbers of a batch's logits that are looked at together: 256 MB in float32."""


class HfEngine(LocalEngine):
    """A causal language model that transformers runs in this process. Needs the extra `hf`.

    Args:
        model: The model's name on the Hugging Face hub, or its folder.
        device: `cpu`, `cuda`, `cuda:1` …. None: CUDA if there is one.
        dtype: `float32`, `float16`, `bfloat16`, or `auto`: the checkpoint's own, but float32 on a CPU.
        revision: The branch, tag or commit on the hub. None: the latest.
        max_batch_tokens: How many tokens are computed at a time, prompts and samples together, at least one prompt with
            its samples: more is faster and takes more memory.
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
        source = Source(str(model), device, dtype, revision)
        load_it = partial(_open, source, max_batch_tokens)
        super().__init__(Worker(f"the transformers model {source.name}", load_it))


def _open(source: Source, max_batch_tokens: int) -> Loaded:
    found = load(source, "AutoModelForCausalLM")
    # The config names one token that ends an answer, several, or none, and the tokenizer one or none.
    said = (found.model.generation_config.eos_token_id, found.tokenizer.eos_token_id)
    ends = np.hstack([ids for ids in said if ids is not None] or [()]).astype(int).tolist()
    tokens = HfTokens(found.tokenizer, ends)
    info = described(source.name, "hf", found.identity, found.context, f", on {found.device}")
    return Loaded(CausalModel(found.model, tokens.ends, max_batch_tokens), tokens, info)


class CausalModel:
    """A causal language model in memory, asked in batches: token ids in, log-probabilities and samples out."""

    def __init__(self, model: Any, ends: frozenset[int], max_batch_tokens: int) -> None:
        self._model, self._ends, self._max_tokens = model, ends, max_batch_tokens
        self._vocabulary = int(model.config.get_text_config().vocab_size)
        self._accepts = frozenset(inspect.signature(model.forward).parameters)
        self._cache = "cache" if "cache" in self._accepts else "past_key_values"  # its older name

    def logprobs(
        self, rows: Rows, texts: Rows, then: Ids, request: PromptRequest, still_wanted: StillWanted
    ) -> list[list[float]]:
        """Returns for each row the log-probabilities of its text's tokens and of those of `then`, from one pass over
        row and text."""
        found: list[list[float]] = [[] for _ in rows]
        whole = [[*row, *text] for row, text in zip(rows, texts, strict=True)]
        lengths = [len(row) for row in whole]
        for part in self._parts(lengths, lengths, 1 + max(map(len, texts))):
            still_wanted()
            keep = 1 + max(len(texts[i]) for i in part)
            logprobs = self._prefill([whole[i] for i in part], keep)[0].float().log_softmax(-1)
            for own, i in zip(logprobs, part, strict=True):
                text = own[-1 - len(texts[i]) : -1]
                found[i] = [
                    *text[range(len(texts[i])), list(texts[i])].tolist(),
                    *own[-1, list(then)].tolist(),
                ]
        return found

    def draw(self, rows: Rows, request: DrawRequest, still_wanted: StillWanted) -> list[list[Drawn]]:
        """Returns `n` answers to each row, drawn with numbers that depend on the seed and the row."""
        found: list[list[Drawn]] = [[] for _ in rows]
        lengths = [len(row) for row in rows]
        tokens = [request.n * (length + request.max_tokens) for length in lengths]
        for part in self._parts(lengths, tokens, request.n):
            numbers = np.concatenate([uniform(rows[i], request) for i in part])
            drawn = iter(self._draw([rows[i] for i in part], request, numbers, still_wanted))
            for i in part:
                found[i] = list(islice(drawn, request.n))
        return found

    def _draw(
        self, rows: Rows, request: DrawRequest, uniforms: NDArray[np.float64], still_wanted: StillWanted
    ) -> list[Drawn]:
        import torch

        n, max_tokens = request.n, request.max_tokens
        logits, mask, cache = self._prefill(rows, 1)
        cache.batch_repeat_interleave(n)
        logits, mask = (tensor.repeat_interleave(n, 0) for tensor in (logits[:, -1], mask))
        numbers = torch.from_numpy(uniforms).to(logits.device)
        ends = torch.tensor(sorted(self._ends), device=logits.device)
        tokens = torch.zeros(uniforms.shape, dtype=torch.long, device=logits.device)
        logprobs = torch.zeros(uniforms.shape, dtype=torch.float32, device=logits.device)
        length = torch.full((len(uniforms),), max_tokens, device=logits.device)
        # The rows of the batch, as answers; ended ones are removed from the batch from time to time.
        live = torch.arange(len(uniforms), device=logits.device)
        with torch.inference_mode():
            for step in range(max_tokens):
                still_wanted()
                distribution = logits.float().log_softmax(-1)
                token = _pick(distribution, numbers[live, step], request.temperature)
                tokens[live, step] = token
                logprobs[live, step] = distribution.gather(-1, token[:, None])[:, 0]
                ended = torch.isin(token, ends) & (length[live] == max_tokens)
                length[live[ended]] = step + 1
                going = length[live] == max_tokens
                if step + 1 == max_tokens or not bool(going.any()):
                    break
                if int(going.sum()) * 4 <= len(live) * 3:
                    stay = going.nonzero()[:, 0]
                    cache.batch_select_indices(stay)
                    live, token, mask = live[stay], token[stay], mask[stay]
                mask = torch.cat([mask, mask.new_ones((len(mask), 1))], dim=-1)
                logits, cache = self._forward(token[:, None], mask, mask.sum(-1, keepdim=True) - 1, 1, cache)
                logits = logits[:, -1]
        whole = zip(tokens.tolist(), logprobs.double().tolist(), length.tolist(), strict=True)
        return [Drawn(ids[:size], values[:size], ids[size - 1] in self._ends) for ids, values, size in whole]

    def _prefill(self, rows: Rows, keep: int) -> tuple[Tensor, Tensor, Any]:
        """Returns the last logits of rows, their mask and cache. Rows are padded on the left, so that the next token of
        each is in the same column."""
        import torch

        width = max(len(row) for row in rows)
        ids = np.zeros((len(rows), width), dtype=np.int64)  # what is masked is not read
        mask = np.zeros_like(ids)
        for index, row in enumerate(rows):
            ids[index, width - len(row) :] = row
            mask[index, width - len(row) :] = 1
        device = self._model.device
        there, seen = torch.from_numpy(mask).to(device), torch.from_numpy(ids).to(device)
        with torch.inference_mode():
            logits, cache = self._forward(seen, there, (there.cumsum(-1) - 1).clamp(min=0), keep, None)
        return logits, there, cache

    def _forward(
        self, ids: Tensor, mask: Tensor, positions: Tensor, keep: int, cache: Any
    ) -> tuple[Tensor, Any]:
        """Returns the logits of the last `keep` columns, and the KV cache."""
        more: dict[str, Any] = {self._cache: cache} if cache is not None else {}
        if "position_ids" in self._accepts:
            more["position_ids"] = positions
        if "logits_to_keep" in self._accepts:
            more["logits_to_keep"] = keep
        out = self._model(input_ids=ids, attention_mask=mask, use_cache=True, **more)
        return out.logits[:, -keep:], out[self._cache]

    def _parts(self, lengths: Sequence[int], tokens: Sequence[int], positions: int) -> Iterator[list[int]]:
        """Returns the indices of rows that are computed together: of similar length, within the memory limits."""
        logits = _MOST_LOGITS // (positions * self._vocabulary)
        return batches(lengths, lambda longest: min(logits, self._max_tokens // tokens[longest]))


def _pick(distribution: Tensor, uniform: Tensor, temperature: float) -> Tensor:
    """Returns one token for each row: the one at which the cumulated probabilities pass the row's uniform number."""
    import torch

    if temperature == 0:
        return distribution.argmax(-1)
    heaped = (distribution.double() / temperature).softmax(-1).cumsum(-1)
    picked = torch.searchsorted(heaped, (uniform * heaped[:, -1])[:, None], right=True)[:, 0]
    return picked.clamp(max=distribution.shape[-1] - 1)

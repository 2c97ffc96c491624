"""CrossEncoder: an NLI model of transformers, such as `microsoft/deberta-v2-xlarge-mnli` or `roberta-large-mnli`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragguard.engines.base import EngineInfo
from ragguard.engines.entailment.entailer import Entailments, Pair, as_texts, columns_of, entail_distinct
from ragguard.engines.local.pretrained import Source, batches, context_of, load
from ragguard.engines.local.worker import StillWanted, Worker
from ragguard.errors import EngineProtocolError, InvalidInput, PromptTooLong
from ragguard.records import Usage


class CrossEncoder:
    """An NLI model that transformers runs in this process. Needs the extra `hf`.

    Args:
        model: The model's name on the Hugging Face hub, or its folder.
        labels: The model's classes in order. None: as its config names them.
        device: `cpu`, `cuda`, `cuda:1` …. None: CUDA where there is one.
        dtype: `float32`, `float16`, `bfloat16`, or `auto`: the checkpoint's own, but float32 on a CPU.
        revision: The branch, tag or commit on the hub. None: the latest.
        max_batch_tokens: How many tokens are computed at a time, 1 or more.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        labels: Sequence[str] | None = None,
        device: str | None = None,
        dtype: str = "auto",
        revision: str | None = None,
        max_batch_tokens: int = 16_384,
    ) -> None:
        if max_batch_tokens < 1:
            raise InvalidInput("max_batch_tokens", max_batch_tokens, "1 or more")
        self._source = Source(str(model), device, dtype, revision, purpose="a cross-encoder for entailment")
        self._labels = None if labels is None else dict(enumerate(labels))
        if self._labels is not None:
            columns_of(self._labels, self._source.name)
        self._max_batch_tokens = max_batch_tokens
        self._worker = Worker(f"the cross-encoder {model}", self._load)

    async def entail(
        self, pairs: Sequence[Pair], *, deadline: float | None = None, priority: int = 0
    ) -> Entailments:
        """Returns one row for each pair. Raises PromptTooLong where the model has no room for one: nothing is cut."""

        async def ask(distinct: Sequence[Pair]) -> Entailments:
            began = time.monotonic()
            p, tokens = await self._worker.run(
                lambda model, still_wanted: model.relations(distinct, self._max_batch_tokens, still_wanted),
                deadline,
            )
            if not np.isfinite(p).all():
                raise EngineProtocolError(
                    f"{self._source.name} gave probabilities that are no numbers: load it in another dtype"
                )
            usage = Usage(1, len(distinct), tokens, 0, seconds=time.monotonic() - began)
            return Entailments(p, usage)

        return await entail_distinct(pairs, ask)

    async def info(self) -> EngineInfo:
        """Returns the description of the model, which is loaded the first time."""
        classifier = await self._worker.run(lambda model, still_wanted: model)
        return EngineInfo(
            model=self._source.name,
            kind="cross-encoder",
            fingerprint=f"cross-encoder/{self._source.name}/{classifier.identity}",
            context=classifier.context,
            location=f"in this process, on {classifier.device}",
        )

    async def aclose(self) -> None:
        """Releases the model's memory."""
        await self._worker.close()

    def _load(self) -> _Classifier:
        found = load(self._source, "AutoModelForSequenceClassification")
        named = {int(index): str(label) for index, label in found.model.config.id2label.items()}
        if self._labels is not None and len(self._labels) != len(named):
            given = list(self._labels.values())
            raise InvalidInput("labels", given, f"{len(named)} names, one a class of {self._source.name}")
        return _Classifier(
            model=found.model,
            tokenizer=found.tokenizer,
            columns=columns_of(self._labels or named, self._source.name),
            # Families of RoBERTa lose two positions to their padding; two tokens less hurt no other.
            context=context_of(found.model.config, found.tokenizer) - 2,
            identity=found.identity,
            device=found.device,
        )


@dataclass(frozen=True, slots=True)
class _Classifier:
    model: Any
    tokenizer: Any
    columns: NDArray[np.float64]
    context: int
    identity: str
    device: str

    def relations(
        self, pairs: Sequence[Pair], max_tokens: int, still_wanted: StillWanted
    ) -> tuple[NDArray[np.float64], int]:
        """Returns the probabilities (pairs, relations), and the number of tokens read. No text in a pair becomes a
        special token."""
        import torch

        encoded = self.tokenizer(*zip(*map(as_texts, pairs), strict=True), split_special_tokens=True)
        rows = [{name: values[i] for name, values in encoded.items()} for i in range(len(pairs))]
        p = np.empty((len(rows), len(self.columns)))
        lengths = [len(row["input_ids"]) for row in rows]
        if max(lengths) > self.context:
            raise PromptTooLong(
                f"a pair of answers has {max(lengths)} tokens with its question, and {self.context} fit: compare "
                "shorter answers, or leave out `entailer`, so that the engine compares them",
                limit=self.context,
                tokens=max(lengths),
            )
        for part in batches(lengths, lambda longest: max_tokens // lengths[longest]):
            still_wanted()
            batch = self.tokenizer.pad([rows[i] for i in part], return_tensors="pt")
            with torch.inference_mode():
                logits = self.model(**{name: tensor.to(self.device) for name, tensor in batch.items()}).logits
            p[part] = logits.float().softmax(-1).cpu().numpy()
        return p @ self.columns, sum(lengths)

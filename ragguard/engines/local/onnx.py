"""`onnx:FOLDER`: a cross-encoder in ONNX form, computed in this process without torch: as judge a reranker, as entailer
an NLI classifier.

The folder is one as the Hugging Face hub has them: `model.onnx`, or `onnx/model.onnx`, with `tokenizer.json` and
`config.json`, whose `id2label` names an NLI model's classes. Needs the extra `onnx`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragguard.engines.base import EngineInfo
from ragguard.engines.engine import ModelEngine
from ragguard.engines.entailment import Pair, as_texts, columns_of
from ragguard.engines.local.local_engine import StillWanted, Worker
from ragguard.engines.local.pretrained import batches, ends_of
from ragguard.engines.nli_models import NliModel
from ragguard.engines.ranking import KIND, NOTE, Ranker
from ragguard.errors import EngineRejected, InvalidInput, MissingDependency, PromptTooLong
from ragguard.records import Usage
from ragguard.runtime.faults import describe

_BATCH_TOKENS = 16_384
_FILES = ("model.onnx", "onnx/model.onnx")
_INPUTS = frozenset({"input_ids", "attention_mask", "token_type_ids"})
_PADDING = 2
"""The positions that families of RoBERTa lose to their padding."""


class _OnnxEngine(ModelEngine):
    """An engine on a cross-encoder in a folder.

    Args:
        folder: The folder of the model.
        threads: The threads that compute. None: onnxruntime's own choice, the cores of the machine.
    """

    def __init__(self, folder: str | Path, *, threads: int | None = None) -> None:
        super().__init__()
        for package in ("onnxruntime", "tokenizers"):
            if find_spec(package) is None:
                raise MissingDependency(package, "a model in ONNX form", "onnx")
        self._folder = Path(folder).expanduser()
        found = [self._folder / name for name in _FILES if (self._folder / name).is_file()]
        if not found or not (self._folder / "tokenizer.json").is_file():
            raise InvalidInput(
                "onnx", str(folder), "a folder with model.onnx (or onnx/model.onnx) and tokenizer.json"
            )
        self._worker = Worker(f"the model in {folder}", lambda: _loaded(found[0], self._folder, threads))

    async def aclose(self) -> None:
        """Releases the model's memory."""
        self._worker.close()

    def _info(self, model: OnnxModel, kind: str, **more: Any) -> EngineInfo:
        return EngineInfo(
            model=self._folder.name,
            kind=kind,
            fingerprint=f"{kind}/{self._folder.name}/{model.identity}",
            context=model.context,
            location="in this process, through onnxruntime",
            **more,
        )


class OnnxEntailer(_OnnxEngine):
    """An NLI classifier in a folder. A pair that is too long raises PromptTooLong; nothing is cut."""

    only = "compares"

    async def look(self) -> NliModel:
        """Loads the model."""
        model = await self._worker.run(lambda model, still_wanted: model)
        columns = columns_of(model.labels, self._folder.name)

        async def compute(pairs: Sequence[Pair], deadline: float | None) -> tuple[NDArray[np.float64], Usage]:
            texts = list(map(as_texts, pairs))
            logits, tokens, cuts = await self._worker.run(
                lambda model, still_wanted: model.logits(texts, still_wanted), deadline
            )
            if max(cuts):
                raise PromptTooLong(
                    f"a pair of answers has more tokens than the {model.context} that fit: compare shorter answers, or "
                    "leave out `entailer`, so that the engine compares them",
                    limit=model.context,
                )
            if logits.shape[1] != len(columns):
                raise EngineRejected(
                    f"the model in {self._folder} gives {logits.shape[1]} numbers for a pair, and its config names "
                    f"{len(columns)} classes"
                )
            p = np.exp(logits - logits.max(axis=1, keepdims=True))
            return p / p.sum(axis=1, keepdims=True) @ columns, Usage(1, prompt_tokens=tokens)

        return NliModel(self._info(model, "cross-encoder"), compute)


class OnnxReranker(_OnnxEngine):
    """A reranker in a folder, as a judge of relevance. Of a passage without room the end is cut."""

    only = "ranks"

    async def look(self) -> Ranker:
        """Loads the model."""
        model = await self._worker.run(lambda model, still_wanted: model)

        async def scores(
            query: str, passages: Sequence[str], deadline: float | None
        ) -> tuple[list[float], list[int], Usage]:
            texts = [(query, passage) for passage in passages]
            logits, tokens, cuts = await self._worker.run(
                lambda model, still_wanted: model.logits(texts, still_wanted), deadline
            )
            if logits.shape[1] != 1:
                raise EngineRejected(
                    f"the model in {self._folder} gives {logits.shape[1]} numbers for a query and a passage, and a "
                    "reranker gives one: an NLI model is an `entailer=`"
                )
            return logits[:, 0].tolist(), cuts, Usage(1, prompt_tokens=tokens)

        info = self._info(model, KIND, prompts="rerank", capabilities=frozenset({"batch"}), notes=(NOTE,))
        return Ranker(info, scores, f"the reranker in {self._folder}")


@dataclass(frozen=True, slots=True)
class OnnxModel:
    """A loaded cross-encoder."""

    session: Any
    tokenizer: Any
    inputs: Sequence[str]
    labels: dict[int, str]
    context: int
    padding: int
    identity: str

    def logits(
        self, texts: Sequence[tuple[str, str]], still_wanted: StillWanted
    ) -> tuple[NDArray[np.float64], int, list[int]]:
        """Returns the numbers of each pair of texts, the tokens that were read, and those that were cut of each pair's
        second text."""
        try:
            encoded = self.tokenizer.encode_batch([(one, other) for one, other in texts])
        except (
            Exception
        ) as error:  # the tokenizer raises nothing more exact where the first text leaves no room
            raise PromptTooLong(
                f"a text has more tokens than the {self.context} that fit beside another one: {error}",
                limit=self.context,
            ) from error
        cuts = [sum(part.sequence_ids.count(1) for part in row.overflowing) for row in encoded]
        lengths = [len(row.ids) for row in encoded]
        rows: dict[int, NDArray[np.float64]] = {}
        for part in batches(lengths, lambda longest: _BATCH_TOKENS // lengths[longest]):
            still_wanted()
            width = max(lengths[at] for at in part)
            columns = {
                "input_ids": np.full((len(part), width), self.padding, dtype=np.int64),
                "attention_mask": np.zeros((len(part), width), dtype=np.int64),
                "token_type_ids": np.zeros((len(part), width), dtype=np.int64),
            }
            for row, at in enumerate(part):
                columns["input_ids"][row, : lengths[at]] = encoded[at].ids
                columns["attention_mask"][row, : lengths[at]] = 1
                columns["token_type_ids"][row, : lengths[at]] = encoded[at].type_ids
            given = np.asarray(self.session.run(None, {name: columns[name] for name in self.inputs})[0])
            if given.ndim != 2 or len(given) != len(part) or not np.isfinite(given).all():
                raise EngineRejected(
                    f"the model gives numbers of the shape {given.shape} for {len(part)} pairs; a cross-encoder gives "
                    "a row of finite numbers for each"
                )
            rows |= dict(zip(part, given.astype(np.float64), strict=True))
        return np.array([rows[at] for at in range(len(texts))]), sum(lengths), cuts


def _loaded(file: Path, folder: Path, threads: int | None) -> OnnxModel:
    import onnxruntime
    from tokenizers import Tokenizer

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or 0
    try:
        session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception as error:  # onnxruntime and tokenizers raise classes of their own
        raise EngineRejected(f"{folder} could not be loaded: {str(error)[:300]}") from error
    inputs = [one.name for one in session.get_inputs()]
    if "input_ids" not in inputs or not set(inputs) <= _INPUTS:
        raise EngineRejected(
            f"{file} wants the inputs {', '.join(inputs)}; a cross-encoder wants input_ids and may want attention_mask "
            "and token_type_ids"
        )
    config, settings = _json(folder / "config.json"), _json(folder / "tokenizer_config.json")
    said = [config.get("max_position_embeddings"), settings.get("model_max_length")]
    known = [limit for limit in said if isinstance(limit, int) and 0 < limit < 10**8]
    context = min(known, default=512 + _PADDING) - _PADDING
    tokenizer.no_padding()
    tokenizer.enable_truncation(context, strategy="only_second")
    tokenizer.encode_special_tokens = True  # no text in a passage becomes a special token
    named = {int(index): str(label) for index, label in (config.get("id2label") or {}).items()}
    digest = hashlib.sha256(ends_of(file) + (folder / "tokenizer.json").read_bytes()).hexdigest()[:16]
    return OnnxModel(
        session=session,
        tokenizer=tokenizer,
        inputs=inputs,
        labels=named,
        context=context,
        padding=int(config.get("pad_token_id") or 0),
        identity=digest,
    )


def _json(path: Path) -> dict[str, Any]:
    """Returns the object in a file; an empty one if there is no such file. Raises EngineRejected for one that cannot be
    read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except (OSError, ValueError, RecursionError) as error:
        raise EngineRejected(f"{path} could not be read ({describe(error)}): get it again") from error
    return found if isinstance(found, dict) else {}

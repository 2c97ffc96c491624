"""NLI models: `ClassifyEntailer`, a classifier behind vLLM's `/classify`, and `CrossEncoder`, one of transformers, as
`microsoft/deberta-v2-xlarge-mnli` or `roberta-large-mnli`.

vLLM's server takes one text a row, so both texts of a pair are joined by the model's own separator, which is learned
from the server. It names only the most probable class of each row, so which class means what is learned from
pairs whose relation is plain, or given.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ragguard.engines.base import EngineInfo
from ragguard.engines.engine import ModelEngine
from ragguard.engines.entailment import Entailments, EntailRequest, Pair, as_texts, columns_of
from ragguard.engines.http.http_client import HttpClient, served_model
from ragguard.engines.http.replies import usage_of
from ragguard.engines.local.local_engine import StillWanted, Worker
from ragguard.engines.local.pretrained import Pretrained, Source, batches, load
from ragguard.engines.requests import Reply, Request
from ragguard.errors import EngineProtocolError, EngineRejected, PromptTooLong
from ragguard.records import Usage
from ragguard.runtime.limiter import in_parallel

_PLAIN = (
    Pair("Where does Ada live?", "She lives in Paris.", "She lives in France."),
    Pair("Is the door open?", "Yes, it is open.", "It is not closed."),
    Pair("Where does Ada live?", "She lives in Paris.", "She lives in Oslo."),
    Pair("Is the door open?", "Yes, it is open.", "No, it is closed."),
    Pair("Who is Ada?", "She is a pilot.", "She is a pilot with three brothers."),
    Pair("What did he buy?", "He bought a car.", "He bought a red car yesterday."),
)
"""Two pairs of each relation, which show how a model names its classes."""
_SPECIAL = ("<s>", "</s>", "<pad>", "<mask>", "<unk>", "[CLS]", "[SEP]", "[PAD]", "[MASK]", "[UNK]")
_ROWS, _REQUESTS_AT_ONCE = 256, 4
_PADDING = 2
"""The positions that families of RoBERTa lose to their padding."""
_BATCH_TOKENS = 16_384
"""How many tokens a cross-encoder computes at a time."""


class _Served(NamedTuple):
    """A server's model: how two texts are joined for it, the names of its classes, and which relation each is."""

    model: str
    context: int | None
    separator: str
    specials: frozenset[str]
    names: Mapping[int, str] = {}
    columns: NDArray[np.float64] = np.eye(3)


@dataclass(frozen=True, slots=True)
class NliModel:
    """A `FoundModel` that compares answers: its description, and what computes (pairs, relations) with the usage."""

    info: EngineInfo
    compute: Callable[[Sequence[Pair], float | None], Awaitable[tuple[NDArray[np.float64], Usage]]]

    async def answer(self, request: Request) -> Reply:
        """Answers a request with one row for each pair."""
        assert isinstance(request, EntailRequest)
        return request.read(Entailments(*await self.compute(request.prompts, request.deadline)))


class ClassifyEntailer(ModelEngine):
    """An NLI model that vLLM serves with `--runner pooling`. A pair that is too long raises PromptTooLong; nothing is
    cut.

    Args:
        url: The server's address, such as `http://host:8001/v1`, with `#MODEL` if it has several.
        labels: The model's classes in order, such as `("contradiction", "neutral", "entailment")`. None: as the
            server names them.
        api_key: The key that the server wants. None: RAGGUARD_API_KEY or OPENAI_API_KEY from the environment.
        timeout_s: How many seconds one HTTP request may take.
    """

    only = "compares"

    def __init__(
        self,
        url: str,
        *,
        labels: Sequence[str] | None = None,
        api_key: str | None = None,
        timeout_s: float = 120.0,
    ) -> None:
        super().__init__()
        self._client = HttpClient(url, api_key, timeout_s)
        self._url = f"{self._client.address.root}/classify"
        self._labels = None if labels is None else dict(enumerate(labels))
        if self._labels is not None:
            columns_of(self._labels, url)

    async def look(self) -> NliModel:
        """Asks the server for its model, and learns the names of its classes."""
        served = await self._look()

        async def compute(pairs: Sequence[Pair], deadline: float | None) -> tuple[NDArray[np.float64], Usage]:
            p, _, usage = await self._classify(served, pairs, deadline)
            if p.shape[1] != len(served.columns):
                raise EngineRejected(
                    f"{self._url} has another number of classes than before: another model is served there",
                    status=404,
                )
            return p @ served.columns, usage

        learned = sorted(served.names.items()) if self._labels is None else ()
        named = " ".join(f"{index}={name}" for index, name in learned)
        info = EngineInfo(
            model=served.model,
            kind="vllm-classify",
            fingerprint=f"vllm-classify/{served.model}/{served.separator}/{named}",
            context=served.context,
            location=self._client.address.base,
        )
        return NliModel(info, compute)

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._client.aclose()

    async def _look(self) -> _Served:
        model = await served_model(self._client, self._client.address.model)
        specials = await self._specials(model.id)
        separator = _separator(specials, model.id)
        served = _Served(model.id, model.context, separator, frozenset({*_SPECIAL, *specials, separator}))
        p, labels, _ = await self._classify(served, _PLAIN, None)
        names = self._labels or dict(zip(p.argmax(axis=1).tolist(), labels, strict=True))
        if len(names) != p.shape[1]:
            known = ", ".join(f"{index} = {name}" for index, name in sorted(names.items()))
            raise EngineRejected(
                f"{model.id} has {p.shape[1]} classes, and known are these: {known}. Give all of them in the order of "
                "`id2label` in its config: ClassifyEntailer(URL, labels=('contradiction', 'neutral', 'entailment'))"
            )
        return served._replace(names=names, columns=columns_of(names, model.id))

    async def _specials(self, model: str) -> tuple[str, ...]:
        """Returns the special tokens that the tokenizer puts before and after a text."""
        body = {"model": model, "prompt": "a", "add_special_tokens": True, "return_token_strs": True}
        tokens = (await self._post("/tokenize", body, None)).get("token_strs") or []
        ends = map(str, (*tokens[:1], *tokens[-1:]))
        return tuple(dict.fromkeys(token for token in ends if token[:1] in "<["))

    async def _classify(
        self, served: _Served, pairs: Sequence[Pair], deadline: float | None
    ) -> tuple[NDArray[np.float64], list[str], Usage]:
        """Returns the probabilities (pairs, classes), the name of each pair's most probable class, and the usage."""
        texts = [_joined(served, pair) for pair in pairs]
        parts = [texts[start : start + _ROWS] for start in range(0, len(texts), _ROWS)]
        bodies = [{"model": served.model, "input": part} for part in parts]
        calls = [partial(self._post, "/classify", body, deadline) for body in bodies]
        answers = await in_parallel(calls, _REQUESTS_AT_ONCE)
        answered = zip(parts, answers, strict=True)
        rows = [row for part, answer in answered for row in _rows(answer, len(part), self._url)]
        p = np.array([probs for probs, _ in rows], dtype=np.float64)
        read = sum(usage_of(answer, 1).prompt_tokens for answer in answers)
        return p / p.sum(axis=1, keepdims=True), [label for _, label in rows], Usage(len(parts), 0, read)

    async def _post(self, path: str, body: Mapping[str, Any], deadline: float | None) -> Mapping[str, Any]:
        answer = await self._client.ask(path, body, deadline=deadline, root=True)
        if not isinstance(answer, Mapping):
            raise EngineProtocolError(f"{self._client.address.root}{path}: the answer is no JSON object")
        return answer


def _rows(answer: Mapping[str, Any], expected: int, url: str) -> list[tuple[list[float], str]]:
    """Returns the probabilities and the name of the most probable class of each row of an answer, in order."""
    try:
        rows = {item["index"]: (item["probs"], str(item["label"])) for item in answer["data"]}
        ordered = [rows[index] for index in range(expected)]
        fine = len(rows) == expected and all(
            min(probs) >= 0 and abs(math.fsum(probs) - 1) <= 0.01 for probs, _ in ordered
        )
    except (TypeError, KeyError, ValueError):
        fine = False
    if not fine:
        raise EngineProtocolError(
            f"{url}: not {expected} rows, each with its index, its label and as `probs` a distribution over classes; a "
            "classifier whose classes exclude each other is needed"
        )
    return ordered


def _separator(specials: Sequence[str], model: str) -> str:
    """Returns the text that the tokenizer puts between two texts, which families of tokenizers have in common."""
    if specials[-1:] == ("</s>",) and specials[:1] == ("<s>",):
        return "</s></s>"
    if specials[-1:] in (("[SEP]",), ("<sep>",)):
        return specials[-1]
    raise EngineRejected(
        f"how the tokenizer of {model} puts two texts together cannot be seen from outside: compute the model in this "
        "process, as hf:MODEL"
    )


def _joined(served: _Served, pair: Pair) -> str:
    """Returns both texts as one. Special tokens inside a text are broken up, so that it cannot contain a separator."""
    texts = list(as_texts(pair))
    for token in served.specials:
        texts = [text.replace(token, f"{token[:1]} {token[1:]}") for text in texts]
    return served.separator.join(texts)


class CrossEncoder(ModelEngine):
    """An NLI model that transformers runs in this process. Its classes are named by `id2label` in its config. A pair
    that is too long raises PromptTooLong; nothing is cut. Needs the extra `hf`.

    Args:
        model: The model's name on the Hugging Face hub, or its folder.
        device: `cpu`, `cuda`, `cuda:1` …. None: CUDA if there is one.
        dtype: `float32`, `float16`, `bfloat16`, or `auto`: the checkpoint's own, but float32 on a CPU.
        revision: The branch, tag or commit on the hub. None: the latest.
    """

    only = "compares"

    def __init__(
        self,
        model: str | Path,
        *,
        device: str | None = None,
        dtype: str = "auto",
        revision: str | None = None,
    ) -> None:
        super().__init__()
        self._source = Source(str(model), device, dtype, revision)
        self._worker = Worker(f"the cross-encoder {model}", self._load)

    async def look(self) -> NliModel:
        """Loads the model."""
        found, _ = await self._worker.run(lambda model, still_wanted: model)

        async def compute(pairs: Sequence[Pair], deadline: float | None) -> tuple[NDArray[np.float64], Usage]:
            p, tokens = await self._worker.run(
                lambda model, still_wanted: _classified(model[0], pairs, model[1], still_wanted), deadline
            )
            return p, Usage(1, prompt_tokens=tokens)

        info = EngineInfo(
            model=self._source.name,
            kind="cross-encoder",
            fingerprint=f"cross-encoder/{self._source.name}/{found.identity}",
            context=found.context - _PADDING,
            location=f"in this process, on {found.device}",
        )
        return NliModel(info, compute)

    async def aclose(self) -> None:
        """Releases the model's memory."""
        self._worker.close()

    def _load(self) -> tuple[Pretrained, NDArray[np.float64]]:
        """Returns the model, and which of its classes is which relation."""
        found = load(self._source, "AutoModelForSequenceClassification")
        named = {int(index): str(label) for index, label in found.model.config.id2label.items()}
        return found, columns_of(named, self._source.name)


def _classified(
    found: Pretrained, pairs: Sequence[Pair], columns: NDArray[np.float64], still_wanted: StillWanted
) -> tuple[NDArray[np.float64], int]:
    """Returns the probabilities (pairs, relations), and the number of tokens read. No text in a pair becomes a special
    token."""
    import torch

    encoded = found.tokenizer(*zip(*map(as_texts, pairs), strict=True), split_special_tokens=True)
    rows = [{name: values[i] for name, values in encoded.items()} for i in range(len(pairs))]
    p = np.empty((len(rows), len(columns)))
    lengths = [len(row["input_ids"]) for row in rows]
    if (longest := max(lengths)) > (limit := found.context - _PADDING):
        raise PromptTooLong(
            f"a pair of answers has {longest} tokens with its question, and {limit} fit: compare shorter answers, or "
            "leave out `entailer`, so that the engine compares them",
            limit=limit,
            tokens=longest,
        )
    for part in batches(lengths, lambda longest: _BATCH_TOKENS // lengths[longest]):
        still_wanted()
        batch = found.tokenizer.pad([rows[i] for i in part], return_tensors="pt").to(found.device)
        with torch.inference_mode():
            p[part] = found.model(**batch).logits.float().softmax(-1).cpu().numpy()
    return p @ columns, sum(lengths)

"""NLI models: `ClassifyEntailer`, a classifier behind vLLM's `/classify`, and `CrossEncoder`, one of transformers, as
`microsoft/deberta-v2-xlarge-mnli` or `roberta-large-mnli`.

vLLM's server takes one text a row, so both texts of a pair are joined by the model's own separator, which is learned
from the server or given. It names only the most probable class of each row, so which class means what is learned from
pairs whose relation is plain, or given.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragguard.engines.base import EngineInfo
from ragguard.engines.engine import Lazy
from ragguard.engines.entailer import (
    RELATIONS,
    Entailments,
    Pair,
    as_texts,
    columns_of,
    entail_distinct,
)
from ragguard.engines.http.http_client import HttpClient, served_model
from ragguard.engines.http.replies import usage_of
from ragguard.engines.layers.retry import Patience
from ragguard.engines.local.local_engine import StillWanted, Worker
from ragguard.engines.local.pretrained import Source, batches, context_of, load
from ragguard.errors import EngineProtocolError, EngineRejected, InvalidInput, PromptTooLong
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


@dataclass(frozen=True, slots=True)
class _Served:
    model: str
    separator: str
    specials: tuple[str, ...]
    columns: NDArray[np.float64]
    names: Mapping[int, str]
    context: int | None


class ClassifyEntailer:
    """An NLI model that vLLM serves with `--runner pooling`.

    Args:
        url: The server's address, such as `http://host:8001/v1`, optionally with `#MODEL`.
        model: The model to ask for, where the server has several. None: the only one.
        labels: The model's classes in order, such as `("contradiction", "neutral", "entailment")`. None: as the
            server names them.
        separator: What the model's tokenizer puts between two texts, such as `</s></s>`. None: found from the
            special tokens that the server shows.
        api_key: The key that the server wants. None: RAGGUARD_API_KEY or OPENAI_API_KEY from the environment.
        timeout_s: How many seconds one HTTP request may take.
        patience: How failed requests are repeated. None: `Patience()`.
    """

    def __init__(
        self,
        url: str,
        model: str | None = None,
        *,
        labels: Sequence[str] | None = None,
        separator: str | None = None,
        api_key: str | None = None,
        timeout_s: float = 120.0,
        patience: Patience | None = None,
    ) -> None:
        self._client = HttpClient(url, api_key, timeout_s)
        self._wanted = model or self._client.address.model
        self._labels = None if labels is None else dict(enumerate(labels))
        if self._labels is not None:
            columns_of(self._labels, url)
        self._separator = separator
        self._patience = patience or Patience()
        self._served = Lazy(self._look)

    def __repr__(self) -> str:
        return f"ClassifyEntailer({self._client.address.base!r}, model={self._wanted!r})"

    async def entail(
        self, pairs: Sequence[Pair], *, deadline: float | None = None, priority: int = 0
    ) -> Entailments:
        """Returns one row for each pair. Raises PromptTooLong where the server has no room for one: nothing is cut."""

        async def ask(distinct: Sequence[Pair]) -> Entailments:
            began = time.monotonic()
            served = await self._served.get(deadline)
            rows, tokens, requests = await self._classify(
                served, [as_texts(pair) for pair in distinct], deadline
            )
            usage = Usage(requests, len(distinct), tokens, 0, seconds=time.monotonic() - began)
            return Entailments(_probs(served, rows) @ served.columns, usage)

        return await entail_distinct(pairs, ask)

    async def info(self) -> EngineInfo:
        """Returns the description of the served model; the server is asked the first time."""
        served = await self._served.get()
        named = " ".join(f"{index}={name}" for index, name in sorted(served.names.items()))
        return EngineInfo(
            model=served.model,
            kind="vllm-classify",
            fingerprint=f"vllm-classify/{served.model}/{served.separator}/{named}",
            context=served.context,
            location=self._client.address.base,
        )

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._client.aclose()

    async def _look(self) -> _Served:
        model = await served_model(self._client, self._wanted)
        specials = await self._specials(model.id)
        separator = self._separator if self._separator is not None else _separator(specials, model.id)
        begun = _Served(model.id, separator, specials, np.zeros((0, 3)), names={}, context=model.context)
        rows, _, _ = await self._classify(begun, [as_texts(pair) for pair in _PLAIN], None)
        names = self._labels or _named(rows, model.id)
        if len(names) != len(rows[0].probs):
            raise InvalidInput(
                "labels", list(names.values()), f"{len(rows[0].probs)} names: one a class of {model.id}"
            )
        columns = columns_of(names, model.id)
        return replace(begun, columns=columns, names={} if self._labels else names)

    async def _specials(self, model: str) -> tuple[str, ...]:
        """Returns the special tokens that the tokenizer puts before and after a text."""
        body = {"model": model, "prompt": "a", "add_special_tokens": True, "return_token_strs": True}
        answer = await self._post("/tokenize", body, None)
        tokens = answer.get("token_strs")
        if not isinstance(tokens, list) or not tokens:
            return ()
        return tuple(dict.fromkeys(str(token) for token in (tokens[0], tokens[-1]) if str(token)[:1] in "<["))

    async def _classify(
        self, served: _Served, texts: Sequence[tuple[str, str]], deadline: float | None
    ) -> tuple[list[_Classified], int, int]:
        """Returns the classes of each pair, the tokens that the server read, and the number of requests."""
        joined = [_joined(served, both) for both in texts]
        parts = [joined[start : start + _ROWS] for start in range(0, len(joined), _ROWS)]
        answers = await in_parallel(
            [
                partial(self._post, "/classify", {"model": served.model, "input": part}, deadline)
                for part in parts
            ],
            _REQUESTS_AT_ONCE,
        )
        rows: list[_Classified] = []
        tokens = 0
        for part, answer in zip(parts, answers, strict=True):
            rows += _rows(answer, len(part), f"{self._client.address.root}/classify")
            tokens += usage_of(answer, len(part)).prompt_tokens
        for row in rows:
            known = served.names.get(row.best)
            if known is not None and row.label != known:
                self._served.forget()
                raise EngineProtocolError(
                    f"{self._client.address.root}/classify calls class {row.best} {row.label!r} now and called it "
                    f"{known!r} before: another model is served there"
                )
        return rows, tokens, len(parts)

    async def _post(self, path: str, body: Mapping[str, Any], deadline: float | None) -> Mapping[str, Any]:
        ask = partial(self._client.post, path, body, deadline=deadline, root=True)
        try:
            answer = await self._patience.persist(ask, deadline)
        except EngineRejected as error:
            # The server was started again, with another model.
            if error.status == 404:
                self._served.forget()
            raise
        if not isinstance(answer, Mapping):
            raise EngineProtocolError(f"{self._client.address.root}{path}: the answer is no JSON object")
        return answer


@dataclass(frozen=True, slots=True)
class _Classified:
    probs: list[float]
    label: str

    @property
    def best(self) -> int:
        return max(range(len(self.probs)), key=self.probs.__getitem__)


def _rows(answer: Mapping[str, Any], expected: int, url: str) -> list[_Classified]:
    data = answer.get("data")
    if not isinstance(data, list) or len(data) != expected:
        raise EngineProtocolError(f"{url}: {expected} rows were asked for and another number came")
    rows: dict[int, _Classified] = {}
    for item in data:
        index, probs = (item.get("index"), item.get("probs")) if isinstance(item, Mapping) else (None, None)
        if not isinstance(index, int) or not 0 <= index < expected or not isinstance(probs, list):
            raise EngineProtocolError(f"{url}: a row without its index or its `probs`")
        fine = all(isinstance(p, int | float) and 0 <= p <= 1 for p in probs)
        if not fine or abs(math.fsum(probs) - 1) > 0.01:
            raise EngineProtocolError(
                f"{url}: the classes of a row have {probs!r}, which is no distribution over classes; "
                "a classifier whose classes exclude each other is needed"
            )
        rows[index] = _Classified(probs, str(item.get("label")))
    if len(rows) < expected or len({len(row.probs) for row in rows.values()}) > 1:
        raise EngineProtocolError(f"{url}: a row is missing, or rows differ in their classes")
    return [rows[index] for index in range(expected)]


def _probs(served: _Served, rows: Sequence[_Classified]) -> NDArray[np.float64]:
    p = np.array([row.probs for row in rows])
    if p.shape[1] != len(served.columns):
        raise EngineProtocolError(
            f"{served.model} has {p.shape[1]} classes now and had {len(served.columns)}"
        )
    return np.asarray(p / p.sum(axis=-1, keepdims=True), dtype=np.float64)


def _named(rows: Sequence[_Classified], model: str) -> dict[int, str]:
    """Returns each class's name as the replies show it; a single class that is never shown gets the remaining name."""
    names = {row.best: row.label for row in rows}
    unseen = set(range(len(rows[0].probs))) - set(names)
    if len(unseen) == 1:
        said = " ".join(names.values()).casefold()
        missing = [word for word in RELATIONS[: len(rows[0].probs)] if word[:6] not in said]
        if len(missing) == 1:
            names[unseen.pop()] = missing[0]
    if unseen:
        seen = ", ".join(f"{index} = {name}" for index, name in sorted(names.items()))
        raise EngineRejected(
            f"{model} shows only some of its classes ({seen}): give all of them in the order of `id2label` in its "
            "config, as `labels=('contradiction', 'neutral', 'entailment')`"
        )
    return names


def _separator(specials: Sequence[str], model: str) -> str:
    """Returns the text that the tokenizer puts between two texts, which families of tokenizers have in common."""
    if specials[-1:] == ("</s>",) and specials[:1] == ("<s>",):
        return "</s></s>"
    if specials[-1:] in (("[SEP]",), ("<sep>",)):
        return specials[-1]
    raise EngineRejected(
        f"how the tokenizer of {model} puts two texts together cannot be seen from outside: say it, as "
        "`separator='</s></s>'`"
    )


def _joined(served: _Served, texts: tuple[str, str]) -> str:
    """Returns both texts as one. Special tokens inside a text are broken up, so that it cannot contain a separator."""
    parts = []
    for text in texts:
        for token in {*_SPECIAL, *served.specials, served.separator}:
            text = text.replace(token, f"{token[:1]} {token[1:]}")
        parts.append(text)
    return served.separator.join(parts)


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

"""Engines on a model in this process: convert prompts to token ids, and sampled ids to answers.

`LocalEngine` is an engine on a `LocalModel`, which knows token ids only: transformers, vLLM in this process and nano.
No local model knows prompts, labels, templates or thoughts.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ragguard.engines.base import Prompt, Sample
from ragguard.engines.engine import ModelEngine
from ragguard.engines.label_tokens import Asks, Logprobs
from ragguard.engines.local.worker import StillWanted, Worker
from ragguard.engines.requests.continuations import ContinuationRequest
from ragguard.engines.requests.draws import DrawRequest
from ragguard.engines.requests.request import Request
from ragguard.engines.token_model import ModelReport, NextTokens, ProfiledModel, Tokens, find_out
from ragguard.errors import InvalidInput, PromptTooLong
from ragguard.records import Usage

Rows: TypeAlias = Sequence[Sequence[int]]
"""Prompts as token ids."""


class LocalTokens(Tokens, Protocol):
    """The tokenizer and chat template of a model in this process."""

    async def rows(self, prompts: Sequence[Prompt]) -> list[list[int]]:
        """Returns the token ids of each prompt, without holding an event loop up."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of an answer, without special tokens."""
        ...


class Drawn(NamedTuple):
    """A sampled answer as token ids, with the end-of-answer token where that was sampled."""

    ids: list[int]
    logprobs: list[float]
    ended: bool


@dataclass(frozen=True, slots=True)
class Loaded:
    """A loaded model's tokenizer and its properties."""

    tokens: LocalTokens
    report: ModelReport


class LocalModel(Protocol):
    """A language model over token ids."""

    async def load(self) -> Loaded:
        """Reads the weights, the first time."""
        ...

    async def logprobs(self, rows: Rows, asks: Asks, request: Request[Any]) -> Logprobs:
        """Returns for each ask (rows, its tokens): the log-probabilities of its tokens after the row and `after`.

        Only the deadline and the priority of the request are used.
        """
        ...

    async def draw(self, rows: Rows, request: DrawRequest) -> list[list[Drawn]]:
        """Returns `n` answers to each row; with a seed, by the seed and the row alone."""
        ...

    async def text_logprobs(self, rows: Rows, texts: Rows, request: Request[Any]) -> list[list[float]]:
        """Returns the log-probabilities of the tokens of each row's text, which follows it."""
        ...

    async def aclose(self) -> None:
        """Gives the memory back."""
        ...


class ComputingModel(Protocol):
    """A language model over token ids that computes in the thread that calls it.

    It calls `still_wanted` between two batches; that function raises where no caller waits for the result any more.
    """

    def logprobs(self, rows: Rows, asks: Asks, still_wanted: StillWanted) -> Logprobs:
        """Computes what `LocalModel.logprobs` returns."""
        ...

    def draw(self, rows: Rows, request: DrawRequest, still_wanted: StillWanted) -> list[list[Drawn]]:
        """Computes what `LocalModel.draw` returns."""
        ...

    def text_logprobs(self, rows: Rows, texts: Rows, still_wanted: StillWanted) -> list[list[float]]:
        """Computes what `LocalModel.text_logprobs` returns."""
        ...


class ThreadModel:
    """A `LocalModel` that computes in one thread, where it is loaded at its first use."""

    def __init__(self, worker: Worker[tuple[Loaded, ComputingModel]]) -> None:
        self._worker = worker

    async def load(self) -> Loaded:
        return await self._worker.run(lambda model, still_wanted: model[0])

    async def logprobs(self, rows: Rows, asks: Asks, request: Request[Any]) -> Logprobs:
        """Has the log-probabilities computed in the thread."""
        return await self._worker.run(
            lambda model, still_wanted: model[1].logprobs(rows, asks, still_wanted), request.deadline
        )

    async def draw(self, rows: Rows, request: DrawRequest) -> list[list[Drawn]]:
        """Has the answers drawn in the thread."""
        return await self._worker.run(
            lambda model, still_wanted: model[1].draw(rows, request, still_wanted), request.deadline
        )

    async def text_logprobs(self, rows: Rows, texts: Rows, request: Request[Any]) -> list[list[float]]:
        """Has the log-probabilities computed in the thread."""
        return await self._worker.run(
            lambda model, still_wanted: model[1].text_logprobs(rows, texts, still_wanted), request.deadline
        )

    async def aclose(self) -> None:
        await self._worker.close()


class LocalEngine(ModelEngine):
    """An engine on a model in this process."""

    def __init__(self, model: LocalModel) -> None:
        super().__init__()
        self._model = model

    async def look(self) -> ProfiledModel:
        """Loads the model, and finds out what it is."""
        return await find_out(await self.open())

    async def open(self) -> LoadedModel:
        """Loads the model."""
        return LoadedModel(self._model, await self._model.load())

    async def aclose(self) -> None:
        """Gives the model's memory back."""
        await self._model.aclose()


class LoadedModel:
    """A local model with its tokenizer, as a `TokenModel`."""

    def __init__(self, model: LocalModel, loaded: Loaded) -> None:
        self.tokens = loaded.tokens
        self.loaded = loaded
        self._model = model

    async def report(self, question: Prompt, letters: Sequence[int]) -> ModelReport:
        return self.loaded.report

    async def first_words(self, prompt: Prompt) -> str:
        request = DrawRequest((prompt,), 1, 8, 0.0)
        ((one,),) = await self._model.draw(await self._rows(request, 8), request)
        return await self.tokens.text_of(one.ids)

    async def next_tokens(self, request: Request[Any], asks: Asks) -> NextTokens:
        """Computes the log-probabilities of each ask's tokens."""
        rows = await self._rows(request, 1 + max(len(ask.after) for ask in asks))
        return NextTokens(await self._model.logprobs(rows, asks, request), _usage(rows, len(rows)))

    async def draw(self, request: DrawRequest) -> tuple[list[list[Sample]], Usage]:
        """Draws the answers to each prompt, and makes text of them."""
        rows = await self._rows(request, request.max_tokens)
        drawn = await self._model.draw(rows, request)
        answers = await asyncio.to_thread(self._read, drawn)
        return answers, _usage(rows, sum(len(one.ids) for answers in drawn for one in answers))

    async def text_logprobs(
        self, request: ContinuationRequest, texts: Sequence[tuple[int, ...]]
    ) -> tuple[list[list[float]], Usage]:
        """Computes the log-probabilities of the tokens of each prompt's text."""
        rows = await self._rows(request, max(map(len, texts)))
        read = Usage(1, len(rows), sum(map(len, rows)) + sum(map(len, texts)))
        return await self._model.text_logprobs(rows, texts, request), read

    async def _rows(self, request: Request[Any], output: int) -> list[list[int]]:
        """Returns the ids of all prompts; PromptTooLong where one leaves less than `output` tokens free."""
        rows = await self.tokens.rows(request.prompts)
        limit = (self.loaded.report.info.context or sys.maxsize) - output
        for index, row in enumerate(rows):
            if not row:
                messages = request.prompts[index].messages
                raise InvalidInput(f"prompt {index}", messages, "text of which the model makes tokens")
            if len(row) > limit:
                raise PromptTooLong(f"prompt {index} has {len(row)} tokens, {limit} fit", limit=limit)
        return rows

    def _read(self, drawn: Sequence[Sequence[Drawn]]) -> list[list[Sample]]:
        """Converts answers to text. The end-of-answer token is not part of the text; its log-probability is removed
        as well, unless it is the only token."""
        return [
            [
                Sample(
                    self.tokens.decode(one.ids),
                    tuple(one.logprobs[:-1] if one.ended and len(one.ids) > 1 else one.logprobs),
                    one.ended,
                )
                for one in answers
            ]
            for answers in drawn
        ]


def uniform(row: Sequence[int], request: DrawRequest) -> NDArray[np.float64]:
    """Returns (n, max_tokens) uniform numbers to draw with; with a seed they depend on it and on the row alone."""
    source = np.random.default_rng(None if request.seed is None else [request.seed % 2**63, *row])
    return source.random((request.n, request.max_tokens))


def _usage(rows: Rows, written: int) -> Usage:
    return Usage(1, len(rows), sum(len(row) for row in rows), written)

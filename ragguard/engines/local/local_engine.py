"""Engines on a model in this process: convert prompts to token ids, compute in threads, and convert ids to answers.

`LocalEngine` is an engine on a `ComputingModel`, which knows token ids only: transformers, vLLM in this process, nano
and models from GGUF files. None of them knows prompts, labels, templates or thoughts.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ragguard.engines.base import EngineInfo, Prompt, Sample
from ragguard.engines.engine import ModelEngine
from ragguard.engines.labels import checked_logprob
from ragguard.engines.requests import DrawRequest, PromptRequest
from ragguard.engines.token_model import EXACT_CAPABILITIES, Ids, ProfiledModel, Tokens, find_out
from ragguard.errors import Closed, InvalidInput, PromptTooLong
from ragguard.records import Usage
from ragguard.runtime.deadline import until
from ragguard.runtime.per_process import PerProcess
from ragguard.runtime.threads import DaemonThreads

M = TypeVar("M")
T = TypeVar("T")

StillWanted: TypeAlias = Callable[[], None]
"""A function that a job calls between batches; it raises where the caller is gone or the deadline has passed."""

JOB_S = 1800.0
"""Seconds after which a job that does not end, with its wait and the model's loading, is waited for no longer."""


class Worker(Generic[M]):
    """The threads that compute with one model, where it is loaded at its first use. A forked child loads it anew.

    Args:
        what: The name of the model in errors.
        load: Returns the model; called in a thread, before the first job.
        threads: The threads. None: one of its own, since a model that computes in it takes one batch at a time.
    """

    def __init__(
        self, what: str, load: Callable[[], M], threads: PerProcess[DaemonThreads] | None = None
    ) -> None:
        self._what, self._model = what, PerProcess(load)
        self._threads = threads or PerProcess(lambda: DaemonThreads(1, "ragguard-model"))
        self._closed = False

    async def run(self, job: Callable[[M, StillWanted], T], deadline: float | None = None) -> T:
        """Returns what `job` returns, given the model; raises EngineTimeout at the deadline, or after `JOB_S`."""
        unwanted = threading.Event()

        def still_wanted() -> None:
            if self._closed:
                self._model.forget()  # it may have been loaded meanwhile
                raise Closed(f"{self._what} was closed: connect again")
            if unwanted.is_set():
                raise TimeoutError  # which nobody sees: the caller has gone

        def run() -> T:
            still_wanted()
            return job(self._model.get(), still_wanted)

        done = asyncio.wrap_future(self._threads.get().submit(run))
        try:
            async with until(time.monotonic() + JOB_S if deadline is None else deadline, self._what):
                return await done
        finally:
            unwanted.set()
            done.cancel()  # or asyncio would report the error of a job that nobody waits for

    def close(self) -> M | None:
        """Forgets the model and returns it, if it was loaded. Jobs under way raise Closed after their batch."""
        self._closed = True
        return self._model.forget()


Rows: TypeAlias = Sequence[Ids]
"""Prompts as token ids."""


class LocalTokens(Tokens, Protocol):
    """The tokenizer and chat template of a model in this process."""

    def rows(self, prompts: Sequence[Prompt]) -> list[list[int]]:
        """Returns the ids of each prompt, template and ending included. Called in the model's thread, since many long
        prompts would hold an event loop up."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of an answer, without special tokens."""
        ...


class Drawn(NamedTuple):
    """A sampled answer as token ids, with the end-of-answer token where that was sampled."""

    ids: list[int]
    logprobs: list[float]
    ended: bool


class ComputingModel(Protocol):
    """A language model over token ids that computes in the thread that calls it.

    It calls `still_wanted` between two batches; that function raises where no caller waits for the result any more.
    """

    def logprobs(
        self, rows: Rows, texts: Rows, then: Ids, request: PromptRequest, still_wanted: StillWanted
    ) -> list[list[float]]:
        """Returns for each row the log-probabilities of the tokens of its text, which follows it and may be empty, and
        behind them those of each token of `then` as the next one. Only the priority of the request is used."""
        ...

    def draw(self, rows: Rows, request: DrawRequest, still_wanted: StillWanted) -> list[list[Drawn]]:
        """Returns `n` answers to each row; with a seed, by the seed and the row alone."""
        ...


class Loaded(NamedTuple):
    """A loaded model with its tokenizer and its description, as `TokenModel.report` returns it."""

    model: ComputingModel
    tokens: LocalTokens
    info: EngineInfo
    end: Callable[[], object] = lambda: None
    """Ends the model, beside the jobs under way."""
    profiled: bool = False
    """True for a model whose description has its profile already."""

    def rows(self, prompts: Sequence[Prompt], output: int) -> list[list[int]]:
        """Returns the ids of all prompts; PromptTooLong where one leaves less than `output` tokens free."""
        distinct = list(dict.fromkeys(prompts))
        rows, limit = self.tokens.rows(distinct), (self.info.context or sys.maxsize) - output
        for index, row in enumerate(rows):
            if not row:
                messages = distinct[index].messages
                raise InvalidInput(f"prompt {index}", messages, "text of which the model makes tokens")
            if len(row) > limit:
                raise PromptTooLong(f"prompt {index} has {len(row)} tokens, {limit} fit", limit=limit)
        row_of = dict(zip(distinct, rows, strict=True))
        return [row_of[prompt] for prompt in prompts]


def described(name: str, kind: str, identity: str, context: int, where: str = "") -> EngineInfo:
    """Returns the description of a model in this process; `identity` differs for models that give different numbers."""
    location = f"in this process{where}"
    return EngineInfo(
        name, kind, identity, context=context, location=location, capabilities=EXACT_CAPABILITIES
    )


class LocalEngine(ModelEngine):
    """An engine on a model in this process."""

    def __init__(self, worker: Worker[Loaded]) -> None:
        super().__init__()
        self._worker = worker

    async def look(self) -> ProfiledModel:
        """Loads the model, and finds out what it is."""
        loaded = await self._worker.run(lambda loaded, still_wanted: loaded)
        model = LoadedModel(self._worker, loaded.tokens, loaded.info)
        return ProfiledModel(model, loaded.info) if loaded.profiled else await find_out(model)

    async def aclose(self) -> None:
        """Gives the model's memory back."""
        if loaded := self._worker.close():
            await asyncio.to_thread(loaded.end)


class LoadedModel:
    """A model in this process as a `TokenModel`."""

    def __init__(self, worker: Worker[Loaded], tokens: LocalTokens, info: EngineInfo) -> None:
        self._worker, self.tokens, self.info = worker, tokens, info

    async def report(self, question: Prompt, letters: Ids) -> EngineInfo:
        return self.info

    async def rows(self, prompts: Sequence[Prompt], deadline: float | None = None) -> list[list[int]]:
        return await self._worker.run(lambda loaded, still_wanted: loaded.tokens.rows(prompts), deadline)

    async def first_words(self, prompt: Prompt) -> str:
        _, ((drawn,),) = await self._drawn(DrawRequest((prompt,), 1, 8, 0.0))
        return await self.tokens.text_of(drawn.ids)

    async def logprobs(
        self, request: PromptRequest, texts: Sequence[Ids], then: Ids
    ) -> tuple[list[list[float]], Usage]:
        """Computes the log-probabilities of the tokens of each prompt's text, and of those that may follow it."""

        def compute(loaded: Loaded, still_wanted: StillWanted) -> tuple[Rows, list[list[float]]]:
            rows = loaded.rows(request.prompts, 1 + max(map(len, texts)))
            return rows, loaded.model.logprobs(rows, texts, then, request, still_wanted)

        rows, logprobs = await self._worker.run(compute, request.deadline)
        return logprobs, Usage(
            1, len(rows), sum(map(len, rows)) + sum(map(len, texts)), 0 if any(texts) else len(rows)
        )

    async def draw(self, request: DrawRequest) -> tuple[list[list[Sample]], Usage]:
        """Draws the answers to each prompt, and makes text of them."""
        rows, drawn = await self._drawn(request)
        samples = await asyncio.to_thread(lambda: [list(map(self._sample, answers)) for answers in drawn])
        written = sum(len(one.ids) for answers in drawn for one in answers)
        return samples, Usage(1, len(rows), sum(map(len, rows)), written)

    async def _drawn(self, request: DrawRequest) -> tuple[Rows, list[list[Drawn]]]:

        def compute(loaded: Loaded, still_wanted: StillWanted) -> tuple[Rows, list[list[Drawn]]]:
            rows = loaded.rows(request.prompts, request.max_tokens)
            return rows, loaded.model.draw(rows, request, still_wanted)

        return await self._worker.run(compute, request.deadline)

    def _sample(self, drawn: Drawn) -> Sample:
        """Converts an answer to text. The end-of-answer token is not part of the text; its log-probability is removed
        as well, unless it is the only token."""
        logprobs = drawn.logprobs[:-1] if drawn.ended and len(drawn.ids) > 1 else drawn.logprobs
        return Sample(self.tokens.decode(drawn.ids), tuple(map(checked_logprob, logprobs)), drawn.ended)


def uniform(row: Sequence[int], request: DrawRequest) -> NDArray[np.float64]:
    """Returns (n, max_tokens) uniform numbers to draw with; with a seed they depend on it and on the row alone."""
    source = np.random.default_rng(None if request.seed is None else [request.seed % 2**63, *row])
    return source.random((request.n, request.max_tokens))

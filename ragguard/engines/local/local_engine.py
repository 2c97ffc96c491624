"""Engines on a model in this process: convert prompts to token ids, compute in a thread, and convert ids to answers.

`LocalEngine` is an engine on a `LocalModel`, which knows token ids only: transformers, vLLM in this process and nano.
No local model knows prompts, labels, templates or thoughts. A model takes one batch at a time, so more threads would
only wait for each other.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ragguard.engines.base import Prompt, Sample
from ragguard.engines.engine import ModelEngine
from ragguard.engines.labels import Asks, Logprobs
from ragguard.engines.requests import ContinuationRequest, DrawRequest, Request
from ragguard.engines.token_model import ModelReport, NextTokens, ProfiledModel, Tokens, find_out
from ragguard.errors import Closed, EngineUnreachable, InvalidInput, PromptTooLong
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


class _UnwantedError(Exception):
    """Ends a job whose result nobody waits for."""


class _Thread(Generic[M]):
    """The thread in which a process computes, and the model once it is loaded there."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.loaded: list[M] = []


class Worker(Generic[M]):
    """The thread of one model, or of several models that share a thread. A forked child loads the model anew.

    Args:
        what: The name of the model in errors.
        load: Returns the model; called in the thread, before the first job.
        shared: The thread that several models share. None: a thread of its own.
    """

    def __init__(
        self, what: str, load: Callable[[], M], shared: PerProcess[DaemonThreads] | None = None
    ) -> None:
        self._what, self._load, self._shared = what, load, shared
        self._thread = PerProcess[_Thread[M]](
            lambda: _Thread(
                ThreadPoolExecutor(1, thread_name_prefix="ragguard-model") if shared is None else shared.get()
            )
        )
        self._closed = False

    async def run(self, job: Callable[[M, StillWanted], T], deadline: float | None = None) -> T:
        """Returns what `job` returns, given the model; raises EngineTimeout at the deadline, or after `JOB_S`."""
        if self._closed:
            raise Closed(f"{self._what} was closed: connect again")
        thread, unwanted = self._thread.get(), threading.Event()

        def still_wanted() -> None:
            if unwanted.is_set():
                raise _UnwantedError

        def run() -> T:
            still_wanted()
            if not thread.loaded:
                thread.loaded.append(self._load())
            return job(thread.loaded[0], still_wanted)

        try:
            future = thread.executor.submit(run)
        except RuntimeError as error:  # main() has returned, while other threads still serve
            raise EngineUnreachable(f"{self._what} cannot compute any more: the process is ending") from error
        done = asyncio.wrap_future(future)
        try:
            async with until(time.monotonic() + JOB_S if deadline is None else deadline, self._what):
                return await done
        finally:
            unwanted.set()
            done.cancel()  # or asyncio would report the error of a job that nobody waits for

    async def close(self) -> None:
        """Gives the model's memory back after the jobs under way, and ends the thread unless it is shared."""
        thread, self._closed = self._thread.made, True
        if thread is None:
            return
        if self._shared is not None:
            thread.loaded.clear()
            return
        with suppress(
            RuntimeError
        ):  # closed before, or the process is ending and the model's memory goes with it
            await asyncio.wrap_future(thread.executor.submit(thread.loaded.clear))
        thread.executor.shutdown(wait=False)


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

    async def logprobs(self, rows: Rows, asks: Asks, request: Request) -> Logprobs:
        """Returns for each ask (rows, its tokens): the log-probabilities of its tokens after the row and `after`.

        Only the deadline and the priority of the request are used.
        """
        ...

    async def draw(self, rows: Rows, request: DrawRequest) -> list[list[Drawn]]:
        """Returns `n` answers to each row; with a seed, by the seed and the row alone."""
        ...

    async def text_logprobs(self, rows: Rows, texts: Rows, request: Request) -> list[list[float]]:
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

    async def logprobs(self, rows: Rows, asks: Asks, request: Request) -> Logprobs:
        """Has the log-probabilities computed in the thread."""
        return await self._worker.run(
            lambda model, still_wanted: model[1].logprobs(rows, asks, still_wanted), request.deadline
        )

    async def draw(self, rows: Rows, request: DrawRequest) -> list[list[Drawn]]:
        """Has the answers drawn in the thread."""
        return await self._worker.run(
            lambda model, still_wanted: model[1].draw(rows, request, still_wanted), request.deadline
        )

    async def text_logprobs(self, rows: Rows, texts: Rows, request: Request) -> list[list[float]]:
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

    async def next_tokens(self, request: Request, asks: Asks) -> NextTokens:
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

    async def _rows(self, request: Request, output: int) -> list[list[int]]:
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

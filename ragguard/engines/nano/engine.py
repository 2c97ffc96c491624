"""`NanoEngine`:

nano behind the two verbs. Computes in a worker thread, so that an event loop never waits for it.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ragguard.engines.base import EngineInfo, LabelProbs, Prompt, Sample, Samples
from ragguard.engines.labels import colliding
from ragguard.engines.local.draws import draws
from ragguard.engines.nano.model import Model, load_model
from ragguard.engines.nano.tokenizer import Tokenizer, load_tokenizer
from ragguard.engines.requests.draws import DrawRequest
from ragguard.engines.requests.labels import LabelRequest
from ragguard.engines.requests.verbs import ModelEngine
from ragguard.engines.truncation import fit
from ragguard.errors import Closed
from ragguard.records import Usage
from ragguard.runtime.deadline import remaining, until
from ragguard.runtime.fork import at_fork
from ragguard.secrets import logger

log = logger(__name__)
_SHORT = 20_000
"""Characters that become ids in a few milliseconds."""
_T = TypeVar("_T")

_STRANGE = (
    "nano met words it does not know (%d in one prompt). It is a tiny model of ragguard's own made-up world and "
    "understands nothing else: for real text point ragguard at a real model, such as "
    'RagGuard(engine="http://localhost:8000/v1").'
)


class NanoEngine(ModelEngine):
    """The language model that ships with ragguard: exact probabilities, on NumPy alone, for `ragguard.world` only."""

    _warned = False
    _busy = threading.Lock()
    """One computation at a time: NumPy already uses all cores, and two would only evict each other's cache."""

    def __init__(self) -> None:
        self._closed = False

    async def info(self) -> EngineInfo:
        return EngineInfo(
            model="ragguard/nano",
            kind="nano",
            fingerprint=f"nano:{await asyncio.to_thread(_weights_digest)}",
            prompts="nano",
            context=(await asyncio.to_thread(load_model)).config.max_position_embeddings,
            capabilities=frozenset(
                {"exact_labels", "sequence", "sample_logprobs", "batch", "n_samples", "seed"}
            ),
            location="in this process",
            notes=("understands ragguard.world only; real text wants a real model",),
        )

    async def aclose(self) -> None:
        """The weights are shared by all nano engines of the process and stay."""
        self._closed = True

    async def draws(self, request: DrawRequest) -> Samples:
        """Draws answers to each prompt; with a seed, the same for the same prompt whatever else is asked."""
        started = time.perf_counter()
        model, tokenizer, ids, cut = await self._prepare(request.prompts, request.max_tokens)
        chances = [draws(row, request.n, request.max_tokens, request.seed) for row in ids]
        drawn = await self._compute(
            lambda: model.sample(ids, chances, request.temperature, tokenizer.end), request.deadline
        )
        answers = [[_sample(tokenizer, *one) for one in samples] for samples in drawn]
        output = sum(len(one[0]) for samples in drawn for one in samples)
        return Samples(answers, _usage(ids, output, started), cut)

    async def labels(self, request: LabelRequest) -> LabelProbs:
        """Gives the probability of each label's first token, or of the whole label, as what follows each prompt.

        Labels that begin with the same word are told apart by the whole of them, unless told otherwise.
        """
        started = time.perf_counter()
        tokenizer = load_tokenizer()
        targets = [tokenizer.encode(label) or [tokenizer.unknown] for label in request.labels]
        mode = request.mode or ("sequence" if colliding(targets) else "first_token")
        longest = max(len(target) for target in targets) if mode == "sequence" else 1
        model, tokenizer, ids, cut = await self._prepare(request.prompts, longest)
        if mode == "first_token":
            logprobs = await self._compute(lambda: model.next_logprobs(ids), request.deadline)
            p = np.exp(logprobs[:, [target[0] for target in targets]].astype(np.float64))
        else:
            p = await self._compute(lambda: _sequence(model, ids, targets), request.deadline)
        return LabelProbs(np.minimum(p, 1.0), mode=mode, usage=_usage(ids, len(ids), started), truncated=cut)

    async def count_tokens(self, prompts: Sequence[Prompt], deadline: float | None = None) -> list[int]:
        """Returns the tokens of each prompt, its chat template included."""
        return [len(row) for row in await _encoded(load_tokenizer(), prompts)]

    async def _prepare(
        self, asked: Sequence[Prompt], room: int
    ) -> tuple[Model, Tokenizer, list[list[int]], dict[int, int]]:
        """The ids of all prompts, each short enough to leave `room` tokens for what follows."""
        if self._closed:
            raise Closed("this NanoEngine was closed: make another with connect('nano')")
        tokenizer = load_tokenizer()
        model = load_model()

        cut: dict[int, int] = {}
        ids = await _encoded(tokenizer, asked)
        limit = model.config.max_position_embeddings - room
        if any(len(row) > limit for row in ids):

            async def count(some: Sequence[Prompt]) -> list[int]:
                return [len(row) for row in await _encoded(tokenizer, some)]

            asked, cut = await fit(asked, count, limit)
            ids = await _encoded(tokenizer, asked)
        self._warn(tokenizer, asked, ids)
        return model, tokenizer, ids, cut

    def _warn(self, tokenizer: Tokenizer, prompts: Sequence[Prompt], ids: Sequence[Sequence[int]]) -> None:
        if NanoEngine._warned:
            return
        for prompt, row in zip(prompts, ids, strict=True):
            if tokenizer.unknown in row:
                NanoEngine._warned = True
                words = {
                    word for message in prompt.messages for word in tokenizer.unknown_words(message.content)
                }
                log.warning(_STRANGE, len(words))  # not the words: a log is no place for what a user asked
                return

    async def _compute(self, work: Callable[[], _T], deadline: float | None) -> _T:
        def run() -> _T:
            with self._busy:
                remaining(deadline, "nano's computation")
                return work()

        async with until(deadline, "nano's computation"):
            return await asyncio.to_thread(run)


def _free_in_child() -> None:
    """A fork may happen while a thread computes; in the child that thread is not there to let go."""
    NanoEngine._busy = threading.Lock()


at_fork(in_child=_free_in_child)


async def _encoded(tokenizer: Tokenizer, prompts: Sequence[Prompt]) -> list[list[int]]:
    """The ids of each prompt; in a thread where they are long enough to hold an event loop up."""

    def encode() -> list[list[int]]:
        return [tokenizer.encode_chat(prompt.messages) for prompt in prompts]

    length = sum(len(message.content) for prompt in prompts for message in prompt.messages)
    return encode() if length < _SHORT else await asyncio.to_thread(encode)


def _sequence(model: Model, ids: list[list[int]], targets: list[list[int]]) -> NDArray[np.float64]:
    """The probability of each whole label, token by token, without the end."""
    logs = np.zeros((len(ids), len(targets)))
    starts = sorted({tuple(target[:k]) for target in targets for k in range(len(target))})
    rows = [[*row, *start] for row in ids for start in starts]
    logprobs = model.next_logprobs(rows).reshape(len(ids), len(starts), -1)
    for column, target in enumerate(targets):
        for k, token in enumerate(target):
            logs[:, column] += logprobs[:, starts.index(tuple(target[:k])), token]
    return np.exp(logs)


def _sample(tokenizer: Tokenizer, ids: list[int], logprobs: list[float]) -> Sample:
    finished = ids[-1] == tokenizer.end
    if finished and len(ids) > 1:
        ids, logprobs = ids[:-1], logprobs[:-1]
    return Sample(tokenizer.decode(ids), tuple(logprobs), finished)


def _usage(ids: Sequence[Sequence[int]], output: int, started: float) -> Usage:
    tokens = sum(len(row) for row in ids)
    return Usage(1, len(ids), tokens, output, seconds=time.perf_counter() - started)


@cache
def _weights_digest() -> str:
    return hashlib.sha256((files(__package__) / "weights.npz").read_bytes()).hexdigest()[:12]

"""Requests: each is a call to an engine as one value, which layers send on, merge with others, split and cache.

`DrawRequest` asks for sampled answers, `ContinuationRequest` for the probabilities of given texts; the one for labels
is in `labels.py`, the one for the relations of two answers in `entailment.py`. A reply is one plain value for each
prompt or pair. Layers put values together; only the verbs of an engine make of them what a caller gets. Another kind of
request needs a verb, and a branch where models answer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Protocol, Self, TypeAlias

from ragguard.engines.base import Engine, EngineInfo, Prompt, Sample, Samples
from ragguard.errors import EngineProtocolError, EngineRejected
from ragguard.records import Usage

Value: TypeAlias = tuple[Any, ...]
"""The answer to one prompt: a tuple of plain values, which JSON can hold and the garbage collector does not look at.
The first one is numbers, or samples, the last one the number of tokens that were cut from the prompt."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The answers to a request."""

    values: Sequence[Value]
    """The answer to each prompt, in the order of the prompts."""
    usage: Usage = field(default_factory=Usage)

    @property
    def cuts(self) -> dict[int, int]:
        """The tokens that were cut from prompts, by the index of the prompt."""
        return {index: value[-1] for index, value in enumerate(self.values) if value[-1]}


class Item(Hashable, Protocol):
    """The object of a question: a prompt, or a pair of answers."""

    @property
    def size(self) -> int:
        """The bytes of its text."""
        ...

    def digest(self, stem: str) -> bytes:
        """Returns the digest of everything that its answer depends on, of which `stem` is all but the item."""
        ...


@dataclass(frozen=True, slots=True)
class Request(ABC):
    """A question about one prompt or more. A request never changes: a layer that asks for less makes a new one."""

    prompts: tuple[Item, ...]
    deadline: float | None = field(default=None, kw_only=True)
    """The instant of `time.monotonic()` past which nobody waits for the reply."""
    priority: int = field(default=0, kw_only=True)
    """The urgency: the lowest number goes first."""

    def written(self, info: EngineInfo) -> int:
        """Returns how many tokens the model writes at most for one prompt: by default one, which nobody reads."""
        return 1

    def takes_many(self, info: EngineInfo) -> bool:
        """Returns whether the engine takes several of the prompts in one request."""
        return bool(info.capabilities & {"batch", "decisions"})

    @property
    def repeatable(self) -> bool:
        """True where the same request has the same reply, so that the reply may be kept."""
        return True

    @property
    def columns(self) -> frozenset[str]:
        """The labels that each prompt is answered for; none where answers are sampled."""
        return frozenset()

    @abstractmethod
    async def ask(self, engine: Engine) -> Reply:
        """Puts the request to an engine from elsewhere by its verb, and checks the shape of the answer."""

    @abstractmethod
    def stem(self, info: EngineInfo) -> str:
        """Returns everything that a prompt's answer depends on, but the prompt."""

    def with_prompts(self, prompts: Sequence[Item]) -> Self:
        """Returns the same request about other prompts."""
        return replace(self, prompts=tuple(prompts))

    def group(self, info: EngineInfo) -> Hashable:
        """Returns a key that is equal for requests that may go out as one; they may differ in prompts and deadline, and
        in their labels where that changes no number of this engine."""
        return replace(self, prompts=(), deadline=None)

    def merged(self, others: Sequence[Request]) -> Self:
        """Returns one request about the prompts of this request and of others of its group, in this order."""
        requests: list[Request] = [self, *others]
        prompts = tuple(prompt for request in requests for prompt in request.prompts)
        deadlines = [request.deadline for request in requests if request.deadline is not None]
        return replace(
            self, prompts=prompts, deadline=max(deadlines) if len(deadlines) == len(requests) else None
        )

    def shares(self, reply: Reply, requests: Sequence[Request]) -> list[Reply]:
        """Returns the parts of the reply to this request that answer the requests of which it was made."""
        replies, values, sizes = [], iter(reply.values), [len(request.prompts) for request in requests]
        for request, size, usage in zip(requests, sizes, apportion(reply.usage, sizes), strict=True):
            own = list(islice(values, size))
            replies.append(Reply(request.own_values(own, self), replace(usage, prompts=size)))
        return replies

    def own_values(self, values: Sequence[Value], whole: Request) -> Sequence[Value]:
        """Returns the part of each value of the reply to `whole` that this request asks for."""
        return values

    def keys(self, info: EngineInfo) -> list[bytes]:
        """Returns the key of each prompt, under which its value is kept."""
        stem = self.stem(info)
        return [prompt.digest(stem) for prompt in self.prompts]


def apportion(usage: Usage, weights: Sequence[int]) -> list[Usage]:
    """Returns shares of one call's usage, by the weights of its questions, that add up to it exactly; the request
    counts in the first share, prompts in equal shares."""
    weights = [max(1, weight) for weight in weights]
    total, number = sum(weights), len(weights)
    shares, before = [], 0
    for index, weight in enumerate(weights):
        upto = before + weight
        shares.append(
            Usage(
                requests=0 if index else usage.requests,
                prompts=usage.prompts * (index + 1) // number - usage.prompts * index // number,
                prompt_tokens=usage.prompt_tokens * upto // total - usage.prompt_tokens * before // total,
                output_tokens=usage.output_tokens * upto // total - usage.output_tokens * before // total,
                seconds=usage.seconds * weight / total,
                cached=usage.cached * (index + 1) // number - usage.cached * index // number,
            )
        )
        before = upto
    return shares


@dataclass(frozen=True, slots=True)
class PromptRequest(Request):
    """A request about prompts, which language models answer."""

    prompts: tuple[Prompt, ...]

    def is_typed(self, info: EngineInfo) -> bool:
        """Returns whether the engine answers the prompts as typed questions: those about one state in one request."""
        return False


@dataclass(frozen=True, slots=True)
class DrawRequest(PromptRequest):
    """A request for `n` sampled answers to each prompt. Its values are `(samples, tokens cut)`."""

    n: int
    max_tokens: int
    temperature: float
    seed: int | None = None

    def written(self, info: EngineInfo) -> int:
        return self.n * (self.max_tokens + info.thinking_tokens)

    @property
    def repeatable(self) -> bool:
        return self.seed is not None

    async def ask(self, engine: Engine) -> Reply:
        answers = await engine.sample(
            self.prompts, self.n, self.max_tokens, self.temperature, self.seed,
            deadline=self.deadline, priority=self.priority,
        )  # fmt: skip
        if len(answers) != len(self.prompts) or any(len(row) != self.n for row in answers):
            raise EngineProtocolError(
                f"{self.n} answers to each of {len(self.prompts)} prompts were asked; "
                f"the engine gave lists of {sorted({len(row) for row in answers})} answers to {len(answers)}"
            )
        cuts = answers.truncated
        rows = [(samples_value(row), cuts.get(index, 0)) for index, row in enumerate(answers)]
        return Reply(rows, answers.usage)

    def stem(self, info: EngineInfo) -> str:
        return f"{info.fingerprint} sample {self.n} {self.max_tokens} {self.temperature!r} {self.seed}"

    def answer(self, reply: Reply) -> Samples:
        """Returns the answers as the verb gives them."""
        rows = [[Sample(*sample) for sample in samples] for samples, _ in reply.values]
        return Samples(rows, reply.usage, reply.cuts)


def samples_value(samples: Sequence[Sample]) -> tuple[Any, ...]:
    """Returns sampled answers as they stand in a value."""
    return tuple((sample.text, sample.logprobs, sample.finished) for sample in samples)


@dataclass(frozen=True, slots=True)
class ContinuationRequest(PromptRequest):
    """A request for the log-probabilities of the text behind each prompt. Its values are `(log-probabilities, that of
    the answer's end behind it or None, tokens cut)`."""

    async def ask(self, engine: Engine) -> Reply:
        """Asks an engine from elsewhere, which has the verb if it has an attribute of its name."""
        verb = getattr(engine, "continuations", None)
        if verb is None:
            raise EngineRejected(
                f"{type(engine).__name__} has no method `continuations`, so it cannot give the probability of a "
                f"text: use smol, hf:MODEL, or a vLLM server, or llama.cpp's"
            )
        prompts = [prompt.without_cuts() for prompt in self.prompts]
        rows = await verb(prompts, [[prompt.text] for prompt in self.prompts])
        cuts = getattr(rows, "truncated", {})
        values = [
            (tuple(one.logprobs), getattr(one, "end", None), cuts.get(index, 0))
            for index, (one,) in enumerate(rows)
        ]
        return Reply(values, getattr(rows, "usage", Usage()))

    def stem(self, info: EngineInfo) -> str:
        return f"{info.fingerprint} continuation to its end"

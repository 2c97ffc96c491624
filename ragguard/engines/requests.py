"""Requests: each is one call to an engine as one value, which the layers send on, join with others, split, and keep.

`DrawRequest` asks for sampled answers, `ContinuationRequest` for the probabilities of given texts; the one for labels
is in `labels.py`. Another kind needs its keys, a verb, and a method of `FoundModel` in `engine.py`; no layer changes.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, Self, TypeAlias, TypeVar, cast

from ragguard.engines.base import Continuation, Continuations, Engine, EngineInfo, Prompt, Sample, Samples
from ragguard.errors import EngineProtocolError, EngineRejected
from ragguard.records import Usage

R = TypeVar("R", bound="Reply")

Value: TypeAlias = tuple[Any, ...]
"""The answer to one prompt as it is kept in memory: a tuple of plain values, since the garbage collector does not look
at those. The last one is the number of tokens that were cut from the prompt."""


class Reply(Protocol):
    """The part that the replies to all kinds of requests have in common."""

    @property
    def usage(self) -> Usage:
        """The cost of the answer."""
        ...

    @property
    def truncated(self) -> dict[int, int]:
        """The tokens that were cut from prompts, by the index of the prompt."""
        ...

    def __len__(self) -> int: ...


class Request(ABC, Generic[R]):
    """A question about several prompts. A request never changes: a layer that asks for less makes a new one."""

    __slots__ = ()

    prompts: tuple[Prompt, ...]
    """The prompts that are asked about."""
    deadline: float | None
    """The instant of `time.monotonic()` past which nobody waits for the reply."""
    priority: int
    """The urgency: the lowest number goes first."""

    @property
    @abstractmethod
    def output_tokens(self) -> int:
        """The most tokens that the model writes for one prompt."""

    @property
    @abstractmethod
    def repeatable(self) -> bool:
        """True where the same request has the same reply, so that the reply may be kept."""

    @property
    def columns(self) -> frozenset[str]:
        """The labels that each prompt is answered for; none where answers are sampled."""
        return frozenset()

    @abstractmethod
    async def ask(self, engine: Engine) -> R:
        """Puts the request to an engine by its verb, and checks the shape of the reply."""

    @abstractmethod
    def stem(self, info: EngineInfo) -> str:
        """Returns everything that a prompt's answer depends on, but the prompt."""

    @abstractmethod
    def values(self, reply: R) -> list[Value]:
        """Returns the value of each prompt in a reply."""

    @abstractmethod
    def reply(self, values: Sequence[Value], usage: Usage) -> R:
        """Returns the reply that holds these values, one for each prompt."""

    @abstractmethod
    def weight(self, value: Value) -> int:
        """Returns the memory that a value takes, as the number of label probabilities that take as much."""

    def encoded(self, value: Value) -> Any:
        """Returns a value in the form in which it is kept as JSON."""
        return value

    @abstractmethod
    def decoded(self, data: Any) -> Value:
        """Returns a value that was kept as JSON; raises ValueError or TypeError for anything else."""

    def about(self, prompts: Sequence[Prompt]) -> Self:
        """Returns the same request about other prompts."""
        return cast(Self, replace(cast(Any, self), prompts=tuple(prompts)))

    def halves(self) -> tuple[Self, Self] | None:
        """Returns two requests that together ask for the same; None for what cannot be asked for in less."""
        middle = len(self.prompts) // 2
        return (self.about(self.prompts[:middle]), self.about(self.prompts[middle:])) if middle else None

    def rejoined(self, replies: Sequence[R]) -> R:
        """Returns one reply from the replies about consecutive parts of the prompts."""
        values = [value for reply in replies for value in self.values(reply)]
        return self.reply(values, sum((one.usage for one in replies), Usage()))

    def empty(self) -> R:
        """Returns the reply to a request about no prompts."""
        return self.reply((), Usage())

    def group(self, info: EngineInfo | None) -> Hashable:
        """Returns a key that is equal for requests that may go out as one; they may differ in prompts and deadline, and
        in their labels where that changes no number of this engine."""
        return cast(Hashable, replace(cast(Any, self), prompts=(), deadline=None))

    def joined(self, others: Sequence[Request[R]]) -> Self:
        """Returns one request about the prompts of this request and of others of its group."""
        requests: list[Request[R]] = [self, *others]
        prompts = tuple(prompt for request in requests for prompt in request.prompts)
        known = [request.deadline for request in requests if request.deadline is not None]
        deadline = max(known) if len(known) == len(requests) else None
        return cast(Self, replace(cast(Any, self), prompts=prompts, deadline=deadline))

    def shares(self, reply: R, requests: Sequence[Request[R]]) -> list[R]:
        """Returns the parts of the reply to this request that answer the requests of which it was made."""
        values, first, found = self.values(reply), 0, []
        for request in requests:
            last = first + len(request.prompts)
            usage = usage_share(reply.usage, first, last, len(self.prompts))
            found.append(request.reply(request.taken(values[first:last], self), usage))
            first = last
        return found

    def taken(self, values: Sequence[Value], whole: Request[R]) -> Sequence[Value]:
        """Returns the part of each value of the reply to `whole` that this request asks for."""
        return values

    def keys(self, info: EngineInfo) -> list[bytes]:
        """Returns the key of each prompt, under which its value is kept."""
        stem = self.stem(info)
        return [_digest(stem, prompt) for prompt in self.prompts]


def usage_share(usage: Usage, first: int, last: int, of: int) -> Usage:
    """Returns the share of prompts `first` to `last` in what `of` prompts cost. All shares add up to the whole."""

    def part(total: int) -> int:
        return total * last // of - total * first // of

    return Usage(
        requests=part(usage.requests),
        prompts=last - first,
        prompt_tokens=part(usage.prompt_tokens),
        output_tokens=part(usage.output_tokens),
        seconds=usage.seconds * (last - first) / of,
        cached=part(usage.cached),
    )


def cuts_of(values: Sequence[Value]) -> dict[int, int]:
    """Returns the tokens that were cut from prompts, which are the last of each value, by the index of the prompt."""
    return {index: value[-1] for index, value in enumerate(values) if value[-1]}


def _digest(stem: str, prompt: Prompt) -> bytes:
    """Returns the digest of everything that a prompt's answer depends on, the spans that may be cut included."""
    digest = hashlib.sha256(stem.encode())
    for message in prompt.messages:
        content = message.content.encode("utf-8", "surrogatepass")
        digest.update(f"\0{message.role} {len(content)} ".encode())
        digest.update(content)
    digest.update(repr([tuple(span) for span in prompt.cuttable]).encode())
    if prompt.options:
        digest.update(b"\0of " + repr(prompt.options).encode("utf-8", "surrogatepass"))
    if prompt.text:
        digest.update(b"\0then " + prompt.text.encode("utf-8", "surrogatepass"))
    return digest.digest()


@dataclass(frozen=True, slots=True)
class DrawRequest(Request[Samples]):
    """A request for `n` sampled answers to each prompt."""

    prompts: tuple[Prompt, ...]
    n: int
    max_tokens: int
    temperature: float
    seed: int | None = None
    deadline: float | None = None
    priority: int = 0

    @property
    def output_tokens(self) -> int:
        return self.n * self.max_tokens

    @property
    def repeatable(self) -> bool:
        """True where the same request has the same reply: with a seed."""
        return self.seed is not None

    async def ask(self, engine: Engine) -> Samples:
        reply = await engine.sample(
            self.prompts, self.n, self.max_tokens, self.temperature, self.seed,
            deadline=self.deadline, priority=self.priority,
        )  # fmt: skip
        if len(reply) != len(self.prompts):
            raise EngineProtocolError(
                f"{len(self.prompts)} prompts were asked; the engine answered {len(reply)}"
            )
        return reply

    def halves(self) -> tuple[DrawRequest, DrawRequest] | None:
        """Returns two requests for half of the prompts each; for one prompt, two for half of its answers each, with
        the seeds that a server gives to its own choices."""
        if len(self.prompts) > 1:
            return Request.halves(self)
        if self.n == 1 or self.temperature == 0:
            return None
        first, seed = self.n // 2, self.seed
        rest = replace(self, n=self.n - first, seed=None if seed is None else seed + first)
        return replace(self, n=first), rest

    def rejoined(self, replies: Sequence[Samples]) -> Samples:
        """Returns one reply from the replies to the halves."""
        whole = Request.rejoined(self, replies)
        if len(self.prompts) > 1:
            return whole
        rows = [values for reply in replies for values in self.values(reply)]
        joined = tuple(sample for samples, _ in rows for sample in samples), max(cut for _, cut in rows)
        return self.reply([joined], replace(whole.usage, prompts=1))

    def stem(self, info: EngineInfo) -> str:
        return f"{info.fingerprint} sample {self.n} {self.max_tokens} {self.temperature!r} {self.seed}"

    def values(self, reply: Samples) -> list[Value]:
        """Returns `(samples, tokens cut)` for each prompt."""
        return [(tuple(row), reply.truncated.get(index, 0)) for index, row in enumerate(reply.answers)]

    def reply(self, values: Sequence[Value], usage: Usage) -> Samples:
        return Samples([list(samples) for samples, _ in values], usage, cuts_of(values))

    def weight(self, value: Value) -> int:
        samples, _ = value
        return 1 + sum(len(sample.logprobs) for sample in samples) // 8

    def encoded(self, value: Value) -> Any:
        samples, cut = value
        return [(sample.text, sample.logprobs, sample.finished) for sample in samples], cut

    def decoded(self, data: Any) -> Value:
        rows, cut = data
        return tuple(Sample(text, tuple(logprobs), finished) for text, logprobs, finished in rows), cut


@dataclass(frozen=True, slots=True)
class ContinuationRequest(Request[Continuations]):
    """A request for the log-probabilities of the text behind each prompt."""

    prompts: tuple[Prompt, ...]
    deadline: float | None = None
    priority: int = 0

    @property
    def output_tokens(self) -> int:
        """The most tokens that the model writes for one prompt: a server writes one that nobody needs."""
        return 1

    @property
    def repeatable(self) -> bool:
        """True: equal prompts with equal texts have equal probabilities."""
        return True

    async def ask(self, engine: Engine) -> Continuations:
        """Asks an engine from elsewhere, which has the verb if it has an attribute of its name."""
        verb = getattr(engine, "continuations", None)
        if verb is None:
            raise EngineRejected(
                f"{type(engine).__name__} has no method `continuations`, so it cannot tell how probable a given text "
                "is: use smol, hf:MODEL, or a vLLM server"
            )
        reply = await verb(
            [prompt.without_cuts() for prompt in self.prompts], [[p.text] for p in self.prompts]
        )
        return Continuations([list(row) for row in reply], getattr(reply, "usage", Usage()))

    def stem(self, info: EngineInfo) -> str:
        return f"{info.fingerprint} continuation"

    def values(self, reply: Continuations) -> list[Value]:
        """Returns `(the text's log-probabilities, tokens cut)` for each prompt."""
        return [(one.logprobs, reply.truncated.get(index, 0)) for index, (one,) in enumerate(reply.rows)]

    def reply(self, values: Sequence[Value], usage: Usage) -> Continuations:
        rows = [
            [Continuation(prompt.text, logprobs)]
            for prompt, (logprobs, _) in zip(self.prompts, values, strict=False)
        ]
        return Continuations(rows, usage, cuts_of(values))

    def weight(self, value: Value) -> int:
        return 1 + len(value[0]) // 8

    def decoded(self, data: Any) -> Value:
        logprobs, cut = data
        return tuple(float(one) for one in logprobs), cut

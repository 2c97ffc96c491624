"""A request: one call to an engine as one value that the layers pass on, and what each kind of request can do."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from ragguard.engines.account import Cost
from ragguard.engines.base import Engine, EngineInfo, Prompt
from ragguard.records import Usage

R = TypeVar("R", bound="Reply")

Value: TypeAlias = tuple[Any, ...]
"""A part of a reply as it is kept in memory: a tuple, of plain values where there are many, since the garbage collector
does not look at those."""


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
    def about(self, prompts: Sequence[Prompt]) -> Request[R]:
        """Returns the same request about other prompts."""

    @abstractmethod
    def empty(self) -> R:
        """Returns the reply to a request about no prompts."""

    @abstractmethod
    def gathered(self, replies: Sequence[R], seconds: float) -> R:
        """Returns one reply from the replies about consecutive parts of the prompts."""

    @abstractmethod
    def group(self, info: EngineInfo | None) -> Hashable:
        """Returns a key that is equal for requests that may go out as one. Labels may differ only where the engine's
        `info` shows that this changes no number; without it they may not."""

    @abstractmethod
    def joined(self, others: Sequence[Request[R]]) -> Request[R]:
        """Returns this request and others of its group as one."""

    @abstractmethod
    def share(self, reply: R, whole: Request[R], first: int) -> R:
        """Returns the part of the reply to `whole` that answers this request, whose prompts begin at `first` there."""

    @abstractmethod
    def is_independent(self, reply: R) -> bool:
        """True where the reply holds for each of several joined requests, whatever else was asked with it."""

    @abstractmethod
    def cost(self, info: EngineInfo, prompt_tokens: float) -> Cost:
        """Returns the most that the request costs if its prompts have so many tokens."""

    @abstractmethod
    def keyed(self, info: EngineInfo) -> Keyed[R]:
        """Takes the request apart into the keys under which the parts of its reply are kept."""


class Keyed(Protocol[R]):
    """A request with a key for each part of its reply, so that only parts that are not known are asked for."""

    @property
    def keys(self) -> Sequence[bytes]:
        """The keys of all parts of the reply."""
        ...

    def missing(self, keys: Sequence[bytes]) -> list[Request[R]]:
        """Returns the requests that bring the values of these keys, as few as can be."""
        ...

    def values(self, request: Request[R], reply: R) -> dict[bytes, Value]:
        """Returns the values in the reply to one of `missing`'s requests, by their keys."""
        ...

    def reply(self, found: Mapping[bytes, Value], usage: Usage) -> R:
        """Returns the reply to the whole request."""
        ...

    def weight(self, value: Value) -> int:
        """Returns the memory that a value takes, as the number of label probabilities that take as much."""
        ...

    def encoded(self, value: Value) -> Any:
        """Returns a value in the form in which it is kept as JSON."""
        ...

    def decoded(self, data: Any) -> Value:
        """Returns a value that was kept as JSON; raises ValueError or TypeError for anything else."""
        ...


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


def cuts_between(truncated: Mapping[int, int], first: int, last: int) -> dict[int, int]:
    """Returns the cuts of prompts `first` to `last`, with indices that begin at the first of them."""
    return {index - first: cut for index, cut in truncated.items() if first <= index < last}


def cuts_together(replies: Iterable[Reply]) -> dict[int, int]:
    """Returns the cuts of replies about consecutive parts of the prompts, with indices among all prompts."""
    found: dict[int, int] = {}
    first = 0
    for reply in replies:
        found |= {first + index: cut for index, cut in reply.truncated.items()}
        first += len(reply)
    return found


def latest(requests: Sequence[Request[Any]]) -> float | None:
    """Returns the deadline of several requests that are sent as one: None where one of them has none."""
    known = [request.deadline for request in requests if request.deadline is not None]
    return max(known) if len(known) == len(requests) else None


def prompt_digest(stem: str, prompt: Prompt) -> hashlib._Hash:
    """Returns the digest of everything that a prompt's answer depends on, the spans that may be cut included."""
    digest = hashlib.sha256(stem.encode())
    for message in prompt.messages:
        content = message.content.encode("utf-8", "surrogatepass")
        digest.update(f"\0{message.role} {len(content)} ".encode())
        digest.update(content)
    digest.update(repr([tuple(span) for span in prompt.cuttable]).encode())
    if prompt.text:
        digest.update(b"\0then " + prompt.text.encode("utf-8", "surrogatepass"))
    return digest

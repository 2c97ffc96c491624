"""A request: one call to an engine as one value that the layers pass on, and what each kind of request can do."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Generic, Protocol, Self, TypeVar

from ragguard.engines.base import Engine, EngineInfo, Prompt
from ragguard.records import Usage

R = TypeVar("R", bound="Reply")
V = TypeVar("V", bound="KeptValue")


class Reply(Protocol):
    """The part that the replies to all kinds of requests have in common."""

    @property
    def usage(self) -> Usage:
        """What the answer cost."""
        ...


class Request(ABC, Generic[R]):
    """One question about several prompts. A request never changes: a layer that asks for less makes a new one."""

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
    def completions(self) -> int:
        """How many completions of one prompt the request asks for."""

    @property
    @abstractmethod
    def repeatable(self) -> bool:
        """True where the same request has the same reply, so that the reply may be kept."""

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
        """Returns one reply from the replies about the prompts one after another."""

    @abstractmethod
    def group(self, *, any_labels: bool) -> Hashable:
        """Returns what must be equal in two requests for them to go out as one. `any_labels`: labels may differ."""

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
    def keyed(self, info: EngineInfo) -> Keyed[R, Any]:
        """Takes the request apart into the keys under which the parts of its reply are kept."""


class KeptValue(Protocol):
    """The smallest part of a reply that is kept by itself."""

    @property
    def weight(self) -> int:
        """The memory that the value takes, as the number of label probabilities that take as much."""
        ...

    @property
    def packed(self) -> tuple[Any, ...]:
        """The value as a tuple of plain values, which the garbage collector does not look at."""
        ...

    @classmethod
    def unpacked(cls, packed: tuple[Any, ...]) -> Self:
        """The value from its tuple."""
        ...

    def encode(self) -> bytes:
        """The value as JSON."""
        ...

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """The value from JSON."""
        ...


class Keyed(Protocol[R, V]):
    """The keys of the parts of a request's reply, so that only parts that are not known are asked for."""

    @property
    def value(self) -> type[V]:
        """The kind of value that each key has."""
        ...

    @property
    def keys(self) -> Sequence[bytes]:
        """The keys of all parts of the reply."""
        ...

    def missing(self, keys: Sequence[bytes]) -> list[Request[R]]:
        """The requests that bring the values of these keys, as few as can be."""
        ...

    def values(self, request: Request[R], reply: R) -> dict[bytes, V]:
        """The values in the reply to one of `missing`'s requests, by their keys."""
        ...

    def reply(self, found: Mapping[bytes, V], usage: Usage) -> R:
        """The reply to the whole request."""
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


def latest(deadlines: Sequence[float | None]) -> float | None:
    """Returns the deadline of several requests that are sent as one: None where one of them has none."""
    known = [deadline for deadline in deadlines if deadline is not None]
    return max(known) if known and len(known) == len(deadlines) else None


def prompt_digest(stem: str, prompt: Prompt) -> hashlib._Hash:
    """Returns the digest of everything that a prompt's answer depends on, the spans that may be cut included."""
    digest = hashlib.sha256(stem.encode())
    for message in prompt.messages:
        content = message.content.encode("utf-8", "surrogatepass")
        digest.update(f"\0{message.role} {len(content)} ".encode())
        digest.update(content)
    digest.update(repr([tuple(span) for span in prompt.cuttable]).encode())
    return digest

"""A request: what an engine is asked, as one value that the layers hand on, and what each kind of it can do.

There are two kinds, one for each verb: `LabelRequest` and `DrawRequest`, each in a file of its own. A third
verb gets a third file with a third kind of `Request`; no layer needs to change for it.
"""

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
    """What every answer to a request tells beside the answer itself."""

    @property
    def usage(self) -> Usage:
        """What the answer cost."""
        ...


class Request(ABC, Generic[R]):
    """One question about several prompts. Frozen: a layer that asks for something else makes a new one."""

    __slots__ = ()

    prompts: tuple[Prompt, ...]
    """The prompts that are asked about."""
    deadline: float | None
    """The instant of `time.monotonic()` past which nobody waits for the reply."""
    priority: int
    """The lower, the sooner."""

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
        """How much memory it takes, in label probabilities."""
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
    """A request taken apart into keys: those that are not known are asked for, the others are not."""

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
    """What prompts first..last of so many cost. Whole numbers, and the shares add up to the whole."""

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
    """The cuts of prompts first..last, counted from the first of them."""
    return {index - first: cut for index, cut in truncated.items() if first <= index < last}


def latest(deadlines: Sequence[float | None]) -> float | None:
    """The deadline of several requests that go out as one: none where one of them has none."""
    known = [deadline for deadline in deadlines if deadline is not None]
    return max(known) if known and len(known) == len(deadlines) else None


def prompt_digest(stem: str, prompt: Prompt) -> hashlib._Hash:
    """The digest of everything that a prompt's answer depends on, what may be cut from it included."""
    digest = hashlib.sha256(stem.encode())
    for message in prompt.messages:
        content = message.content.encode("utf-8", "surrogatepass")
        digest.update(f"\0{message.role} {len(content)} ".encode())
        digest.update(content)
    digest.update(repr([tuple(span) for span in prompt.cuttable]).encode())
    return digest

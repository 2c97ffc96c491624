"""A request: what an engine is asked, as one value that the layers hand on, and what each kind of it can do.

There are two kinds, one for each verb: `LabelRequest` and `DrawRequest`, each in a file of its own. A third
verb gets a third file that meets these protocols; no layer needs to change for it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, Self, TypeVar

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


class Request(Protocol[R]):
    """One question about several prompts. Frozen: a layer that asks for something else makes a new one."""

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """The prompts that are asked about."""
        ...

    @property
    def deadline(self) -> float | None:
        """The instant of `time.monotonic()` past which nobody waits for the reply."""
        ...

    @property
    def priority(self) -> int:
        """The lower, the sooner."""
        ...

    @property
    def output_tokens(self) -> int:
        """The most tokens that the model writes for one prompt."""
        ...

    @property
    def completions(self) -> int:
        """How many completions of one prompt the request asks for."""
        ...

    @property
    def repeatable(self) -> bool:
        """True where the same request has the same reply, so that the reply may be kept."""
        ...

    async def ask(self, engine: Engine) -> R:
        """Puts the request to an engine by its verb, and checks the shape of the reply."""
        ...

    def about(self, prompts: Sequence[Prompt]) -> Request[R]:
        """The same request about other prompts."""
        ...

    def empty(self) -> R:
        """The reply to a request about no prompts."""
        ...

    def gathered(self, replies: Sequence[R], seconds: float) -> R:
        """One reply from the replies about the prompts one after another."""
        ...

    def group(self, *, any_labels: bool) -> Hashable:
        """What must be equal in two requests for them to go out as one. `any_labels`: labels may differ."""
        ...

    def joined(self, others: Sequence[Request[R]]) -> Request[R]:
        """This request and others of its group as one."""
        ...

    def share(self, reply: R, whole: Request[R], first: int) -> R:
        """The part of the reply to `whole` that answers this request, whose prompts begin at `first` there."""
        ...

    def is_independent(self, reply: R) -> bool:
        """True where the reply holds for each of several joined requests, whatever else was asked with it."""
        ...

    def keyed(self, info: EngineInfo) -> Keyed[R, Any]:
        """The keys under which the parts of the reply are kept."""
        ...


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

    value: ClassVar[type[KeptValue]]
    keys: Sequence[bytes]
    """The keys of all parts of the reply."""

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

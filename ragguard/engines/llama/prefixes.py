"""Plans which rows of tokens are computed together: prefixes that several share, and chunks of bounded size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

Tokens: TypeAlias = Sequence[int]
_CHUNK = 1024
"""Tokens computed at once, padding included."""
LEAST_SHARED = 8
"""The shortest prefix that is shared: shorter ones cost more to keep than to compute again."""


def chunks(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yields the indices of rows, sorted by length, in chunks of bounded size."""
    chunk: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if chunk and lengths[i] * (len(chunk) + 1) > _CHUNK:
            yield chunk
            chunk = []
        chunk.append(i)
    if chunk:
        yield chunk


def _common(one: Tokens, other: Tokens) -> int:
    """Returns the length of the longest common prefix of two prompts that leaves the last id of each out."""
    longest = min(len(one), len(other)) - 1
    if one[:longest] == other[:longest]:
        return longest
    low, high = 0, longest
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if one[:middle] == other[:middle] else (low, middle)
    return low


def shared_by_all(prompts: Sequence[Tokens], tails: Sequence[int]) -> int:
    """Returns the length of the prefix that all prompts share without their last `tails` tokens; 0 where it is not
    worth it. The first and the last in order differ the soonest."""
    if len(prompts) < 2:
        return 0
    first, last = min(map(tuple, prompts)), max(map(tuple, prompts))
    own = min(len(prompt) - tail for prompt, tail in zip(prompts, tails, strict=True))
    shared = min(_common(first, last), own)
    return shared if shared >= LEAST_SHARED else 0


def shared_lengths(prompts: Sequence[Tokens], tails: Sequence[int] | None = None) -> list[int]:
    """Returns for each prompt the length of the prefix that it shares with a group of others; 0 where none is worth it.

    Prompts are sorted, and neighbours are added to a group as long as the group saves more with them. The last `tails`
    tokens of each prompt (default: one) are never part of a shared prefix.
    """
    own = tails or [1] * len(prompts)
    order = sorted(range(len(prompts)), key=lambda i: tuple(prompts[i]))
    lengths = [0] * len(prompts)
    start = 0
    while start < len(order):
        length, size = len(prompts[order[start]]) - own[order[start]], 1
        while start + size < len(order):
            other = order[start + size]
            shorter = min(length, _common(prompts[order[start + size - 1]], prompts[other]))
            shorter = min(shorter, len(prompts[other]) - own[other])
            if shorter < LEAST_SHARED or shorter * size <= length * (size - 1):
                break
            length, size = shorter, size + 1
        if size > 1:
            for i in order[start : start + size]:
                lengths[i] = length
        start += size
    return lengths

"""Finds common prefixes of prompts that are worth computing once."""

from __future__ import annotations

from collections.abc import Sequence

LEAST = 8
"""The shortest prefix that is shared: shorter ones cost more to keep than to compute again."""


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """Returns the length of the longest common prefix of two prompts that leaves the last id of each out."""
    longest = min(len(one), len(other)) - 1
    if one[:longest] == other[:longest]:
        return longest
    low, high = 0, longest
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if one[:middle] == other[:middle] else (low, middle)
    return low


def shared_lengths(prompts: Sequence[Sequence[int]], least: int = LEAST) -> list[int]:
    """Returns for each prompt the length of the prefix that it shares with a group of others; 0 where none is worth it.

    Prompts are sorted, and neighbours are added to a group as long as the group saves more with them.
    """
    order = sorted(range(len(prompts)), key=lambda i: tuple(prompts[i]))
    lengths = [0] * len(prompts)
    start = 0
    while start < len(order):
        length, size = len(prompts[order[start]]) - 1, 1
        while start + size < len(order):
            shorter = min(length, common(prompts[order[start + size - 1]], prompts[order[start + size]]))
            if shorter < least or shorter * size <= length * (size - 1):
                break
            length, size = shorter, size + 1
        if size > 1:
            for i in order[start : start + size]:
                lengths[i] = length
        start += size
    return lengths

"""Which prompts begin alike, and how much of that is worth computing once."""

from __future__ import annotations

from collections.abc import Sequence

LEAST = 8
"""Shorter common beginnings cost more to keep than to compute again."""


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many ids two prompts have in common at their beginning, short of the last of either."""
    longest = min(len(one), len(other)) - 1
    if one[:longest] == other[:longest]:
        return longest
    low, high = 0, longest
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if one[:middle] == other[:middle] else (low, middle)
    return low


def shared_lengths(prompts: Sequence[Sequence[int]], least: int = LEAST) -> list[int]:
    """For each prompt the length of the beginning it shares with a group of others; 0 where that saves nothing.

    Prompts are put in order and neighbours gathered greedily, as long as the gathered group saves more.
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

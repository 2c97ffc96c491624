"""Finds which retrievals of a run were made in parallel: those share a turn."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeAlias

TurnKey: TypeAlias = tuple[Hashable, Hashable]
"""A (group, branch) pair: branches of one group run in parallel, steps of one branch follow each other."""
GROUPS_KEPT = 256
"""The number of groups of a run that are remembered; only the latest can still grow."""


class Turns:
    """Numbers the turns of one run.

    A framework that runs branches in parallel says so with a key (group, branch): the first
    steps of a group's branches share a turn, then the second ones, and so on.
    Without such a key, steps that overlap in time share a turn.
    """

    __slots__ = ("_latest", "_shared", "following")

    def __init__(self) -> None:
        self.following = 0
        """The turn of a step that starts after all others."""
        self._latest: dict[TurnKey, int] = {}
        """The number of turns that each branch has begun, less one."""
        self._shared: dict[tuple[Hashable, int], int] = {}
        """The turn for each (group, nth turn of a branch)."""

    def given(self, turn: int) -> int:
        """Notes a turn that the user gave."""
        self.following = max(self.following, turn + 1)
        return turn

    def next(self, key: TurnKey | None, overlapping: Sequence[tuple[TurnKey | None, int]]) -> int:
        """Returns the turn of a step that starts now, while the `overlapping` ones are open."""
        if key is None:
            return overlapping[-1][1] if overlapping else self.new()
        for other, turn in overlapping:
            if other == key:
                return turn
        nth = self._latest[key] = self._latest.pop(key, -1) + 1
        turn = self._shared.get((key[0], nth), -1)
        if turn < 0:
            others = [turn for other, turn in overlapping if other is None or other[0] != key[0]]
            turn = others[-1] if others else self.new()
            self._shared[key[0], nth] = turn
        if len(self._latest) > GROUPS_KEPT:
            del self._latest[next(iter(self._latest))]
        if len(self._shared) > GROUPS_KEPT:
            del self._shared[next(iter(self._shared))]
        return turn

    def new(self) -> int:
        """Returns the turn of a step that starts when no other is open."""
        self.following += 1
        return self.following - 1

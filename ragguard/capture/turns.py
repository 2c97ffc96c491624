"""Which retrievals of a run were made in parallel: those share a turn."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from ragguard.capture.places import TurnKey

GROUPS_KEPT = 256
"""How many groups of a run are remembered; only the latest can still grow."""


class Turns:
    """Numbers the turns of one run.

    A framework that runs branches in parallel says so with a key (group, branch): the first
    steps of a group's branches share a turn, then the second ones, and so on. Without a word
    from the framework, steps that overlap in time share one.
    """

    __slots__ = ("_following", "_latest", "_shared")

    def __init__(self) -> None:
        self._following = 0
        self._latest: dict[TurnKey | None, int] = {}
        """Of each branch, how many turns of its own it has begun."""
        self._shared: dict[tuple[Hashable, int], int] = {}
        """(group, nth turn of a branch) → turn."""

    def given(self, turn: int) -> int:
        """Takes a number that the user gave."""
        self._following = max(self._following, turn + 1)
        return turn

    def next(self, key: TurnKey | None, overlapping: Sequence[tuple[TurnKey | None, int]]) -> int:
        """The turn of a step that starts now, while the `overlapping` ones are open."""
        for other, turn in overlapping:
            if other == key:
                return turn
        if key is None:
            return overlapping[-1][1] if overlapping else self._new()
        nth = self._latest[key] = self._latest.pop(key, -1) + 1
        turn = self._shared.get((key[0], nth), -1)
        if turn < 0:
            turn = overlapping[-1][1] if overlapping else self._new()
            self._shared[key[0], nth] = turn
        _bound(self._latest)
        _bound(self._shared)
        return turn

    def _new(self) -> int:
        self._following += 1
        return self._following - 1


def _bound(
    entries: dict[Hashable, int] | dict[TurnKey | None, int] | dict[tuple[Hashable, int], int],
) -> None:
    if len(entries) > GROUPS_KEPT:
        del entries[next(iter(entries))]  # type: ignore[arg-type]

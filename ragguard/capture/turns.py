"""Numbers the turns of a run: retrievals that did not wait for each other share a turn.

What a framework says counts: it names the parallel branches that a call is in. Retrievals of one branch that overlap in
time share a turn as well.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeAlias

Branch: TypeAlias = tuple[Hashable, Hashable]
"""A group of parallel calls, and the call among them."""
TurnKey: TypeAlias = tuple[Branch, ...]
"""The parallel branches that a call is in, from the outermost to the innermost; () outside of any."""
BRANCHES_KEPT = 256
"""The number of branches, and of groups, of a run that are remembered; only the latest can still grow."""


class Turns:
    """Numbers the turns of one run.

    The branches of a group begin at the same turn, and what follows the group comes after the longest of them.
    """

    __slots__ = ("_beside", "_groups", "_next", "following")

    def __init__(self) -> None:
        self.following = 0
        """The turn of a step that starts after all others."""
        self._groups: dict[tuple[TurnKey, Hashable], int] = {}
        """The turn at which each group begins, by the branch around the group and the group."""
        self._next: dict[TurnKey, int] = {}
        """The turn of the next step of each branch."""
        self._beside: dict[Hashable, Hashable] = {}
        """The group of each outermost call of a framework that is open in the run."""

    def given(self, turn: int) -> int:
        """Notes a turn that the user gave."""
        self.following = max(self.following, turn + 1)
        return turn

    def next(self, key: TurnKey = (), overlapping: Sequence[tuple[TurnKey, int]] = ()) -> int:
        """Returns the turn of a step of a branch that starts now, while the `overlapping` ones are open."""
        for other, turn in reversed(overlapping):
            if other == key:
                return turn
        turn = self.following
        for depth, (group, _) in enumerate(key):
            turn = self._groups.setdefault((key[:depth], group), turn)
            turn = self._next.get(key[: depth + 1], turn)
        for depth in range(1, len(key) + 1):
            self._next[key[:depth]] = max(turn + 1, self._next.get(key[:depth], 0))
        while len(self._groups) > BRANCHES_KEPT:
            del self._groups[next(iter(self._groups))]
        while len(self._next) > BRANCHES_KEPT:
            del self._next[next(iter(self._next))]
        return self.given(turn)

    def began(self, call: Hashable) -> TurnKey:
        """Returns the branch of an outermost call of a framework: those that are open at the same time are parallel."""
        group = self._beside[call] = next(iter(self._beside.values()), object())
        return ((group, call),)

    def ended(self, call: Hashable) -> None:
        """Notes that an outermost call has ended: what begins from now on may follow it."""
        self._beside.pop(call, None)

"""Properties that are computed once."""

from __future__ import annotations

from dataclasses import dataclass

from ragguard.runtime.once import computed_once


@dataclass(frozen=True)
class Square:
    side: int
    computed: list[int]

    @computed_once
    def area(self) -> int:
        """The area."""
        self.computed.append(self.side)
        return self.side**2


def test_a_value_is_computed_at_first_use_and_kept_by_its_instance():
    two, three = Square(2, computed := []), Square(3, computed)
    assert computed == []
    assert (two.area, two.area, three.area, three.area) == (4, 4, 9, 9)
    assert computed == [2, 3]
    assert Square.area.__doc__ == "The area."

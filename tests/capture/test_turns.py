"""Turns: which steps of a run were made in parallel."""

from __future__ import annotations

from ragguard.capture.turns import GROUPS_KEPT, Turns


def test_steps_one_after_the_other_have_turns_of_their_own():
    turns = Turns()
    assert [turns.next(None, []) for _ in range(3)] == [0, 1, 2]


def test_steps_that_overlap_share_one():
    turns = Turns()
    first = turns.next(None, [])
    assert turns.next(None, [(None, first)]) == first
    assert turns.next(None, []) == 1


def test_branches_of_a_group_share_turns_even_if_they_never_overlap():
    turns = Turns()
    assert [turns.next(("superstep 2", branch), []) for branch in ("a", "b", "c")] == [0, 0, 0]
    assert [turns.next(("superstep 4", branch), []) for branch in ("d", "e")] == [1, 1]


def test_steps_of_one_branch_follow_each_other():
    turns = Turns()
    assert [turns.next(("g", "a"), []), turns.next(("g", "a"), [])] == [0, 1]
    assert [turns.next(("g", "b"), []), turns.next(("g", "b"), []), turns.next(("g", "b"), [])] == [0, 1, 2]


def test_steps_of_one_branch_that_overlap_share_one():
    turns = Turns()
    first = turns.next(("g", "a"), [])
    assert turns.next(("g", "a"), [(("g", "a"), first)]) == first


def test_second_step_of_a_branch_follows_an_open_branch_of_its_group():
    turns = Turns()
    first = turns.next(("g", "a"), [])
    slow = (("g", "b"), turns.next(("g", "b"), []))
    assert (slow[1], turns.next(("g", "a"), [slow])) == (first, first + 1)


def test_groups_that_overlap_share_one():
    turns = Turns()
    first = turns.next(("left graph", "a"), [])
    assert turns.next(("right graph", "b"), [(("left graph", "a"), first)]) == first


def test_a_given_turn_is_kept_and_counted_on_from():
    turns = Turns()
    assert turns.given(4) == 4
    assert turns.next(None, []) == 5
    assert turns.given(4) == 4
    assert turns.next(None, []) == 6


def test_turns_remember_a_bounded_number_of_groups():
    turns = Turns()
    for n in range(GROUPS_KEPT * 4):
        turns.next((n, "a"), [])
    assert len(turns._latest) <= GROUPS_KEPT
    assert len(turns._shared) <= GROUPS_KEPT

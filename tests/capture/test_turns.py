"""Turns: which steps of a run were made in parallel."""

from __future__ import annotations

from ragguard.capture.events import BRANCHES_KEPT, Turns


def test_steps_one_after_the_other_have_turns_of_their_own():
    turns = Turns()
    assert [turns.next() for _ in range(3)] == [0, 1, 2]


def test_steps_of_one_branch_that_overlap_share_a_turn():
    turns = Turns()
    first = turns.next()
    assert turns.next((), [((), first)]) == first
    branch = (("g", "a"),)
    second = turns.next(branch, [])
    assert turns.next(branch, [((), first), (branch, second)]) == second == 1


def test_branches_of_a_group_begin_at_one_turn_and_what_follows_comes_after_the_longest():
    turns = Turns()
    a, b = (("g", "a"),), (("g", "b"),)
    assert [turns.next(key) for key in (a, a, b, b, b)] == [0, 1, 0, 1, 2]
    assert [turns.next((("h", branch),)) for branch in "cd"] == [3, 3]
    assert turns.next() == 4


def test_groups_inside_parallel_branches_are_numbered_by_their_branch():
    turns = Turns()
    agents = [(("superstep 1", name),) for name in "ab"]
    for hop in range(2):  # each agent makes two hops, of two parallel searches each
        for agent in agents:
            assert [turns.next((*agent, ((agent, hop), call))) for call in "xy"] == [hop, hop]
    assert turns.next((("superstep 2", "c"),)) == 2


def test_outermost_calls_that_are_open_at_once_are_parallel_branches():
    turns = Turns()
    a, b = turns.began("a"), turns.began("b")
    assert [turns.next(key) for key in (a, b, a)] == [0, 0, 1]
    turns.ended("a")
    turns.ended("b")
    assert turns.next(turns.began("c")) == 2


def test_a_given_turn_is_kept_and_counted_on_from():
    turns = Turns()
    assert turns.given(4) == 4
    assert turns.next() == 5
    assert turns.given(4) == 4
    assert turns.next() == 6


def test_many_groups_remember_only_the_latest():
    turns = Turns()
    for n in range(BRANCHES_KEPT * 2):
        turns.next(((n, "a"),))
    assert turns.next(((0, "b"),)) == BRANCHES_KEPT * 2
    assert turns.next(((BRANCHES_KEPT * 2 - 1, "b"),)) == BRANCHES_KEPT * 2 - 1

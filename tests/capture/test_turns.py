"""Turns: which steps of a run were made in parallel."""

from __future__ import annotations

import asyncio

from ragguard import RagGuard
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


def turns_of(work):
    with RagGuard("nano", store=None, scorers=()) as rg, rg.run("Who?") as run:

        async def search(query):
            run.retrieved(query, [query])

        asyncio.run(work(search))
        return {step.query: step.turn for step in run.steps}


def test_gathered_searches_that_never_wait_share_a_turn():
    async def work(search):
        await search("before")
        await asyncio.gather(search("a"), search("b"), search("c"))
        await search("after")

    assert turns_of(work) == {"before": 0, "a": 1, "b": 1, "c": 1, "after": 2}


def test_searches_of_tasks_that_are_awaited_one_after_the_other_have_turns_of_their_own():
    async def work(search):
        await asyncio.create_task(search("a"))
        await asyncio.create_task(search("b"))

    assert turns_of(work) == {"a": 0, "b": 1}


def test_gathered_chains_that_never_wait_share_their_turns_hop_by_hop():
    async def work(search):
        async def chain(name):
            await search(f"{name}1")
            await search(f"{name}2")

        await asyncio.gather(chain("a"), chain("b"))

    assert turns_of(work) == {"a1": 0, "a2": 1, "b1": 0, "b2": 1}


def test_searches_in_one_coroutine_that_never_waits_have_turns_of_their_own():
    async def work(search):
        for name in ("a", "b", "c"):
            await search(name)

    assert turns_of(work) == {"a": 0, "b": 1, "c": 2}

"""The study of lists: what they are made of, and both tables on a small size."""

import math

import pytest

from ragguard import connect
from studies.lists import SIZE, _held, prose_lists, study, world_lists


def test_a_list_has_one_passage_that_answers_and_a_twin_without_it():
    for lists in (*world_lists(4, seed=3).values(), *prose_lists(40).values()):
        for one in lists:
            assert len(set(one.texts)) == SIZE
            assert one.gold not in one.hard
            assert len(one.hard) >= 2
            assert one.texts[one.gold] not in one.without
            assert one.other not in one.texts


def test_the_passage_counts_in_which_the_answer_stands_as_whole_words():
    assert _held("Ada Berg.", ["It was ada berg who did.", "Ada Bergman did."]) == [1.0, 0.0]
    assert _held("", ["anything"]) == [0.0]


@pytest.mark.slow
async def test_a_prompt_a_passage_is_ahead_on_nano_and_a_list_asks_an_eighth_of_the_prompts():
    passages, suffices = await study(connect("nano"), questions=12, seed=5)
    rows = {row[:2]: dict(zip(passages.columns, row, strict=True)) for row in passages.rows}
    for world in ("plain world", "harder world"):
        each, listed = rows[world, "each passage: is it relevant?"], rows[world, "list: which passage?"]
        assert each["AUC"] > listed["AUC"]
        assert (each["prompts a list"], listed["prompts a list"]) == (SIZE, 1)
        assert listed["tokens a list"] < each["tokens a list"]
    reads = {row[:2]: row[2] for row in suffices.rows}
    assert reads["plain world", "list: does the reader answer?"] > 0.8


async def test_what_a_cache_answered_has_no_cost():
    engine = connect("nano")
    costs = [
        [row[-4:-1] for row in (await study(engine, questions=1, seed=9))[0].rows if row[0] == "plain world"]
        for _ in range(2)
    ]
    assert all(row[0] >= 1 and row[2] > 0 for row in costs[0])
    assert all(math.isnan(row[0]) and math.isnan(row[2]) for row in costs[1])

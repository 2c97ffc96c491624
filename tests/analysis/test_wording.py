"""Lines and ids of texts from outside, and what is said of a selection."""

from __future__ import annotations

import pytest

from ragguard.analysis.wording import about_selections, diagnose_selection
from ragguard.errors import UnknownName
from ragguard.storage.source import run_of_part

TIME_ORDERED = [f"01932b4e-77a1-7000-8{n:03d}-{n * 7919:012x}" for n in range(25)]


@pytest.mark.parametrize("part", ["01932b4e-77a1-7000-8003-000000005ccd", "8003", "5ccd"])
def test_run_is_meant_by_its_id_or_by_a_part_that_no_other_has(part):
    assert run_of_part(part, TIME_ORDERED) == TIME_ORDERED[3]


def test_a_part_of_several_names_some_and_one_of_none_says_so():
    with pytest.raises(UnknownName, match=r"0193.*it fits .* and others"):
        run_of_part("0193", TIME_ORDERED)
    for part in ("nothing like it", ""):
        with pytest.raises(UnknownName, match=r"the latest are .*ragguard report"):
            run_of_part(part, TIME_ORDERED)


@pytest.mark.parametrize(
    ("proc", "chosen", "sentence"),
    [
        (0.3, 0.9, "The retriever loses most: its candidates allow 0.30 of"),
        (
            0.9,
            0.5,
            "What chooses after the retriever, a reranker or the guard, loses most: candidates allow 0.90 of",
        ),
        (1.0, 0.99, "Retriever and selection lose next to nothing: candidates allow 1.00 of"),
    ],
)
def test_the_greater_loss_is_laid_to_retriever_or_selection(proc, chosen, sentence):
    rest = f"the best set (PROC), of which {chosen:.0%} was chosen (%PROC)."
    assert diagnose_selection(proc, chosen) == f"{sentence} {rest}"


def test_many_steps_are_weighed_by_what_their_candidates_allow():
    assert about_selections([(0.2, 1.0), (0.4, 0.5)]) == (
        "Over 2 steps: The retriever loses most: its candidates allow 0.30 of the best set (PROC), of which 67% was "
        "chosen (%PROC)."
    )
    assert about_selections([(0.0, 0.0)]).startswith(
        "Over 1 step: The retriever loses most: its candidates allow 0.00"
    )

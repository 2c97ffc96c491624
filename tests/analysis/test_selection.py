"""Which of retriever and selection lost more, in a sentence."""

import pytest

from ragguard.analysis.selection import about_selections, diagnose_selection


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

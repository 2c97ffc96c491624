"""Policies: what goes and why, alone and one after the other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragguard.errors import InvalidInput
from ragguard.guard.policies import (
    HelpThreshold,
    Judged,
    TopUtility,
    UtilityThreshold,
    choose,
)
from ragguard.records import Passage


def judged(*utilities, texts=None):
    texts = texts or [f"passage number {position}" for position in range(1, len(utilities) + 1)]
    return [
        Judged(Passage(text), position, utility)
        for position, (utility, text) in enumerate(zip(utilities, texts, strict=True), 1)
    ]


def test_a_threshold_drops_strictly_under_it():
    assert set(UtilityThreshold(-0.2).drop(judged(0.5, -0.2, -0.21, -1.0))) == {3, 4}
    assert UtilityThreshold(-1).drop(judged(-1.0, 0.0)) == {}
    assert set(UtilityThreshold(1).drop(judged(1.0, 0.999))) == {2}


def test_unjudged_passage_is_not_dropped_for_its_utility():
    items = judged(None, -0.9, 0.9)
    assert set(UtilityThreshold(0).drop(items)) == {2}
    assert 1 not in TopUtility(1).drop(items)


def test_the_most_useful_stay_and_ties_keep_the_order():
    assert set(TopUtility(2).drop(judged(0.1, 0.9, 0.1, 0.9))) == {1, 3}
    assert set(TopUtility(1).drop(judged(0.5, 0.5))) == {2}
    assert TopUtility(9).drop(judged(0.5, 0.5)) == {}


@pytest.mark.parametrize(
    "make",
    [
        lambda: UtilityThreshold(1.01),
        lambda: UtilityThreshold(float("nan")),
        lambda: UtilityThreshold("0.2"),
        lambda: TopUtility(0),
        lambda: TopUtility(1.5),
    ],
)
def test_settings_that_cannot_be_right_are_refused(make):
    with pytest.raises(InvalidInput, match="allowed"):
        make()


@pytest.mark.parametrize(
    ("utility", "threshold", "reason"),
    [
        (-0.9, -0.2, "-0.90 < -0.20"),
        (0.9975, 0.9977, "0.9975 < 0.9977"),
        (-0.2001, -0.2, "-0.2001 < -0.2000"),
    ],
)
def test_the_reason_shows_that_it_is_less(utility, threshold, reason):
    assert UtilityThreshold(threshold).drop(judged(utility)) == {1: f"utility {reason}"}


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=12), st.floats(-1, 1), st.floats(-1, 1))
def test_a_higher_threshold_drops_no_less(utilities, a, b):
    low, high = sorted((a, b))
    items = judged(*utilities)
    assert set(UtilityThreshold(low).drop(items)) <= set(UtilityThreshold(high).drop(items))


def test_probability_that_a_passage_helps_needs_both_witnesses():
    def helps(p_relevant, p_abstain):
        return Judged(Passage("x"), 1, 0.0, p_abstain, p_relevant=p_relevant).p_helps

    assert helps(0.5, 0.5) == pytest.approx(0.5)
    assert helps(0.9, 0.5) == pytest.approx(0.9)
    assert helps(0.5, 0.2) == pytest.approx(0.8)
    assert helps(0.8, 0.4) == pytest.approx(0.8 * 0.6 / (0.8 * 0.6 + 0.2 * 0.4))
    assert helps(0.0, 0.0) == pytest.approx(0.5)  # sure and contrary: neither outvotes the other
    assert helps(None, 0.5) is None


def test_help_threshold_drops_what_does_nothing_before_gold_that_was_misjudged():
    misjudged = Judged(Passage("gold"), 1, -0.76, 0.05, p_relevant=0.1)
    idle = Judged(Passage("idle"), 2, -0.03, 0.97, p_relevant=0.02)
    assert misjudged.utility < idle.utility
    assert HelpThreshold(0.05).drop([misjudged, idle]) == {2: "helps with probability 0.00 < 0.05"}
    assert choose([HelpThreshold(1.0)], [misjudged, idle], 1) == {2: "helps with probability 0.00 < 1.00"}


@pytest.mark.parametrize("threshold", [-0.1, 1.1, "0.5", None])
def test_help_threshold_refuses_what_is_no_probability(threshold):
    with pytest.raises(InvalidInput, match="a probability in"):
        HelpThreshold(threshold)

"""Settings of scorers that cannot be right are refused when the scorer is made."""

import math

import pytest

from ragguard.errors import InvalidInput
from ragguard.scorers import Belief, Contested, Coverage, Grades, Utility
from ragguard.scorers.answers import Answers

WRONG = [
    (Belief, "samples", 0), (Belief, "samples", 2.5), (Belief, "tau", 1.1), (Belief, "tau", -0.1),
    (Belief, "tau", math.nan), (Belief, "tau", "0.5"), (Belief, "tau", True), (Belief, "equivalence", "x"),
    (Belief, "match", "x"), (Belief, "weights", "x"), (Belief, "kernel", None), (Belief, "over_references", "x"),
    (Belief, "over_references", ["best"]), (Belief, "selection", 1), (Utility, "soft", "x"),
    (Utility, "gamma", 5), (Coverage, "eta", 6), (Coverage, "alpha", 2),
    (Coverage, "w", -1), (Coverage, "w", math.inf), (Contested, "eta", -1), (Contested, "tau", 2),
    (Grades, "alpha", -1), (Grades, "t_alpha", 2), (Answers, "tau", 2),
]  # fmt: skip


@pytest.mark.parametrize(("scorer", "name", "value"), WRONG)
def test_a_setting_that_cannot_be_right_is_refused_by_name(scorer, name, value):
    with pytest.raises(InvalidInput, match=rf"{scorer.__name__}\.{name}"):
        scorer(**{name: value})


@pytest.mark.parametrize(
    ("scorer", "settings"),
    [
        (Belief, {"samples": 1, "tau": 0, "equivalence": "strict", "match": "bi", "weights": "sum"}),
        (
            Belief,
            {
                "tau": 1,
                "over_references": "mean",
                "weights": "count",
                "kernel": "forward",
                "selection": False,
            },
        ),
        (Utility, {"gamma": 1, "soft": True}),
        (Coverage, {"eta": 5, "alpha": 1, "w": 0}),
        (Grades, {"alpha": 0, "t_alpha": 0}),
    ],
)
def test_setting_at_the_end_of_its_range_is_taken(scorer, settings):
    made = scorer(**settings)
    assert {name: getattr(made, name) for name in settings} == settings

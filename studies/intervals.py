"""Bootstrap intervals of the studies: the middle 95 % over draws of questions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ragguard.metrics.arrays import Floats, Integers

DRAWS, OF_QUESTIONS = 2000, 1000
"""The numbers of draws that an interval is made of: of single values, and of whole questions with several rows each."""


def of_mean(values: Floats, seed: int) -> tuple[float, float]:
    """Returns the interval of the mean of one value a question; nan where there are none."""
    if not len(values):
        return float("nan"), float("nan")
    rng = np.random.default_rng(seed)
    means = values[rng.integers(len(values), size=(DRAWS, len(values)))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def over_questions(number: Callable[[Integers], float], owners: Integers, seed: int) -> tuple[float, float]:
    """Returns the interval of a number, a function of rows, over draws of whole questions.

    `owners` has the question of each row. nan where no draw has the number.
    """
    rng = np.random.default_rng(seed)
    members = [np.flatnonzero(owners == one) for one in np.unique(owners)]
    drawn = [
        number(np.concatenate([members[at] for at in rng.integers(len(members), size=len(members))]))
        for _ in range(OF_QUESTIONS)
    ]
    if np.isnan(drawn).all():
        return float("nan"), float("nan")
    low, high = np.nanquantile(drawn, [0.025, 0.975])
    return float(low), float(high)

"""Bootstrap intervals of the studies: the middle 95 % over draws of questions."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from ragguard.analysis.tables import Cell
from ragguard.metrics.agreement import auc
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


def with_interval(number: Callable[[Integers], float], owners: Integers, seed: int) -> list[Cell]:
    """Returns a number over all rows, and the ends of its interval `over_questions`; None for what does not exist."""
    ends = over_questions(number, owners, seed) if len(owners) else (math.nan, math.nan)
    return [None if math.isnan(one) else one for one in (number(np.arange(len(owners))), *ends)]


def auc_over_questions(values: ArrayLike, positive: ArrayLike, owners: ArrayLike, seed: int) -> list[Cell]:
    """Returns how often a positive has the larger value of a pair, with its interval. Rows without a value (nan) are
    left out."""
    known = ~np.isnan(np.asarray(values, dtype=np.float64))
    value, truth, owner = (np.asarray(one)[known] for one in (values, positive, owners))
    return with_interval(lambda rows: auc(value[rows], truth[rows]), owner, seed)


def share_over_questions(counts: ArrayLike, sizes: ArrayLike, owners: ArrayLike, seed: int) -> list[Cell]:
    """Returns the sum of counts over the sum of sizes, and the ends of its interval over draws of whole questions; None
    for what does not exist."""
    _, index = np.unique(np.asarray(owners), return_inverse=True)
    number = int(index.max(initial=-1)) + 1
    parts = [np.bincount(index, np.asarray(one, dtype=np.float64), number) for one in (counts, sizes)]
    if not number or not parts[1].sum():
        return [None] * 3
    drawn = np.random.default_rng(seed).multinomial(number, np.full(number, 1 / number), OF_QUESTIONS)
    above, below = (drawn @ one for one in parts)
    low, high = np.quantile(above[below > 0] / below[below > 0], [0.025, 0.975])
    return [float(parts[0].sum() / parts[1].sum()), float(low), float(high)]

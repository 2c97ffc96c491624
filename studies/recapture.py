"""Estimates of how many relevant passages there are, by capture and recapture.

Two retrievals of one query that do not depend on each other find n1 and n2 relevant passages, m of them both. The more
they agree, the fewer there are that neither found. Passages that are hard for both retrievers are found by neither;
then the estimate is too low.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ragguard.errors import InvalidInput
from ragguard.metrics import arrays
from ragguard.metrics.arrays import Booleans, Value

SOURCE = "Chapman 1951; interval: Sadinle 2009"


class Population(NamedTuple):
    """An estimated number of passages, its standard error, and the ends of its interval."""

    total: Value
    stderr: Value
    low: Value
    high: Value


def chapman(first: ArrayLike, second: ArrayLike, both: ArrayLike, level: float = 0.95) -> Population:
    """Returns Chapman's estimate N = (n1 + 1)(n2 + 1) / (m + 1) - 1, unbiased where n1 + n2 >= N.

    Its variance is (n1 + 1)(n2 + 1)(n1 - m)(n2 - m) / ((m + 1)^2 (m + 2)). The interval is that of the transformed
    logit of the share that was found (Sadinle 2009), and never below what was found, n1 + n2 - m. Where neither found
    anything, nothing is known: nan. Where there are few passages, an interval of 95 % holds the truth in 86 to 100 of
    100 cases.
    """
    found_first = arrays.read("first", first, low=0, axes=0)
    found_second = arrays.read("second", second, low=0, axes=0)
    found_both = arrays.read("both", both, low=0, axes=0)
    arrays.fit(first=found_first.shape, second=found_second.shape, both=found_both.shape)
    for name, values in (("first", found_first), ("second", found_second), ("both", found_both)):
        arrays.whole(name, values, "whole numbers of passages")
    if np.any(found_both > np.minimum(found_first, found_second)):
        raise InvalidInput("both", both, "at most as many as the smaller of first and second")
    z = NormalDist().inv_cdf(0.5 + arrays.parameter("level", level, 0.01, 0.9999) / 2)
    n1, n2, m = found_first, found_second, found_both
    seen = n1 + n2 - m
    total = (n1 + 1) * (n2 + 1) / (m + 1) - 1
    variance = (n1 + 1) * (n2 + 1) * (n1 - m) * (n2 - m) / ((m + 1) ** 2 * (m + 2))
    only_first, only_second, shared = n1 - m + 0.5, n2 - m + 0.5, m + 0.5
    unseen = only_first * only_second / shared
    spread = z * np.sqrt(1 / shared + 1 / only_first + 1 / only_second + 1 / unseen)
    low = np.maximum(seen - 0.5 + unseen * np.exp(-spread), seen)
    high = np.maximum(seen - 0.5 + unseen * np.exp(spread), total)
    known = seen > 0
    return Population(
        *(
            arrays.plain(np.where(known, part, np.nan))
            for part in (total, np.sqrt(variance), np.minimum(low, total), high)
        )
    )


def recapture(found: ArrayLike, relevant: ArrayLike, level: float = 0.95) -> Population:
    """Returns Chapman's estimate of how many relevant passages there are, from retrievals of one query.

    `found[r, p]`: retrieval r found passage p; `relevant[p]`: passage p is relevant; both true and false, or 1 and 0. A
    retrieval that found nothing but what another found as well (the same retriever again, or with a smaller k) tells
    nothing of what is missing and is left out; with fewer than two left, nothing is known. Of more than two, every
    second one in order makes up one side.
    """
    table = np.atleast_2d(_marks("found", found))
    if table.ndim > 2:
        raise InvalidInput("found", found, "a table (retrievals, passages)")
    wanted = _marks("relevant", relevant)
    if wanted.shape != table.shape[1:]:
        raise InvalidInput("relevant.shape", wanted.shape, f"{table.shape[1:]}, the shape of what it marks")
    kept: list[int] = []
    for row in range(len(table)):
        others = (r for r in range(len(table)) if r != row and not np.any(table[row] & ~table[r]))
        # Of equal ones the first stays.
        if not any(np.any(table[r] & ~table[row]) or r < row for r in others):
            kept.append(row)
    if len(kept) < 2:
        return Population(*4 * (float("nan"),))
    sides = [table[kept[side::2]].any(axis=0) & wanted for side in (0, 1)]
    return chapman(sides[0].sum(), sides[1].sum(), (sides[0] & sides[1]).sum(), level)


def _marks(argument: str, values: ArrayLike) -> Booleans:
    """Returns true and false, or 1 and 0, as booleans; refuses other numbers."""
    read = arrays.read(argument, values, low=0, high=1)
    if np.any((read != 0) & (read != 1)):
        raise InvalidInput(argument, values, "true and false, or 1 and 0")
    return read.astype(np.bool_)

"""Conformal risk control: the arithmetic of the promises that the guard and advice make.

A rule has one setting λ. The loss L(λ) of each example is at most 1, and does not grow with λ. On n examples that are
exchangeable with the next one, the smallest λ with

    (n · mean loss(λ) + 1) / (n + 1) ≤ limit

keeps the expected loss of the next example at the limit or under it (Angelopoulos et al., 2022, theorem 1).
"""

from __future__ import annotations

import math

from ragguard.errors import InvalidInput


def least_examples(argument: str, limit: float) -> int:
    """Returns how many examples are needed to keep the expected loss at a limit.

    Args:
        argument: The name under which the caller knows the limit, for the error of one that cannot be right.
        limit: The largest loss that is allowed, in (0, 1).
    """
    if not isinstance(limit, int | float) or isinstance(limit, bool) or not 0 < limit < 1:
        raise InvalidInput(argument, limit, "a share in (0, 1)")
    return math.ceil(1 / limit - 1 - 1e-9)


def keeps_bound(loss: float, n: int, limit: float) -> bool:
    """Returns whether a setting with this mean loss on n examples keeps the bound on the next one."""
    return (n * loss + 1) / (n + 1) <= limit + 1e-12

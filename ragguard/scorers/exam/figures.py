"""Figures of an examination: areas under the ROC curve, their intervals, and what a number is as a probability."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from ragguard.metrics.agreement import auc
from ragguard.scorers.exam.cases import SAME_SUBJECT, WITHOUT

Key: TypeAlias = tuple[str, str, int]
"""A probe, the kind of the passage or answer that it is about, and the number of the question."""
Numbers: TypeAlias = Mapping[Key, float]
"""The number that each answer gives."""
MISLEADING = "near", "contradiction"
AREAS: Mapping[str, tuple[str, ...]] = {
    "abstention": ("abstention", *WITHOUT),
    "relevance": ("relevance", *WITHOUT),
    "relevance_partial": ("relevance", *SAME_SUBJECT),
    "query_gain": ("query_gain", *WITHOUT),
    "partial": ("query_gain", *SAME_SUBJECT),
    "likelihood": ("likelihood", *MISLEADING),
}
"""The figures that are areas under the ROC curve: the probe, and the passages that are told from the right ones."""
_PENALTY = 0.1
"""How strongly the fit of the log-odds draws its slope and intercept to 0."""


def numbers_of(numbers: Numbers, probe: str, *kinds: str) -> list[float]:
    """Returns the numbers of a probe about passages of these kinds, by question."""
    return [numbers[key] for kind in kinds for key in sorted(numbers) if key[:2] == (probe, kind)]


def area(numbers: Numbers, probe: str, *kinds: str) -> float:
    """Returns how often the right passage has the larger number than one of these kinds, for abstention the smaller
    one; nan without a pair."""
    good, bad = numbers_of(numbers, probe, "gold"), numbers_of(numbers, probe, *kinds)
    share = auc([*good, *bad], [1] * len(good) + [0] * len(bad))
    return 1 - share if probe == "abstention" else share


def areas(numbers: Numbers) -> dict[str, float]:
    """Returns the figures that are areas; nan for what was not asked."""
    return {name: area(numbers, *AREAS[name]) for name in AREAS}


def intervals(figures: Mapping[str, float], numbers: Numbers) -> dict[str, list[float]]:
    """Returns the 95 % interval of each area, over other cases like these (Hanley and McNeil 1982)."""
    return {name: _interval(figures[name], numbers, *AREAS[name]) for name in AREAS if name in figures}


def _interval(figure: float, numbers: Numbers, probe: str, *kinds: str) -> list[float]:
    good, bad = len(numbers_of(numbers, probe, "gold")), len(numbers_of(numbers, probe, *kinds))
    # An area of 1 over few cases may come from a lower one: half a case short of it.
    value = min(max(figure, 0.5 / min(good, bad)), 1 - 0.5 / min(good, bad))
    both_good, both_bad = value / (2 - value), 2 * value**2 / (1 + value)
    spread = value * (1 - value) + (good - 1) * (both_good - value**2) + (bad - 1) * (both_bad - value**2)
    reach = 1.96 * (spread / (good * bad)) ** 0.5
    return [round(max(0.0, value - reach), 4), round(min(1.0, value + reach), 4)]


def fitted_log_odds(numbers: Numbers, probe: str) -> list[float] | None:
    """Fits the log-odds of an answering passage by the number of a probe, both kinds weighted alike, so that a half
    means that neither is likelier; a small penalty keeps the slope finite where the numbers separate the kinds."""
    good, bad = numbers_of(numbers, probe, "gold"), numbers_of(numbers, probe, *WITHOUT)
    if not good or not bad:
        return None
    x = np.stack([np.ones(len(good) + len(bad)), np.array([*good, *bad])], axis=1)
    y = np.array([1.0] * len(good) + [0.0] * len(bad))
    weight = np.where(y == 1, 0.5 / len(good), 0.5 / len(bad)) * len(y)
    beta = np.zeros(2)
    for _ in range(100):
        p = 1 / (1 + np.exp(-x @ beta))
        slope = x.T @ (weight * (y - p)) - _PENALTY * beta
        step = np.linalg.solve((x * (weight * p * (1 - p))[:, None]).T @ x + _PENALTY * np.eye(2), slope)
        beta = beta + step
        if np.abs(step).max() < 1e-9:
            break
    return [round(float(number), 4) for number in beta]


def known(figures: Mapping[str, float]) -> dict[str, float]:
    """Returns the figures that are numbers, rounded as a record keeps them."""
    return {name: round(value, 4) for name, value in figures.items() if np.isfinite(value)}

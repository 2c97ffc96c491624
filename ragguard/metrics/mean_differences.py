"""Tests and intervals for means of paired differences, which hold their level with few questions and skewed values.

Sign flips: if two sides do not differ, each question's difference is as likely with the other sign. So the mean is
compared with the means after flipping signs: all patterns up to 14 questions, random ones beyond. For one measure this
is exact for any symmetric distribution. The interval holds the differences that the test does not reject. Its ends are
quantiles of the means of random subsets of the questions (Hartigan 1969). Percentiles of a bootstrap, common in their
place, are too narrow for few questions.

Skewed differences, such as many small rises and a few large drops, break the symmetry: sign flips then call a mean of
0 different too often. `mean_tests` therefore also asks the studentised bootstrap (Efron 1981; Hall 1988), and calls a
mean different only if both do. Neither can see a drop that is rarer than one in all the questions.

For several measures the questions are flipped or drawn together, and each measure is compared with the clearest one
among those not clearer than itself (Westfall and Young's step-down): the chance of calling any measure different stays
at the level, however the measures depend on each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ragguard.metrics import arrays
from ragguard.metrics.arrays import Floats

ALL_UP_TO = 14
"""The most questions of which every pattern of signs is tried: 8,192 patterns, as a pattern and its reverse agree."""
_TOLERANCE = 1e-9
"""Relative tolerance within which two statistics are equal; rounding must not break a tie."""
_LEAST_SPREAD, _FEW = 0.25, 20
"""The least spread of a draw of so few questions at most, as a share of the seen one. A draw without the only question
that differs has next to none, so that its t says nothing: eleven rises of 1.0 and one of 0.5 were no clear rise."""
_CELLS = 4_000_000
"""The most numbers of a bootstrap that are held at once."""


class MeanTest(NamedTuple):
    """The result of one measure: the mean difference, its interval, and p alone and among all measures tested."""

    value: float
    low: float
    high: float
    """The ends of the interval; nan if so few questions bound nothing."""
    p: float
    p_adjusted: float
    counted: int


def mean_tests(
    differences: Sequence[Floats],
    weights: Sequence[float] | None = None,
    *,
    level: float = 0.05,
    symmetric: bool = False,
    draws: int = 9999,
    seed: int = 0,
) -> list[MeanTest]:
    """Tests whether the means of paired differences are 0, one list for each measure, all over the same questions.

    Args:
        differences: For each measure one difference a question; nan where a question has none.
        weights: How the level is shared among the measures, in any unit; equally by default.
        level: The level of the intervals: 0.05 gives 95 %.
        symmetric: Ask sign flips only, which is exact if the differences are symmetric about their mean.
        draws: The number of random patterns of signs, if there are too many questions to try all, and of bootstraps.
        seed: The seed of the random draws.
    """
    if not len(differences):
        return []
    table = np.array(differences, dtype=np.float64)
    known = ~np.isnan(table)
    values, counted = np.where(known, table, 0.0), known.sum(axis=1)
    means = values.sum(axis=1) / np.where(counted, counted, math.nan)
    shares = np.full(len(table), 1.0) if weights is None else np.asarray(weights, dtype=np.float64)
    shares = shares / shares.sum()
    signs = _signs(table.shape[1], draws, seed)
    ends = np.array([
        _flip_interval(row[there], signs if there.all() else None, level, draws, seed)
        for row, there in zip(values, known, strict=True)
    ])  # fmt: skip
    weight = np.log(shares)[:, None]
    flipped = _flipped(values, signs)
    alone, adjusted = _at_least(flipped).mean(axis=1), _step_down(flipped**2 / 2 + weight)
    if not symmetric:
        drawn, half = _bootstrapped(values, known, level, draws, seed)
        more = np.stack([means - half, means + half], axis=1)
        more[~np.isfinite(more).all(axis=1)] = math.nan
        ends = np.stack([np.minimum(ends[:, 0], more[:, 0]), np.maximum(ends[:, 1], more[:, 1])], axis=1)
        # By their own p: the t of a measure with few values other than 0 has no tail like the others'.
        by_p = _step_down(weight - np.log(_own_p(drawn)))
        alone, adjusted = np.maximum(alone, _at_least(drawn).mean(axis=1)), np.maximum(adjusted, by_p)
    return [
        MeanTest(
            float(means[i]), float(ends[i, 0]), float(ends[i, 1]),
            p=float(alone[i]) if counted[i] else math.nan,
            p_adjusted=float(adjusted[i]) if counted[i] else math.nan, counted=int(counted[i]),
        )
        for i in range(len(table))
    ]  # fmt: skip


def least_p(questions: int) -> float:
    """Returns the least p that a number of questions can show: all differences have one sign."""
    return 2.0 ** (1 - questions) if questions else 1.0


def random_draws(draws: int, seed: int) -> tuple[int, np.random.Generator]:
    """Returns the number of draws, checked, and what they are drawn from."""
    rows = arrays.count("draws", draws, 2, arrays.MOST_DRAWS)
    return rows, np.random.default_rng(arrays.count("seed", seed, 0))


def _signs(questions: int, draws: int, seed: int) -> Floats:
    """Returns patterns of signs, one a row: all but reversed ones for few questions, else random ones."""
    rows, random = random_draws(draws, seed)
    if questions <= ALL_UP_TO:
        patterns = np.arange(2 ** max(questions - 1, 0))
        bits = patterns[:, None] >> np.arange(questions) & 1
        return np.asarray(1.0 - 2.0 * bits, dtype=np.float64)
    drawn = random.integers(0, 2, size=(rows, questions), dtype=np.int8)
    return np.concatenate([np.ones((1, questions)), 1.0 - 2.0 * drawn])


def _flipped(values: Floats, signs: Floats) -> Floats:
    """Returns the statistic of each measure under each pattern of signs, the seen one first."""
    sizes = np.sqrt((values**2).sum(axis=1))
    scaled = values / np.where(sizes > 0, sizes, 1.0)[:, None]
    return np.abs(scaled @ signs.T)


def _bootstrapped(
    values: Floats, known: NDArray[np.bool_], level: float, draws: int, seed: int
) -> tuple[Floats, Floats]:
    """Returns Student's t of each measure under each draw of the questions around its own mean, the seen one first, and
    half the width of the measure's interval."""
    rows, random = random_draws(draws, seed)
    questions = values.shape[1]
    counted = known.sum(axis=1)
    means = values.sum(axis=1) / np.maximum(counted, 1)
    centred = np.where(known, values - means[:, None], 0.0)
    error = np.sqrt((centred**2).sum(axis=1) / np.maximum(counted - 1, 1) / np.maximum(counted, 1))
    rounding = _TOLERANCE * np.maximum(np.abs(values).max(axis=1, initial=0.0), 1e-300)
    there, squares = known.T.astype(np.float64), centred.T**2
    least = _LEAST_SPREAD * error if questions <= _FEW else 0.0
    drawn = [_t(means, error, rounding)[None]]
    for begin in range(0, rows, step := max(1, _CELLS // max(questions, 1))):
        some = min(step, rows - begin)
        chosen = random.integers(questions, size=(some, questions)) + questions * np.arange(some)[:, None]
        times = np.bincount(chosen.ravel(), minlength=some * questions).reshape(some, questions) * 1.0
        number = np.maximum(times @ there, 1.0)
        mean = times @ centred.T / number
        variance = np.maximum(times @ squares / number - mean**2, 0.0)
        spread = np.sqrt(variance / np.maximum(number - 1, 1.0))
        drawn.append(_t(mean, np.maximum(spread, least), rounding))
    table = np.concatenate(drawn).T
    outside = math.floor(level * table.shape[1] + 1e-9)
    bound = np.sort(table, axis=1)[:, -1 - outside]
    half = np.where(np.isfinite(bound), bound, 0.0) * np.where(np.isfinite(bound), error, math.nan)
    return table, half


def _t(means: Floats, errors: Floats, rounding: Floats) -> Floats:
    """Returns |mean / error|: infinite for a mean without spread, 0 for no mean."""
    spread = errors > rounding
    t = np.abs(means) / np.where(spread, errors, 1.0)
    return np.where(spread, t, np.where(np.abs(means) > rounding, math.inf, 0.0))


def _at_least(drawn: Floats) -> NDArray[np.bool_]:
    """Returns which draws are as clear as the seen one, for each measure."""
    return drawn >= drawn[:, :1] * (1 - _TOLERANCE)


def _own_p(drawn: Floats) -> Floats:
    """Returns the share of a measure's draws that are as clear as each of them."""
    number = drawn.shape[1]
    clearer = [np.searchsorted(np.sort(row), row * (1 - _TOLERANCE)) for row in drawn]
    share: Floats = 1.0 - np.stack(clearer) / number
    return share


def _step_down(evidence: Floats) -> Floats:
    """Returns p of each measure among all: draw by draw the seen evidence, the first column, is compared with the
    clearest among those measures that are not clearer than this one."""
    seen = evidence[:, 0]
    order = np.argsort(-seen, kind="stable")
    clearest = np.full(evidence.shape[1], -math.inf)
    adjusted, by_rank = np.ones(len(order)), np.empty(len(order))
    for rank in range(len(order) - 1, -1, -1):
        at = order[rank]
        clearest = np.maximum(clearest, evidence[at])
        by_rank[rank] = (clearest >= seen[at] - _TOLERANCE * (1 + abs(seen[at]))).mean()
    adjusted[order] = np.maximum.accumulate(by_rank)
    return adjusted


def _flip_interval(
    values: Floats, signs: Floats | None, level: float, draws: int, seed: int
) -> tuple[float, float]:
    """Returns the differences that sign flips do not reject; nan if so few questions bound none."""
    if not len(values):
        return math.nan, math.nan
    subsets: NDArray[np.bool_] = (_signs(len(values), draws, seed) if signs is None else signs) < 0
    if len(values) <= ALL_UP_TO:
        subsets = np.concatenate([subsets, ~subsets])  # each pattern and its reverse: every subset once
    sizes = subsets.sum(axis=1)
    means = np.sort((subsets @ values)[sizes > 0] / sizes[sizes > 0])
    outside = math.floor(level / 2 * (len(means) + 1) + 1e-9)
    if outside < 1:
        return math.nan, math.nan
    return float(means[outside - 1]), float(means[-outside])

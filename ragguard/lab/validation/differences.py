"""Differences between metrics: how much better the best one goes with the outcomes than each other metric.

If the data name the best metric, the largest of many correlations is compared with the others: among equally good
metrics the luckiest one then looks better. So p is corrected over all pairs of metrics, of which the best and another
one are some (Westfall and Young's step-down over questions; the largest t of a bootstrap if contexts are compared with
one another). A metric that the caller names is compared with the others only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from ragguard.metrics.agreement import Difference, coefficient, interval
from ragguard.metrics.arrays import Floats, Integers
from ragguard.metrics.mean_differences import mean_tests

DRAWS = 2000


def differences(
    values: Mapping[str, Floats],
    outcome: Floats,
    groups: Sequence[str] | None,
    against: str | None,
    flat: float,
    draws: int = DRAWS,
) -> tuple[str, dict[str, Difference]]:
    """Returns the metric that is compared, and by how much its Spearman correlation is higher than each other's.

    Args:
        values: The values of each metric, the best one first; nan where a metric has none.
        outcome: The outcomes.
        groups: The question of each context, within which contexts are compared; None: all with one another.
        against: The metric that is compared; None: the first one, which the data chose.
        flat: The correlation of a metric that does not vary where the outcome does.
        draws: The number of random draws.
    """
    names = list(values)
    first = names[0] if against is None else against
    pairs = [(first, name) for name in names if name != first]
    if against is None:
        pairs += list(combinations(names[1:], 2))
    if groups is None:
        compared = _over_contexts(values, outcome, pairs, flat, draws)
    else:
        compared = _over_questions(values, outcome, groups, pairs, flat, draws)
    return first, {pair[1]: gap for pair, gap in zip(pairs, compared, strict=True) if pair[0] == first}


def _over_questions(
    values: Mapping[str, Floats],
    outcome: Floats,
    groups: Sequence[str],
    pairs: Sequence[tuple[str, str]],
    flat: float,
    draws: int,
) -> list[Difference]:
    """Returns the differences of the mean correlations within questions."""
    labels, index = np.unique(np.asarray(groups), return_inverse=True)
    rows = [np.flatnonzero(index == number) for number in range(len(labels))]
    gaps = []
    for pair in pairs:
        known = ~np.isnan(values[pair[0]] + values[pair[1]] + outcome)
        each = [[_spearman(values[name], outcome, some[known[some]], flat) for some in rows] for name in pair]
        gaps.append(np.array(each[0]) - np.array(each[1]))
    return [
        Difference(
            value=test.value, p=test.p_adjusted, low=test.low, high=test.high, counted=test.counted,
            skipped=len(rows) - test.counted,
        )
        for test in mean_tests(gaps, draws=draws)
    ]  # fmt: skip


def _over_contexts(
    values: Mapping[str, Floats], outcome: Floats, pairs: Sequence[tuple[str, str]], flat: float, draws: int
) -> list[Difference]:
    """Returns the differences of the correlations over all contexts, by a bootstrap of the contexts."""
    random = np.random.default_rng(0)
    n = len(outcome)
    known_in = {name: ~np.isnan(column + outcome) for name, column in values.items()}
    shared = [known_in[a] & known_in[b] for a, b in pairs]
    # A metric's correlation is needed once for each set of contexts on which it is compared.
    sets = [known.tobytes() for known in shared]
    needed = {
        (name, one): known for pair, one, known in zip(pairs, sets, shared, strict=True) for name in pair
    }

    def gaps(rows: Integers) -> list[float]:
        there = {
            (name, one): _spearman(values[name], outcome, rows[known[rows]], flat)
            for (name, one), known in needed.items()
        }
        return [there[a, one] - there[b, one] for (a, b), one in zip(pairs, sets, strict=True)]

    seen = np.array(gaps(np.arange(n)))
    drawn = np.array([gaps(random.integers(n, size=n)) for _ in range(draws)]).T
    apart = np.nan_to_num(drawn - seen[:, None])  # a draw of equal outcomes has no correlation
    spread = apart.std(axis=1)
    spread[spread == 0] = math.inf
    largest = np.max(np.abs(apart) / spread[:, None], axis=0)
    found = []
    for gap, wide, sample, known in zip(seen, spread, drawn, shared, strict=True):
        _, low, high = interval(sample)
        p = (1 + np.count_nonzero(largest >= abs(gap) / wide)) / (1 + draws)
        found.append(Difference(
            value=float(gap), p=float(p), low=low, high=high, counted=int(known.sum()), skipped=int((~known).sum())
        ))  # fmt: skip
    return found


def _spearman(metric: Floats, outcome: Floats, rows: Integers, flat: float) -> float:
    return coefficient(metric[rows], outcome[rows], "spearman", flat)

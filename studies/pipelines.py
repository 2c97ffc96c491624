"""Retrieval pipelines over a report's base: a search of known error, alone, diversified or re-ranked.

All pipelines are seeded and ask no model. `chance` draws contexts at random instead.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from studies.reports import SEARCHES, Report

DEPTH = 24
"""The number of a search's finds that are re-ordered."""
FIRST: Mapping[str, float] = {**SEARCHES, "poor": 2.0}
SECOND = 0.5
"""The error of the second look that a re-ranker takes."""
_WEIGHT = 0.5
_WORD = re.compile(r"\w+")

Pipeline = Callable[[Report], tuple[int, ...]]
"""A pipeline: from a report to passages of its base, best first."""


def pipelines(seed: int) -> dict[str, Pipeline]:
    """Returns every search, alone, diversified, and re-ranked."""
    found: dict[str, Pipeline] = {}
    for name, error in FIRST.items():
        found[name] = partial(_search, error=error, seed=seed)
        found[f"{name} + MMR"] = partial(_spread, error=error, seed=seed)
        found[f"{name} + re-ranked"] = partial(_again, error=error, seed=seed)
    return found


def chance(report: Report, search: str, number: int, k: int, seed: int) -> tuple[int, ...]:
    """Returns `k` passages drawn from the best that a search found, in the search's order."""
    rng = random.Random(f"chance {seed} {report.id} {search} {number}")
    best = report.ranked(FIRST[search], seed)[:DEPTH]
    return tuple(best[at] for at in sorted(rng.sample(range(len(best)), min(k, len(best)))))


def diverse(ranking: Sequence[int], texts: Sequence[str], weight: float = _WEIGHT) -> tuple[int, ...]:
    """Orders by maximal marginal relevance: rank counts `weight`, the words shared with the passages taken before count
    the rest."""
    words = {at: frozenset(_WORD.findall(texts[at].casefold())) for at in ranking}
    left = list(ranking)
    rank = {at: 1 - place / len(ranking) for place, at in enumerate(ranking)}
    nearest = dict.fromkeys(ranking, 0.0)
    taken: list[int] = []
    while left:
        best = max(left, key=lambda at: weight * rank[at] - (1 - weight) * nearest[at])
        left.remove(best)
        taken.append(best)
        for at in left:
            shared = len(words[at] & words[best]) / max(1, len(words[at] | words[best]))
            nearest[at] = max(nearest[at], shared)
    return tuple(taken)


def _search(report: Report, error: float, seed: int) -> tuple[int, ...]:
    return report.ranked(error, seed)


def _spread(report: Report, error: float, seed: int) -> tuple[int, ...]:
    return diverse(report.ranked(error, seed)[:DEPTH], [passage.text for passage in report.base])


def _again(report: Report, error: float, seed: int) -> tuple[int, ...]:
    # The second look's error is its own: another search's order of what the first one found.
    second = {at: place for place, at in enumerate(report.ranked(SECOND, seed + 1))}
    return tuple(sorted(report.ranked(error, seed)[:DEPTH], key=second.__getitem__))

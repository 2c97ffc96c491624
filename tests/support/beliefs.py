"""Beliefs of the reader of one small story (`reader`), with the numbers that are known beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from support.reader import TableEntailer, reader

from ragguard.records import Result, Run, Score
from ragguard.scorers.belief import Belief
from ragguard.scorers.pipeline import ScoringPipeline


def counting() -> Belief:
    """Returns Belief with weights that are counts, so that shares of ten can be told by hand."""
    return Belief(weights="count")


async def beliefs(
    the_run: Run, *, scorer: Any = None, engine: Any = None, entailer: Any = None, **more: Any
) -> Sequence[Result]:
    """Scores a run with Belief."""
    pipeline = ScoringPipeline(
        engine or reader(), entailer=entailer or TableEntailer(), scorers=[scorer or counting()], **more
    )
    return await pipeline.results(the_run)


def values(results: Sequence[Result], name: str) -> list[float]:
    """Returns the values of the scores of that name, rounded."""
    return [round(score.value, 6) for score in results if isinstance(score, Score) and score.name == name]


def only(results: Sequence[Result], name: str) -> Score:
    """Returns the one score of that name."""
    (score,) = [score for score in results if isinstance(score, Score) and score.name == name]
    return score


def soft(right: float) -> float:
    """Returns the belief in the reference with `right` of ten answers right: an alias counts 1, another 0.03."""
    return round((right + 0.03 * (10 - right)) / 10, 6)

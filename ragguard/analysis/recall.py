"""Estimates how many relevant passages a query has, where logged runs asked it more than once."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from ragguard.metrics.recapture import Population, recapture
from ragguard.records import RetrievalStep, Score, ScoredRun
from ragguard.text.answers import normalise

RELEVANT_GRADE = 4
"""The least grade of a relevant passage. A passage without a grade is relevant with p_relevant from 0.5 on."""


@dataclass(frozen=True, slots=True)
class QueryRecall:
    """A query, and the share of its relevant passages that its retrievals found."""

    query: str
    retrievals: int
    found: int
    """The number of different relevant passages that all retrievals found together."""
    total: Population
    """The estimated number of relevant passages; nan where the retrievals do not differ."""
    recall: float
    """The mean share of the relevant passages that one retrieval found; an estimate, too."""


@dataclass(slots=True)
class _Asked:
    """The retrievals of one query."""

    query: str
    retrievals: list[set[str]] = field(default_factory=list)
    verdicts: dict[str, list[bool]] = field(default_factory=dict)
    """The verdicts on each passage, by its text: True for relevant, once for each time that it was judged."""


def estimate_recall(runs: Iterable[ScoredRun]) -> list[QueryRecall]:
    """Returns every query that was asked more than once and has judged passages, the lowest recall first."""
    by_query: dict[str, _Asked] = {}
    for scored in runs:
        judged = _judged(scored.scores)
        for step in scored.run.steps:
            query = step.query or scored.run.question
            listed = step.candidates or step.passages
            if not normalise(query) or not listed:
                continue
            asked = by_query.setdefault(normalise(query), _Asked(query))
            asked.retrievals.append({passage.text for passage in listed})
            for position, passage in enumerate(_positions(step), 1):
                verdict = judged.get((step.id, position))
                if verdict is not None:
                    asked.verdicts.setdefault(passage, []).append(verdict)
    found = [_recall(asked) for asked in by_query.values() if len(asked.retrievals) > 1 and asked.verdicts]
    return sorted(found, key=lambda one: (math.isnan(one.recall), one.recall))


def _judged(scores: Iterable[Score]) -> dict[tuple[str, int], bool]:
    """Returns whether the passage at each step and position is relevant: by its grade, else by p_relevant."""
    verdicts: dict[tuple[str, int], bool] = {}
    for name, least in (("p_relevant", 0.5), ("grade", RELEVANT_GRADE)):
        for score in scores:
            if score.name == name and score.position is not None:
                verdicts[score.step_id, score.position] = score.value >= least
    return verdicts


def _positions(step: RetrievalStep) -> list[str]:
    """Returns the texts as positions of scores count them: candidates, then what the model got beside them."""
    listed = [passage.text for passage in step.candidates or step.passages]
    seen = set(listed)
    return listed + [passage.text for passage in step.passages if passage.text not in seen]


def _recall(asked: _Asked) -> QueryRecall:
    relevant = {text for text, verdicts in asked.verdicts.items() if 2 * sum(verdicts) >= len(verdicts)}
    texts = list(dict.fromkeys(text for retrieval in asked.retrievals for text in retrieval))
    table = np.array([[text in retrieval for text in texts] for retrieval in asked.retrievals])
    total = recapture(table, [text in relevant for text in texts])
    mean = sum(len(retrieval & relevant) for retrieval in asked.retrievals) / len(asked.retrievals)
    there = math.isfinite(total.total) and total.total > 0
    recall = mean / total.total if there else math.nan
    return QueryRecall(asked.query, len(asked.retrievals), found=len(relevant), total=total, recall=recall)

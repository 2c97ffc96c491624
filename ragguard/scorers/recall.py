"""Estimates recall where not all relevant passages are known, from several retrievals of one query in one run.

Several retrievals of one query find partly the same passages. From the overlap follows how many passages none of them
found (`metrics.recapture`). The names of all scores say that they are estimates.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ragguard.metrics import rarity
from ragguard.metrics.recapture import Population, recapture
from ragguard.metrics.topk import f
from ragguard.records import Result
from ragguard.runtime.arguments import share
from ragguard.scorers.estimates import Estimate
from ragguard.scorers.grades import RELEVANT, contradiction
from ragguard.scorers.probes.question import Ask, answered
from ragguard.scorers.probes.rating import grade, read_rating
from ragguard.scorers.score_writer import ScoreWriter
from ragguard.scorers.view import StepView, View, retrieved_texts
from ragguard.text.answers import normalise


@dataclass(frozen=True, slots=True)
class Recall:
    """Gives `relevant_total`, `recall_estimated`, `f_estimated` and `proc_estimated` of steps that share their query
    with others of the run, where the run has no pool."""

    name: ClassVar[str] = "recall"
    version: ClassVar[str] = "1"
    models: ClassVar[tuple[str, ...]] = ("judge",)

    alpha: float = 0.5
    """The weight of K in F beside the number of relevant passages, from 0 to 1."""

    def __post_init__(self) -> None:
        share("Recall.alpha", self.alpha)

    async def score(self, view: View, ask: Ask) -> Sequence[Result]:
        writer = ScoreWriter(view, self)
        by_query: dict[str, list[StepView]] = defaultdict(list)
        for step in view.steps:
            by_query[normalise(view.query_of(step))].append(step)
        repeated = {query: steps for query, steps in by_query.items() if query and len(steps) > 1}
        if view.run.pool or not repeated:
            return writer.results()
        contradicting = contradiction(view, [step for steps in repeated.values() for step in steps])
        if contradicting is not None:
            writer.fail(contradicting, "recall")
            return writer.results()
        given = _given(repeated.values())
        wanted = {
            (query, text): grade(view.setting.judge_prompts, view.query_of(steps[0]), text)
            for query, steps in repeated.items()
            for text in retrieved_texts(steps)
            if text not in given
        }
        answers = await ask(list(wanted.values()))
        grades: dict[tuple[str, str], int] = {}
        for (key, question), answer in zip(wanted.items(), answers, strict=True):
            with writer.failing("recall, as a passage has no grade"):
                grades[key] = read_rating(question, answered(answer)).value
        for query, steps in repeated.items():
            known = {text: given.get(text, grades.get((query, text))) for text in retrieved_texts(steps)}
            if None not in known.values():
                self._query(
                    writer, steps, {text: value for text, value in known.items() if value is not None}
                )
        return writer.results()

    def _query(self, writer: ScoreWriter, steps: Sequence[StepView], grades: dict[str, int]) -> None:
        """Adds the scores of the steps that asked one query."""
        found = [set(step.texts(range(step.candidates))) for step in steps]
        table = np.array([[text in texts for text in grades] for texts in found])
        total = recapture(table, [value >= RELEVANT for value in grades.values()])
        if not math.isfinite(total.total):
            return
        for step in steps:
            self._step(writer, step, grades, total, len(found))

    def _step(
        self, writer: ScoreWriter, step: StepView, grades: dict[str, int], total: Population, retrievals: int
    ) -> None:
        chosen = [grades[text] for text in dict.fromkeys(step.texts(step.got))]
        found = [grades[text] for text in dict.fromkeys(step.texts(range(step.candidates)))]
        k, relevant = step.judged_places("passages"), sum(value >= RELEVANT for value in chosen)
        there = sum(value >= RELEVANT for value in grades.values())
        if not k or len(chosen) > k:
            return
        estimates = {
            "relevant_total": Estimate(total.total, total.stderr),
            "recall_estimated": _moved(lambda n: relevant / n if n else math.nan, total, there),
            "f_estimated": _moved(lambda n: float(f(relevant, k, n, self.alpha)), total, there),
            "proc_estimated": _moved(lambda n: float(rarity.proc(_pool(grades, n), found, k)), total, there),
        }
        for name, one in estimates.items():
            writer.add(
                name, one.value, step=step, who="judge", stderr=one.stderr, label="estimated",
                explanation=f"{there} relevant passages found in {retrievals} retrievals",
                metadata={
                    "k": k, "relevant_total": total.total, "low": total.low, "high": total.high,
                    "retrievals": retrievals,
                },
            )  # fmt: skip


def _given(repeated: Iterable[Sequence[StepView]]) -> dict[str, int]:
    """Returns the grade that came with each passage, by its text."""
    passages = (passage for steps in repeated for step in steps for passage in step.all)
    return {passage.text: passage.grade for passage in passages if passage.grade is not None}


def _moved(value: Callable[[float], float], total: Population, least: float) -> Estimate:
    """Returns a number at the estimated total, and as its error half the difference between its values at one
    standard error below and above."""
    low, high = max(least, total.total - total.stderr), total.total + total.stderr
    return Estimate(value(total.total), abs(value(low) - value(high)) / 2)


def _pool(grades: dict[str, int], total: float) -> list[int]:
    """Returns the grades of all passages; unseen relevant passages get the grades of the seen relevant ones."""
    seen = list(grades.values())
    relevant = [value for value in seen if value >= RELEVANT]
    unseen = round(total - len(relevant))
    best = round(unseen * relevant.count(5) / len(relevant)) if relevant else 0
    return [*seen, *[5] * best, *[4] * (unseen - best)]

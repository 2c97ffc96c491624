"""Scores by grades: a selection beside the best passages that exist (RA-nWG, PROC), and how much of it is junk."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ragguard.errors import ScoringError
from ragguard.facts.steps import StepView
from ragguard.metrics import rarity
from ragguard.metrics.topk import f, f_e, t, t_u
from ragguard.records import Passage, Result, Stage
from ragguard.runtime.arguments import LARGEST, number_between, share
from ragguard.scorers.probes import Reading, grade, read_rating
from ragguard.scorers.question import Ask, LabelQuestion, answered
from ragguard.scorers.scorer import NEW_SETTING, ScoreWriter, of_list
from ragguard.scorers.view import View, hash_references
from ragguard.text.language import normalise

RELEVANT = 4
"""The least grade that counts as relevant."""


@dataclass(frozen=True, slots=True)
class Grades:
    """Gives `grade`, `ra_nwg`, `proc`, `pct_proc`, `selection_efficiency`, `n_recall`, `n_recall_5`, `recall`,
    `precision_at_grade`, `harm`, `harm_1`, `t`, `t_u`, `f`, `f_e`."""

    name: ClassVar[str] = "grades"
    version: ClassVar[str] = "2"
    models: ClassVar[tuple[str, ...]] = ("judge",)
    live = "at once"

    alpha: float = 1.0
    """How much the rarity of a grade in the pool weighs in RA-nWG; 0 or more."""
    t_alpha: float = 0.5
    """The cost of an irrelevant passage in T and T_u, from 0 to 1."""
    f_alpha: float = field(default=0.5, metadata=NEW_SETTING)
    """The weight of precision beside recall in F and F_e, from 0 to 1."""
    cap4: float = field(default=1.0, metadata=NEW_SETTING)
    """The most that a passage of grade 4 weighs in RA-nWG beside one of grade 5, however rare; from 0 to 1."""
    cap3: float = field(default=0.25, metadata=NEW_SETTING)
    """The most that a passage of grade 3 weighs in RA-nWG beside one of grade 5, however rare; from 0 to 1."""

    def __post_init__(self) -> None:
        number_between("Grades.alpha", self.alpha, 0, LARGEST, "a finite number, 0 or more")
        for name in ("t_alpha", "f_alpha", "cap4", "cap3"):
            share(f"Grades.{name}", getattr(self, name))

    async def score(self, view: View, ask: Ask) -> Sequence[Result]:
        writer = ScoreWriter(view, self)
        writer.left_out()
        pool = [f"{passage.grade} {passage.text}" for passage in view.run.pool or ()]
        report = _GradeReport(self, writer, (hash_references("pool", pool),) if pool else ())
        with writer.failing("grades"):
            await report.judge(ask)
            for step in view.steps_with_empty:
                report.step(step, "passages")
                if step.changed:
                    report.step(step, "candidates")
        return writer.results()


@dataclass(slots=True)
class _GradeReport:
    settings: Grades
    writer: ScoreWriter
    mark: tuple[str, ...]
    """A digest of the given pool, for the identity of scores; empty without a pool."""
    found: dict[tuple[str, str], int] = field(default_factory=dict)
    """The grade of each text for each normalised query."""
    estimated: bool = False
    """True where some grade was estimated by sampling, so that the error of what follows from grades is unknown."""

    async def judge(self, ask: Ask) -> None:
        """Finds the grade of every passage of the run and of its pool; a given grade is not asked for. Raises
        ScoringError for a passage with two different ones for one query."""
        view = self.writer.view
        listed: list[tuple[StepView | None, int, Passage, str]] = [
            (step, at, step.all[at], view.query_of(step)) for step in view.steps for at in sorted(step.judged)
        ]
        listed += [(None, -1, passage, view.run.question) for passage in view.run.pool or ()]
        pooled = {passage.text: passage.grade for passage in view.run.pool or ()}
        given: dict[tuple[str, str], int] = {}
        questions: dict[int, LabelQuestion] = {}
        for index, (*_, passage, query) in enumerate(listed):
            value = pooled.get(passage.text) if passage.grade is None else passage.grade
            if value is None:
                questions[index] = grade(view.setting.judge_prompts, query, passage.text)
            elif (known := given.setdefault((normalise(query), passage.text), value)) != value:
                raise ScoringError(f"one passage has the grades {known} and {value}; give it one")
        answers = dict(zip(questions, await ask(list(questions.values())), strict=True))
        for index, (step, at, passage, query) in enumerate(listed):
            what = f"grade of passage {at + 1}" if step else "grade of a passage of the pool"
            key = normalise(query), passage.text
            with self.writer.failing(what, step):
                if index in questions:
                    label, rating = "", read_rating(questions[index], answered(answers[index]))
                else:
                    label, rating = "given", Reading(given[key], expectation=given[key])
                self.found[key] = int(rating.value)
                self.estimated = self.estimated or rating.stderr != 0.0
                if step:
                    self.writer.add(
                        "grade", rating, step=step, at=at, who="judge", label=label, references=self.mark
                    )

    def step(self, step: StepView, stage: Stage) -> None:
        """Adds the measures of one list of a step. A place that is left empty counts as nothing."""
        k = step.judged_places(stage)
        texts, candidates = step.texts(step.listed(stage)), step.texts()
        query = normalise(self.writer.view.query_of(step))
        # A repeated passage fills a place and adds nothing.
        chosen = self._grades(dict.fromkeys(texts, query))
        reachable = self._grades(dict.fromkeys(candidates, query))
        pool, origin = self._pool(query, candidates)
        if not k or chosen is None or reachable is None or pool is None:
            return
        own = self.settings
        relevant = sum(1 for value in chosen if value >= RELEVANT)
        measures = {
            "precision_at_grade": rarity.precision_at_grade(chosen, k, RELEVANT),
            "harm": rarity.harm(chosen, k),
            "harm_1": rarity.harm(chosen, k, at_most=1),
            "t": t(relevant, k, own.t_alpha, delivered=len(texts)),
            "t_u": t_u(relevant, len(texts), own.t_alpha) if texts else 0.0,
        }
        wide = sum(1 for value in reachable[: 2 * k] if value >= RELEVANT)
        delivered = stage == "passages"
        if delivered and len(candidates) == len(reachable) >= 2 * k and relevant <= wide:
            measures["f_e"] = f_e(relevant, k, wide, own.f_alpha)
        rarities = {"alpha": own.alpha, "cap4": own.cap4, "cap3": own.cap3}
        pooled = {passage.text for passage in self.writer.view.run.pool or ()}
        # What was rewritten after it was retrieved cannot be in the pool.
        outside = len({*step.texts(range(step.candidates))} - pooled) if pooled else 0
        if outside and delivered:
            error = ScoringError(
                f"{outside} of the retrieved texts are not in the run's pool, so that it does not hold all there is; "
                "add them"
            )
            self.writer.fail(error, "ra_nwg, recall, f and proc", step)
        if len(pool) > len(chosen) and not outside:
            total = sum(1 for value in pool if value >= RELEVANT)
            measures["ra_nwg"] = rarity.ra_nwg(pool, chosen, k, **rarities)
            measures["n_recall"] = rarity.n_recall(pool, chosen, k, RELEVANT)
            measures["n_recall_5"] = rarity.n_recall(pool, chosen, k, 5)
            if relevant <= total:
                measures["recall"] = relevant / total if total else math.nan
                measures["f"] = f(relevant, k, total, own.f_alpha)
        if delivered and len(pool) > len(reachable) and not outside:
            measures["proc"] = rarity.proc(pool, reachable, k, **rarities)
            measures["pct_proc"] = rarity.pct_proc(pool, reachable, chosen, k, **rarities)
        elif delivered and len(reachable) > len(chosen):
            # Beside its own candidates alone, PROC would be 1 by construction.
            measures["selection_efficiency"] = rarity.ra_nwg(reachable, chosen, k, **rarities)
        facts = {"kept": len(texts), "pool": origin, "pool_size": len(pool), "not_judged": step.over_cap}
        about: dict[str, Any] = {
            **of_list(step, stage),
            "stderr": None if self.estimated else 0.0,
            "references": self.mark,
            "reference_source": "gold" if origin == "given" else "none",
            "metadata": {"k": k, **facts} if step.places else facts,
        }
        for name, value in measures.items():
            self.writer.add(name, float(value), who="judge", **about)

    def _grades(self, queries: Mapping[str, str]) -> list[int] | None:
        """Returns the grade of each text for the normalised query beside it; None where one is missing."""
        found = [self.found.get((query, text)) for text, query in queries.items()]
        return None if None in found else [value for value in found if value is not None]

    def _pool(self, query: str, candidates: Sequence[str]) -> tuple[list[int] | None, str]:
        """Returns the grades of the run's pool, else of all candidates for the query; and which of these it is."""
        view = self.writer.view
        if pool := view.run.pool:
            asked = dict.fromkeys((passage.text for passage in pool), normalise(view.run.question))
            return self._grades(asked | dict.fromkeys(candidates, query)), "given"
        same = [other for other in view.steps if normalise(view.query_of(other)) == query]
        texts = [text for other in same for text in other.texts()]
        return self._grades(dict.fromkeys([*candidates, *texts], query)), "steps"

"""The responses that readers write from contexts of a report, and what contexts and responses cover of its
sub-questions.

A response has one sentence for each sub-question that the reader finds an answer to; a judge rates passages and
sentences alike for every sub-question, as CRUX has it (Ju et al. 2025).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ragguard.engines.base import Engine
from ragguard.engines.entailer import EngineEntailer
from ragguard.engines.prompts import PromptSet, load_prompts
from ragguard.lab.validation.answering import grader, with_answers, with_outcomes
from ragguard.lab.validation.contexts import OUTCOMES, Context, Progress, silent
from ragguard.metrics import (
    alpha_ndcg,
    answerable_questions,
    average_precision,
    coverage,
    density,
    is_abstention,
    ndcg,
    recall,
    required_subset,
)
from ragguard.metrics.arrays import Booleans, Floats
from ragguard.scorers.asker import Asker, Models
from ragguard.scorers.coverage import Ratings
from ragguard.scorers.question import count_tokens
from ragguard.world.grammar import RELATIONS, fact_phrasings, sentence
from studies.reports import Part, Report

ETA, STRICT = 3.0, 5.0
IDEAL = "oracle result y*"
Plan = Mapping[str, Sequence[tuple[int, ...]]]
"""The passages of the base for every report, by the plan's name."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A report with the judge's ratings of its base, (passages, parts)."""

    report: Report
    ratings: Floats
    oracle: tuple[int, ...]
    """The fewest relevant passages that answer every sub-question that any passage answers: Z*."""
    answerable: Booleans

    def tokens(self, places: Iterable[int]) -> int:
        return sum(count_tokens(self.report.base[at].text) for at in places)


@dataclass(slots=True)
class Responses:
    """The responses that the reader wrote from each context of each report."""

    statements: dict[tuple[str, tuple[int, ...]], list[str]] = field(default_factory=dict)
    right: dict[tuple[str, tuple[int, ...]], float] = field(default_factory=dict)
    """The share of each response's parts that are right by the world's references."""
    ratings: dict[str, Ratings] = field(default_factory=dict)
    """The ratings of the statements, by report."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Numbers by name, (contexts, reports): a context is one pipeline's, at one size, for every report."""

    names: tuple[str, ...]
    values: Mapping[str, Floats]


async def rated(reports: Sequence[Report], judge: Engine, progress: Progress = silent) -> list[Judged]:
    """Asks the judge to rate every passage for every sub-question of its report."""
    found = []
    asker, prompts = await _asker(judge)
    for number, report in enumerate(reports):
        progress("rating passages", number, len(reports))
        ratings = Ratings(tuple(part.question for part in report.parts))
        texts = [passage.text for passage in report.base]
        await ratings.learn(texts, prompts, asker)
        table = ratings.table(texts)
        good = [at for at, relevant in enumerate(report.relevant) if relevant]
        oracle = tuple(good[at] for at in required_subset(table[good], ETA).required.tolist())
        found.append(Judged(report, table, oracle, answerable_questions(table[good], ETA)))
    progress("rating passages", len(reports), len(reports))
    return found


async def written(
    judged: Sequence[Judged],
    plans: Sequence[Plan],
    reader: Engine,
    judge: Engine,
    progress: Progress = silent,
) -> Responses:
    """Writes a response from every context: a statement for each part that the reader finds an answer to, and its
    ratings."""
    wanted: dict[tuple[int, tuple[int, ...]], None] = {}
    for plan in plans:
        for each in plan.values():
            wanted |= dict.fromkeys(enumerate(each))
    # Contexts with the same beginning are neighbours: an engine with a prefix cache reads that beginning once.
    wanted = dict.fromkeys(sorted(wanted))
    contexts = [
        Context(
            id=f"{judged[at].report.id}/{places}/{number}",
            question_id=judged[at].report.id,
            question=part.question,
            passages=tuple(judged[at].report.base[place] for place in places),
            references=part.references,
        )
        for at, places in wanted
        for number, part in enumerate(judged[at].report.parts)
    ]
    answers = await with_answers(contexts, reader, progress=progress)
    graded = iter(await with_outcomes(answers, await grader(judge), progress=progress))
    said = Responses()
    for at, places in wanted:
        report = judged[at].report
        own = [next(graded) for _ in report.parts]
        said.statements[report.id, places] = [
            stated(part, context.answer or "")
            for part, context in zip(report.parts, own, strict=True)
            if not is_abstention(context.answer or "")
        ]
        said.right[report.id, places] = float(np.mean([one.outcome == OUTCOMES["correct"] for one in own]))
    asker, prompts = await _asker(judge)
    for number, one in enumerate(judged):
        progress("rating responses", number, len(judged))
        ratings = said.ratings[one.report.id] = Ratings(tuple(part.question for part in one.report.parts))
        texts = [text for (name, _), own in said.statements.items() if name == one.report.id for text in own]
        await ratings.learn([*texts, *ideal(one.report)], prompts, asker)
    progress("rating responses", len(judged), len(judged))
    return said


def stated(part: Part, answer: str) -> str:
    """Returns an answer as a sentence, as a report would have it: a bare name answers no question that is not with
    it."""
    opening, core = fact_phrasings(RELATIONS[part.fact.relation], "heldout")[0]
    return sentence(opening, core, part.fact.subject, answer)


def ideal(report: Report) -> list[str]:
    """Returns the best response that there is: y*."""
    return [stated(part, part.references[0]) for part in report.parts]


def measured(plan: Plan, judged: Sequence[Judged], said: Responses) -> Measured:
    """Returns all measures of contexts and responses."""
    rows: dict[str, list[list[float]]] = {}
    for places in plan.values():
        each = [_measure(one, chosen, said) for one, chosen in zip(judged, places, strict=True)]
        for name in each[0]:
            rows.setdefault(name, []).append([one[name] for one in each])
    return Measured(tuple(plan), {name: np.array(values) for name, values in rows.items()})


def _measure(judged: Judged, places: tuple[int, ...], said: Responses) -> dict[str, float]:
    report, answerable = judged.report, judged.answerable
    table = judged.ratings[list(places)].reshape(len(places), len(report.parts))
    relevant = [float(good) for good in report.relevant]
    hit = [relevant[at] for at in places]
    good = [at for at, value in enumerate(relevant) if value]
    k, total = max(1, len(places)), len(good)
    shortest = judged.tokens(judged.oracle)
    values = {
        "Cov(Z)": coverage(table, ETA, answerable),
        "Cov(Z), η = 5": coverage(table, STRICT, answerable),
        "α-nDCG@k": alpha_ndcg(table, ETA, ideal=judged.ratings[good], k=k),
        "Recall": recall(hit, total),
        "MAP": average_precision(hit, total),
        "nDCG@k": ndcg(hit, k=k, ideal=relevant),
        "Den(Z)": density(
            np.nan_to_num(coverage(table, ETA, answerable)), judged.tokens(places), 1.0, shortest
        ),
        "right": said.right[report.id, places],
    }
    response = said.statements[report.id, places]
    values |= _of_response(judged, response, said)
    # An empty context or an empty response covers no sub-question.
    return {name: float(np.nan_to_num(value)) for name, value in values.items()}


def _of_response(judged: Judged, statements: Sequence[str], said: Responses) -> dict[str, float]:
    table = said.ratings[judged.report.id].table(statements)
    covered = float(np.nan_to_num(coverage(table, ETA, judged.answerable)))
    length = sum(map(count_tokens, statements))
    return {
        "Cov(y)": covered,
        "Cov(y), η = 5": float(np.nan_to_num(coverage(table, STRICT, judged.answerable))),
        "Den(y)": float(density(covered, length, 1.0, judged.tokens(judged.oracle))),
    }


def with_ideal(bounds: Measured, judged: Sequence[Judged], said: Responses) -> Measured:
    """Returns the bounds with y* among them, which is written from no context."""
    best = [_of_response(one, ideal(one.report), said) | {"right": 1.0} for one in judged]
    values = {
        name: np.vstack([rows, [one.get(name, np.nan) for one in best]])
        for name, rows in bounds.values.items()
    }
    return Measured((*bounds.names, IDEAL), values)


async def _asker(judge: Engine) -> tuple[Asker, PromptSet]:
    prompts = load_prompts((await judge.info()).prompts)
    return Asker(Models(judge, judge, EngineEntailer(judge, prompts))), prompts

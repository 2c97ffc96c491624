"""Compares measures of a selection as predictors of the response: T, T_u, F, F_e, nDCG (Schwartz et al.), RA-nWG and
%PROC.

A search ranks a base, the reader gets its top K, and a judge grades the response from 1 to 5 beside the one that all
relevant passages give.
`studies.selections` compares the measures, as it does for the paper's own data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ragguard import world
from ragguard.analysis.tables import Cell, Table
from ragguard.engines.base import Engine
from ragguard.engines.connect import connect
from ragguard.engines.entailer import EngineEntailer
from ragguard.engines.prompts import load_prompts
from ragguard.lab.validation.answering import with_answers
from ragguard.lab.validation.contexts import Context, Progress, silent
from ragguard.metrics import correlate, ndcg, pct_proc, ra_nwg
from ragguard.scorers.asker import Asker, Models
from ragguard.scorers.probes import read_rating, response_grade
from ragguard.scorers.question import answered
from ragguard.world import Counts
from studies.hard_world import hard_cases
from studies.missing_five import missing_five
from studies.reasons import with_reasons
from studies.reports import SEARCHES, Report, join, of_case
from studies.selections import (
    Selection,
    Selections,
    alphas,
    coefficients,
    correlations,
    differences,
    grades,
    segments,
)

KS: Mapping[str, Sequence[int]] = {
    "Parts": range(2, 11), "Hops": range(2, 11), "Statements": range(2, 11), "Hard": (2, 3, 4, 6, 8, 12, 16, 20),
}  # fmt: skip
"""The sizes of selections, by data set."""
LEAST = 60
"""The number of contexts that a segment needs to be shown at full size; the paper needs 300 of half a million."""
WIDE = 3
"""The K/N_p from which on measures are compared for overtaking."""


@dataclass(frozen=True, slots=True)
class Read:
    """The top K of a search, and the position in the base of its report of each passage."""

    selection: Selection
    places: tuple[int, ...]


def select(data: str, report: Report, search: str, k: int, seed: int = 0) -> Read:
    """Counts the top K of a search."""
    ranking = report.ranked(SEARCHES[search], seed)
    relevant, graded = report.relevant, report.grades
    top, wide = ranking[:k], ranking[: 2 * k]
    hit = [float(relevant[at]) for at in top]
    total = sum(relevant)
    # trec_eval gives 0 where no passage is relevant.
    values = {
        "nDCG@K": ndcg(hit, len(top), ideal=(1.0,) * total), "nDCG@K of the list": ndcg(hit, len(top)),
    }  # fmt: skip
    of_grades = {
        "RA-nWG": ra_nwg(graded, [graded[at] for at in top], k),
        "%PROC": pct_proc(graded, [graded[at] for at in wide], [graded[at] for at in top], k),
    }
    counts = Selection(
        data=data, search=search, question=report.id, k=len(top), n_p=int(sum(hit)), total=total,
        n_p_2k=sum(relevant[at] for at in wide),
        values={name: float(np.nan_to_num(value)) for name, value in values.items()}
        | {name: float(value) for name, value in of_grades.items()},
    )  # fmt: skip
    return Read(counts, top)


async def study(
    engine: Engine,
    *,
    questions: int = 60,
    seed: int = 0,
    progress: Progress = silent,
    judge: Engine | None = None,
) -> list[Table]:
    """Makes the tables, over as many reports of each data set."""
    reader = connect(engine)
    judging = reader if judge is None or judge is engine else connect(judge)
    graded: list[tuple[Selection, float]] = []
    for name, reports in data_sets(questions, seed).items():
        read = [
            select(name, report, search, k, seed)
            for report in reports for search in SEARCHES for k in KS[name] if k <= len(report.base)
        ]  # fmt: skip
        graded += await with_grades(read, reports, reader, judging, progress)
    found = Selections.of(graded)
    least = min(LEAST, len(found) // 30)
    model = (await reader.info()).model
    tables = [
        grades(found, least=1, notes=how(model)),
        correlations(found),
        order_alone(found),
        differences(found),
        segments(found, least=least),
        overtaking(found),
        coefficients(found),
        alphas(found),
    ]
    return [*with_reasons(tables, await reader.info(), await judging.info()), missing_five()]


def data_sets(questions: int, seed: int) -> dict[str, list[Report]]:
    """Returns reports that want everything relevant (parts, hops), and ones for which any of it will do (statements,
    hard)."""
    many, few = Counts(2, 2, 0, 3), Counts(4, 3, 0, 8)
    sizes = [2 + number % 3 for number in range(questions)]
    single = iter(world.cases(sum(sizes), seed=seed, distractors=many))
    return {
        "Parts": [
            join([next(single) for _ in range(size)], f"parts-{number}") for number, size in enumerate(sizes)
        ],
        "Hops": [
            join([case], f"hops-{number}")
            for number, case in enumerate(world.cases(questions, seed=seed, hops=2, distractors=few))
        ],
        "Statements": [
            join([case], f"statements-{number}", statements=sizes[number])
            for number, case in enumerate(world.cases(questions, seed=seed + 1, distractors=few))
        ],
        # Twice the largest K is about the size of the base, so that the top 2K is an estimate, not the number itself.
        "Hard": [
            of_case(hard_cases(number + 1, seed, gold=2 + number % 4, each=8)[number], f"hard-{number}")
            for number in range(questions)
        ],
    }


async def with_grades(
    read: Sequence[Read],
    reports: Sequence[Report],
    reader: Engine,
    judge: Engine,
    progress: Progress = silent,
) -> list[tuple[Selection, float]]:
    """Returns the selections with the grade of their response: the mean over its parts, each beside its ideal,
    rounded."""
    by_id = {report.id: report for report in reports}
    wanted: dict[tuple[str, tuple[int, ...]], None] = dict.fromkeys(
        (one.selection.question, one.places) for one in read
    )
    ideal = {report.id: tuple(at for at, good in enumerate(report.relevant) if good) for report in reports}
    wanted |= dict.fromkeys(ideal.items())
    contexts = [
        Context(
            id=f"{name}/{places}/{number}",
            question_id=name,
            question=part.question,
            passages=tuple(by_id[name].base[at] for at in places),
        )
        for name, places in wanted
        for number, part in enumerate(by_id[name].parts)
    ]
    said = iter(await with_answers(contexts, reader, progress=progress))
    answers = {key: [next(said).answer or "" for _ in by_id[key[0]].parts] for key in wanted}
    prompts = load_prompts((await judge.info()).prompts)
    asked = {
        (name, places): [
            response_grade(prompts, part.question, answer, [best])
            for part, answer, best in zip(
                by_id[name].parts, answers[name, places], answers[name, ideal[name]], strict=True
            )
        ]
        for name, places in wanted
    }
    distinct = list(dict.fromkeys(question for group in asked.values() for question in group))
    progress("grading responses", 0, len(distinct))
    asker = Asker(Models(judge, judge, EngineEntailer(judge, prompts)))
    ratings = {
        question: read_rating(question, answered(answer)).value
        for question, answer in zip(distinct, await asker(distinct), strict=True)
    }
    progress("grading responses", len(distinct), len(distinct))
    rounded = {
        key: float(math.floor(np.mean([ratings[question] for question in group]) + 0.5))
        for key, group in asked.items()
    }
    return [(one.selection, rounded[one.selection.question, one.places]) for one in read]


def how(model: str) -> tuple[str, ...]:
    """Describes how the grades were made."""
    searches = ", ".join(f"{name} ({error})" for name, error in SEARCHES.items())
    return (
        f"Reader and judge: {model} unless a row says otherwise. Parts: two to four questions in one, each with "
        "its passage. Hops: a two-hop question. Statements: one fact, stated two to four times. Hard: one fact, "
        "stated two to five times, among forty passages of one to three facts, near names and outdated facts. The "
        "response to several parts is one answer for each part, read with all K passages. Its grade is the "
        "rounded mean of the parts' grades.",
        f"Instead of four embeddings there are three searches that differ in their error: {searches}. RA-nWG and "
        "%PROC have the world's grades, %PROC the top 2K as what was retrieved.",
    )


def overtaking(found: Selections) -> Table:
    """Makes the table of differences where K is three times N_p and more: there the paper sees nDCG and F_e overtake
    F."""
    table = differences(found.where(found.segment >= WIDE))
    return replace(table, name="sets-overtaking", title=f"The same differences at K/N_p of {WIDE} and more")


def order_alone(found: Selections) -> Table:
    """Tests whether the reader minds where the relevant passages stand, among contexts of equal counts."""
    rows: list[tuple[Cell, ...]] = []
    for name, group in found.parts:
        alike = [f"{k} {total} {n_p}" for k, total, n_p in zip(group.k, group.total, group.n_p, strict=True)]
        order = correlate(group.values["nDCG@K"], group.grade, groups=alike)
        rows.append((name, order.value, order.low, order.high, order.counted))
    return Table(
        "sets-order", "Whether the order counts",
        ("Data", "Spearman of nDCG@K and the grade", "low", "high", "groups"), tuple(rows),
        notes=("The mean over groups of contexts of equal K, N_p and n_p, with the interval of draws of such groups.",),
    )  # fmt: skip

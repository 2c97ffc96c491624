"""Which measure of a selection predicts the response: T, T_u, F, F_e, nDCG (Schwartz et al.), RA-nWG and %PROC.

A search ranks a base, the reader gets its top K, and a judge grades the response from 1 to 5 beside the one that all
relevant passages give. The measures are compared over K/N_p and, where they have one, at their best α.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ragguard import world
from ragguard.engines.base import Engine
from ragguard.engines.connect import connect
from ragguard.engines.entailment.engine import EngineEntailer
from ragguard.engines.prompts import load_prompts
from ragguard.metrics import best_alpha, correlate, f, f_e, ndcg, pct_proc, ra_nwg, t, t_u
from ragguard.metrics.arrays import Floats
from ragguard.probes.question import answered
from ragguard.probes.rating import read_rating
from ragguard.probes.response_grade import response_grade
from ragguard.scorers.asker import Asker
from ragguard.scorers.respondents import Engines
from ragguard.validate.answering import with_answers
from ragguard.validate.contexts import Context
from ragguard.validate.progress import Progress, silent
from ragguard.validate.tables import Cell, Table
from ragguard.world import Counts
from studies.pooled import pooled_difference
from studies.reasons import with_reasons
from studies.reports import SEARCHES, Report, join

KS = range(2, 11)
LEAST = 60
"""Contexts that a segment needs to be shown at full size; the paper needs 300 of half a million."""
GAPS = (("T", "F"), ("T_u", "T"), ("nDCG", "F"), ("F_e", "F"), ("T", "nDCG"), ("RA-nWG", "F"), ("%PROC", "F"))
DRAWS = 200
_GRID = tuple(step / 10 for step in range(11))
_NO_CAP = 10**12


@dataclass(frozen=True, slots=True)
class Selection:
    """The top K of one search, as counts, and the response's grade."""

    report: str
    search: str
    places: tuple[int, ...]
    k: int
    n_p: int
    """Relevant ones among the top K."""
    n_p_2k: int
    """And among twice as many."""
    total: int
    """Relevant ones in the whole base: N_p."""
    ndcg: float
    ra_nwg: float
    pct_proc: float
    grade: float = math.nan

    @property
    def segment(self) -> float:
        """K/N_p, rounded to its first digit."""
        return float(f"{self.k / self.total:.1g}")


class Fitted(NamedTuple):
    """A measure at the α that goes best with the grades, and that α (nan: it has none)."""

    values: Floats
    alpha: float


def select(report: Report, search: str, k: int, seed: int = 0) -> Selection:
    """The top K of a search, measured."""
    ranking = report.ranked(SEARCHES[search], seed)
    relevant, grades = report.relevant, report.grades
    top, wide = ranking[:k], ranking[: 2 * k]
    hit = [float(relevant[at]) for at in top]
    return Selection(
        report.id, search, top, len(top), int(sum(hit)), sum(relevant[at] for at in wide), sum(relevant),
        # As trec_eval: nothing relevant is 0. The best order is that of the list itself, as N_p is not known.
        float(np.nan_to_num(ndcg(hit))),
        float(ra_nwg(grades, [grades[at] for at in top], k)),
        float(pct_proc(grades, [grades[at] for at in wide], [grades[at] for at in top], k)),
    )  # fmt: skip


def fitted(selections: Sequence[Selection], grades: Sequence[float]) -> dict[str, Fitted]:
    """Every measure of the selections."""
    n_p, k, wide, total = (
        np.array([getattr(one, name) for one in selections], dtype=np.float64)
        for name in ("n_p", "k", "n_p_2k", "total")
    )
    with_alpha: dict[str, Callable[[float], Floats]] = {
        "T": lambda alpha: np.asarray(t(n_p, k, alpha)),
        "T_u": lambda alpha: np.asarray(t_u(n_p, k, alpha)),
        "F": lambda alpha: np.asarray(f(n_p, k, total, alpha)),
        "F_e": lambda alpha: np.asarray(f_e(n_p, k, wide, alpha)),
    }
    found = {}
    for name, measure in with_alpha.items():
        alpha = best_alpha(measure, grades).alpha
        found[name] = Fitted(measure(0.5 if math.isnan(alpha) else alpha), alpha)
    for name, attribute in (("nDCG", "ndcg"), ("RA-nWG", "ra_nwg"), ("%PROC", "pct_proc")):
        found[name] = Fitted(np.array([getattr(one, attribute) for one in selections]), math.nan)
    return found


async def study(
    engine: Engine,
    *,
    questions: int = 60,
    seed: int = 0,
    progress: Progress = silent,
    judge: Engine | None = None,
) -> list[Table]:
    """The tables, over as many reports of each data set."""
    reader = connect(engine)
    judging = reader if judge is None or judge is engine else connect(judge)
    graded: dict[str, list[Selection]] = {}
    for name, reports in data_sets(questions, seed).items():
        selections = [
            select(report, search, k, seed) for report in reports for search in SEARCHES for k in KS
            if k <= len(report.base)
        ]  # fmt: skip
        graded[name] = await with_grades(selections, reports, reader, judging, progress)
    model = (await reader.info()).model
    tables = [
        distribution(graded, model),
        correlations(graded),
        differences(graded),
        segments(graded),
        kinds(graded),
        alphas(graded),
    ]
    return with_reasons(tables, await reader.info(), await judging.info())


def data_sets(questions: int, seed: int) -> dict[str, list[Report]]:
    """Reports that want everything relevant (parts, hops), and ones for which any of it will do (statements)."""
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
    }


async def with_grades(
    selections: Sequence[Selection],
    reports: Sequence[Report],
    reader: Engine,
    judge: Engine,
    progress: Progress = silent,
) -> list[Selection]:
    """The selections with the grade of their response: the mean over its parts, each beside its ideal, rounded."""
    by_id = {report.id: report for report in reports}
    wanted: dict[tuple[str, tuple[int, ...]], None] = dict.fromkeys((s.report, s.places) for s in selections)
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
    asker = Asker(Engines(judge, judge, EngineEntailer(judge, prompts)), _NO_CAP)
    ratings = {
        question: read_rating(question, answered(answer)).value
        for question, answer in zip(distinct, await asker(distinct), strict=True)
    }
    progress("grading responses", len(distinct), len(distinct))
    grades = {
        key: float(math.floor(np.mean([ratings[question] for question in group]) + 0.5))
        for key, group in asked.items()
    }
    return [replace(one, grade=grades[one.report, one.places]) for one in selections]


def distribution(graded: dict[str, list[Selection]], model: str) -> Table:
    """Figures 2 to 4: which grades come out at which K/N_p."""
    ratios = sorted({one.segment for group in graded.values() for one in group})
    rows: list[tuple[Cell, ...]] = []
    for name, group in graded.items():
        cells = {ratio: [one.grade for one in group if one.segment == ratio] for ratio in ratios}
        rows += [
            (f"{name}: grade {grade}", *(_share(cells[ratio], grade) for ratio in ratios))
            for grade in (5, 4, 3, 2, 1)
        ]
        rows.append((f"{name}: contexts", *(len(cells[ratio]) for ratio in ratios)))
    searches = ", ".join(f"{name} ({error})" for name, error in SEARCHES.items())
    notes = (
        f"Reader and judge: {model} unless told otherwise. Parts: two to four questions in one, each with its passage; "
        "Hops: a two-hop question; Statements: one fact stated two to four times. The response to several parts is one "
        "answer a part, read with all K passages; its grade the rounded mean of the parts'.",
        f"In place of four embeddings, three searches that differ in their error: {searches}.",
    )
    columns = ("K/N_p", *(f"{ratio:g}" for ratio in ratios))
    return Table(
        "sets-grades", "Response grades by K/N_p", columns, tuple(rows), "Schwartz et al., figures 2 to 4 and 19 to 20",
        notes,
    )  # fmt: skip


def correlations(graded: dict[str, list[Selection]]) -> Table:
    """Figure 5: Spearman, narrow (K < N_p) and wide."""
    rows: list[tuple[Cell, ...]] = []
    for name, group in _parts(graded):
        grades = [one.grade for one in group]
        found = fitted(group, grades)
        values = [correlate(measure.values, grades, flat=0.0).value for measure in found.values()]
        # Contexts alike in everything that is counted differ in the order of their passages alone.
        alike = [f"{one.k} {one.total} {one.n_p}" for one in group]
        order = correlate(found["nDCG"].values, grades, groups=alike)
        rows.append((name, *values, *(found[m].alpha for m in ("T", "F", "F_e")), len(group),
                     order.value, order.low, order.high))  # fmt: skip
    names = ("T", "T_u", "F", "F_e", "nDCG", "RA-nWG", "%PROC")
    return Table(
        "sets-correlations",
        "Measures of a selection and the response grade: Spearman correlations",
        ("Data", *names, "α of T", "α of F", "α of F_e", "contexts", "order alone", "low", "high"),
        tuple(rows),
        "Schwartz et al., figure 5",
        (
            "-n: narrow, K < N_p; -w: wide, K ≥ N_p. T, T_u, F and F_e at the α that fits the data best, as in the "
            "paper; nDCG, RA-nWG and %PROC have nothing to fit, which is an advantage of the others.",
            "Order alone: nDCG's mean correlation among contexts of equal K, N_p and n_p, with the interval of "
            "draws of such groups: whether the reader minds where the relevant passages stand.",
            "RA-nWG and %PROC from the world's grades, %PROC with the top 2K as what was retrieved.",
        ),
    )


def differences(graded: dict[str, list[Selection]]) -> Table:
    """Whether the measures differ: draws of whole questions."""
    rows: list[tuple[Cell, ...]] = []
    for name, group in _parts(graded):
        grades = [one.grade for one in group]
        found = fitted(group, grades)
        for one, other in GAPS:
            gap = pooled_difference(
                found[one].values,
                found[other].values,
                grades,
                [s.report for s in group],
                "spearman",
                draws=DRAWS,
            )
            rows.append(
                (f"{name}: {one} − {other}", *gap[:1], gap.low, gap.high, gap.p, gap.counted, gap.skipped)
            )
    return Table(
        "sets-differences", "Differences between the measures' Spearman correlations",
        ("Data", "difference", "low", "high", "p", "contexts", "skipped"), tuple(rows),
        notes=("Intervals: the middle 95 % of draws of whole questions, each measure at its α.",),
    )  # fmt: skip


def segments(graded: dict[str, list[Selection]]) -> Table:
    """Figures 6 to 18: the same by K/N_p."""
    rows: list[tuple[Cell, ...]] = []
    small = 0
    for name, group in graded.items():
        least = min(LEAST, len(group) // 10)
        for ratio in sorted({one.segment for one in group}):
            chosen = [one for one in group if one.segment == ratio]
            if len(chosen) < least:
                small += 1
                continue
            grades = [one.grade for one in chosen]
            r = {m: correlate(v.values, grades, flat=0.0).value for m, v in fitted(chosen, grades).items()}
            rows.append(
                (f"{name}: {ratio:g}", r["F"], *(r[one] - r[other] for one, other in GAPS), len(chosen))
            )
    notes = (
        "K/N_p rounded to its first digit. A dash: all responses of the segment have one grade.",
        f"Segments of fewer than {LEAST} contexts are not shown ({small}).",
    )
    columns = ("Data: K/N_p", "F", *(f"{one} − {other}" for one, other in GAPS), "contexts")
    return Table(
        "sets-segments", "The same by K/N_p", columns, tuple(rows), "Schwartz et al., figures 6 to 18", notes
    )


def kinds(graded: dict[str, list[Selection]]) -> Table:
    """Figures 23 to 25: other coefficients."""
    rows: list[tuple[Cell, ...]] = []
    for name, group in _parts(graded):
        grades = [one.grade for one in group]
        found = fitted(group, grades)
        row: list[Cell] = [name]
        for measure in ("T", "nDCG", "F"):
            values = found[measure].values
            row += [correlate(values, grades, "pearson", flat=0.0).value]
            row += [correlate(values, grades, "kendall_b", flat=0.0).value]
            row += [correlate(values, grades, "kendall_c", flat=0.0).value]
        rows.append(tuple(row))
    columns = [f"{m}, {kind}" for m in ("T", "nDCG", "F") for kind in ("Pearson", "τ-b", "τ-c")]
    return Table(
        "sets-kinds", "The same by other coefficients", ("Data", *columns), tuple(rows),
        "Schwartz et al., figures 23 to 25",
    )  # fmt: skip


def alphas(graded: dict[str, list[Selection]]) -> Table:
    """How much depends on α, over all of a data set."""
    columns: list[str] = ["α"]
    found: list[list[float]] = []
    for name, group in graded.items():
        grades = [one.grade for one in group]
        n_p, k, wide, total = (
            np.array([getattr(one, a) for one in group]) for a in ("n_p", "k", "n_p_2k", "total")
        )
        columns += [f"{name}: {m}" for m in ("T", "T_u", "F", "F_e")]
        found += [[correlate(t(n_p, k, a), grades, flat=0.0).value for a in _GRID]]
        found += [[correlate(t_u(n_p, k, a), grades, flat=0.0).value for a in _GRID]]
        found += [[correlate(f(n_p, k, total, a), grades, flat=0.0).value for a in _GRID]]
        found += [[correlate(f_e(n_p, k, wide, a), grades, flat=0.0).value for a in _GRID]]
    rows = tuple((alpha, *(column[at] for column in found)) for at, alpha in enumerate(_GRID))
    return Table("sets-alpha", "Spearman correlations by α", tuple(columns), rows)


def _parts(graded: dict[str, list[Selection]]) -> list[tuple[str, list[Selection]]]:
    """Narrow and wide parts of the data sets, those that there are."""
    found = []
    for name, group in graded.items():
        narrow = [one for one in group if one.k < one.total]
        found.append((f"{name}-n", narrow))
        found.append((f"{name}-w", [one for one in group if one.k >= one.total]))
    return [(name, group) for name, group in found if group]


def _share(grades: Sequence[float], grade: int) -> float | None:
    return sum(one == grade for one in grades) / len(grades) if grades else None

"""CRUX's experiments (Ju et al. 2025): whether the coverage of passages tells the coverage of the response.

Tables 1 to 3 and figure 5: pipelines and chance contexts for questions of several sub-questions, measured by coverage,
ranked coverage and density and by measures that count relevant passages, beside the coverage of the response that the
reader writes from them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from ragguard import world
from ragguard.analysis.tables import Cell, Table
from ragguard.engines.base import Engine
from ragguard.engines.connect import connect
from ragguard.lab.validation.contexts import Progress, silent
from ragguard.metrics import correlate, paired_bootstrap
from ragguard.metrics.arrays import Floats
from ragguard.world import Counts
from studies.hard_world import hard_cases
from studies.pipelines import FIRST, chance, pipelines
from studies.reasons import with_reasons
from studies.reports import Report, join, join_hard
from studies.responses import (
    ETA,
    IDEAL,
    STRICT,
    Measured,
    Plan,
    measured,
    rated,
    with_ideal,
    written,
)

SIZE = 10
"""The number of passages of a context that is not as large as the oracle's."""
CHANCE = 6
"""The number of chance contexts of each search; the paper has 16 of each of three."""
DRAWS = 100
METRICS = ("Cov(Z)", "α-nDCG@k", "Recall", "MAP", "nDCG@k", "Den(Z)")
NONE, ORACLE = "no retrieval", "oracle retrieval Z*"


async def study(
    engine: Engine,
    *,
    questions: int = 12,
    seed: int = 0,
    progress: Progress = silent,
    judge: Engine | None = None,
) -> list[Table]:
    """Makes the tables, over as many reports of each data set."""
    reader = connect(engine)
    judging = reader if judge is None or judge is engine else connect(judge)
    sized: dict[str, Measured] = {}
    fixed: dict[str, Measured] = {}
    drawn: dict[str, Measured] = {}
    bounds: dict[str, Measured] = {}
    for name, reports in data_sets(questions, seed).items():
        judged = await rated(reports, judging, progress)
        made = pipelines(seed)
        small = {key: [make(j.report)[: len(j.oracle)] for j in judged] for key, make in made.items()}
        large = {key: [make(j.report)[:SIZE] for j in judged] for key, make in made.items()}
        random = {
            f"{search} {number}": [chance(j.report, search, number, SIZE, seed) for j in judged]
            for search in FIRST
            for number in range(CHANCE)
        }
        limits: Plan = {NONE: [()] * len(judged), ORACLE: [j.oracle for j in judged]}
        said = await written(judged, [limits, small, large, random], reader, judging, progress)
        sized[name], fixed[name], drawn[name], bounds[name] = (
            measured(plan, judged, said) for plan in (small, large, random, limits)
        )
        bounds[name] = with_ideal(bounds[name], judged, said)
    model = (await reader.info()).model
    tables = [
        table_of_pipelines(sized, bounds, model),
        thresholds(sized),
        sizes(sized, fixed),
        matrix(drawn),
        intervals(sized, fixed, drawn),
    ]
    return with_reasons(tables, await reader.info(), await judging.info())


def data_sets(questions: int, seed: int) -> dict[str, list[Report]]:
    """Returns reports of six sub-questions: six of one hop, three of two, or six of the harder world."""
    single = iter(world.cases(6 * questions, seed=seed, distractors=Counts(2, 2, 0, 2)))
    double = iter(world.cases(3 * questions, seed=seed, hops=2, distractors=Counts(2, 2, 0, 4)))
    return {
        "Parts": [
            join([next(single) for _ in range(6)], f"parts-{number}", statements=3, by_hop=True)
            for number in range(questions)
        ],
        "Hops": [
            join([next(double) for _ in range(3)], f"hops-{number}", statements=3, by_hop=True)
            for number in range(questions)
        ],
        "Hard": [
            join_hard(hard_cases(6, seed * 10_000 + number, gold=2), f"hard-{number}")
            for number in range(questions)
        ],
    }


def system_tau(metric: Floats, outcome: Floats) -> float:
    """Returns Kendall's τ-b between the means of contexts over reports; 0 for a metric that is the same for all.

    The value is SciPy's, computed twenty times as fast on a few contexts: an interval takes a hundred of them.
    """
    first, second = (np.sign(np.subtract.outer(means, means)) for means in (metric.mean(1), outcome.mean(1)))
    if not second.any():
        return math.nan
    together = float((first * second).sum())
    return together / math.sqrt((first**2).sum() * (second**2).sum()) if first.any() else 0.0


def system_interval(
    metric: Floats, outcome: Floats, draws: int = DRAWS, seed: int = 0
) -> tuple[float, float]:
    """Returns the middle 95 % of that τ over draws of reports."""
    random = np.random.default_rng(seed)
    n = metric.shape[1]
    drawn = [
        system_tau(metric[:, rows], outcome[:, rows])
        for rows in (random.integers(n, size=n) for _ in range(draws))
    ]
    there = [value for value in drawn if not np.isnan(value)]
    if not there:
        return np.nan, np.nan
    low, high = np.quantile(there, [0.025, 0.975])
    return float(low), float(high)


def table_of_pipelines(sized: Mapping[str, Measured], bounds: Mapping[str, Measured], model: str) -> Table:
    """Makes table 1: the means of pipelines."""
    shown = ("Cov(Z)", "α-nDCG@k", "Cov(y)", "Den(Z)", "Den(y)", "right")
    rows: list[tuple[Cell, ...]] = []
    for block in (bounds, sized):
        first = next(iter(block.values()))
        for at, name in enumerate(first.names):
            cells: list[Cell] = []
            for one in block.values():
                cells += [_mean(one, column, at, name) for column in shown]
            rows.append((name, *cells))
    last: list[Cell] = ["Rank correlation (Kendall τ)"]
    for one in sized.values():
        v = one.values
        last += [system_tau(v["Cov(Z)"], v["Cov(y)"]), system_tau(v["α-nDCG@k"], v["Cov(y)"]), None]
        last += [system_tau(v["Den(Z)"], v["Den(y)"]), None, system_tau(v["Cov(Z)"], v["right"])]
    rows.append(tuple(last))
    return Table(
        "coverage-pipelines",
        "What contexts and responses cover",
        ("Retrieval context", *(f"{name}: {column}" for name in sized for column in shown)),
        tuple(rows),
        source="CRUX, table 1",
        notes=(
            f"Reader and judge: {model} unless a row says otherwise. Parts: six one-hop questions in one. Hops: "
            "three two-hop questions, each hop a sub-question, because with two sub-questions coverage has only "
            "three values. Each fact is stated three times in the base. Hard: six questions of the harder world, "
            "whose passages state up to six facts, some of them the answers to two questions. As many passages as "
            "the oracle retrieval has.",
            "Searches by the standard deviation of their error: "
            + ", ".join(f"{name} {error}" for name, error in FIRST.items())
            + ". The response has a sentence for each sub-question to which the reader finds an answer in the "
            "context. `right` is the share of sub-questions answered rightly, which the judge of coverage "
            "does not see.",
        ),
    )


def thresholds(sized: Mapping[str, Measured]) -> Table:
    """Makes table 2: the correlations at several thresholds of answerability."""
    rows: list[tuple[Cell, ...]] = []
    for name, one in sized.items():
        for eta, suffix in ((ETA, ""), (STRICT, ", η = 5")):
            context, response = one.values[f"Cov(Z){suffix}"], one.values[f"Cov(y){suffix}"]
            row: list[Cell] = [f"{name}: η = {eta:g}"]
            for values in (response, context):
                means = values.mean(axis=1)
                row += [float(means.mean()), float(means.std(ddof=1))]
            rows.append((*row, system_tau(context, response)))
    return Table(
        "coverage-thresholds", "What counts as answered", ("Data", "Cov(y)", "±", "Cov(Z)", "±", "Kendall τ"),
        tuple(rows), source="CRUX, table 2", notes=("Mean and standard deviation over pipelines.",),
    )  # fmt: skip


def sizes(sized: Mapping[str, Measured], fixed: Mapping[str, Measured]) -> Table:
    """Makes table 3: the correlations at several sizes of contexts."""
    rows: list[tuple[Cell, ...]] = [
        (f"{name}: k = {k}", *(_tau(block[name], metric) for metric in METRICS))
        for name in sized
        for k, block in (("|Z*|", sized), (str(SIZE), fixed))
    ]
    notes = ("Kendall τ over pipelines with Cov(y), of Den(Z) with Den(y).",)
    return Table(
        "coverage-sizes", "Which measure of the context follows the response, by the context's size",
        ("Data", *METRICS), tuple(rows), source="CRUX, table 3", notes=notes,
    )  # fmt: skip


def matrix(drawn: Mapping[str, Measured]) -> Table:
    """Makes figure 5: the correlations between all measures."""
    shown = ("Cov(Z)", "Recall", "MAP", "nDCG@k", "α-nDCG@k", "Cov(y)", "right")
    rows: list[tuple[Cell, ...]] = [
        (f"{name}: {one}", *(system_tau(m.values[one], m.values[other]) for other in shown))
        for name, m in drawn.items()
        for one in shown
    ]
    contexts = len(next(iter(drawn.values())).names)
    notes = (f"{contexts} chance contexts of {SIZE} passages, a quarter of them from each search.",)
    return Table(
        "coverage-matrix", "Kendall τ between measures", ("Measure", *shown), tuple(rows),
        source="CRUX, figure 5", notes=notes,
    )  # fmt: skip


def intervals(
    sized: Mapping[str, Measured], fixed: Mapping[str, Measured], drawn: Mapping[str, Measured]
) -> Table:
    """Returns the correlations with their standard errors, over all contexts and within questions."""
    rows: list[tuple[Cell, ...]] = []
    blocks = (("pipelines, k = |Z*|", sized), (f"pipelines, k = {SIZE}", fixed), ("chance contexts", drawn))
    for label, block in blocks:
        for name, one in block.items():
            outcome = one.values["Cov(y)"]
            groups = np.broadcast_to(np.arange(outcome.shape[1]), outcome.shape).ravel()
            best = one.values["Cov(Z)"].ravel()
            for metric in METRICS:
                values = one.values[metric]
                low, high = system_interval(values, outcome)
                within = correlate(values.ravel(), outcome.ravel(), "spearman", groups, flat=0.0)
                gap = paired_bootstrap(best, values.ravel(), groups, outcome.ravel(), flat=0.0)
                gaps: tuple[Cell, ...] = (gap.value, gap.low, gap.high)
                rows.append(
                    (f"{name}, {label}: {metric}", system_tau(values, outcome), low, high,
                     within.value, within.low, within.high, within.counted, within.skipped,
                     *(gaps if metric != "Cov(Z)" else (None, None, None)))
                )  # fmt: skip
    columns = (
        "Measure", "τ over contexts", "low", "high", "Spearman within questions", "low", "high", "questions", "skipped",
        "Cov(Z) is higher by", "low", "high",
    )  # fmt: skip
    notes = (
        "With Cov(y). τ over contexts: of the means over questions, its interval from draws of questions. Within "
        "questions: the mean of the questions' own correlations and how much higher Cov(Z)'s is. A question whose "
        "responses all cover the same is skipped.",
    )
    return Table("coverage-intervals", "The same with intervals", columns, tuple(rows), notes=notes)


def _tau(one: Measured, metric: str) -> float:
    return system_tau(one.values[metric], one.values["Den(y)" if metric == "Den(Z)" else "Cov(y)"])


def _mean(one: Measured, column: str, at: int, name: str) -> float | None:
    """Returns a cell of table 1; a response without a context has no measures of one."""
    if name in (NONE, IDEAL) and column in METRICS:
        return None
    return float(one.values[column][at].mean())

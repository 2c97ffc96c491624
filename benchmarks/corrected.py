"""How often the intervals that labels correct hold the truth, with judges that err and lean to one side.

    make bench-corrected
    python benchmarks/corrected.py --prose --draws 1500

A pool of runs of nano's hard world, each with five passages that answer or do not (none in part, none out of date).
nano reads; judges are nano with noise that leaves it an AUC of 0.95, 0.9 or 0.8, and with its log-odds raised by one,
so that they call too much relevant; four judges of each AUC. For each, 500 times 200 runs of the pool are drawn, 30, 50
or 100 of their passages are labelled as `ragguard label` chooses them, and the means are corrected as `ragguard report
--labels` does. The truth is the mean over the whole pool with the right labels, UDCG computed anew. Target: 93 to 97 %
of the intervals hold it. The method was chosen on the cases of seeds 1203 and 1204, with judges of 0.75 to 0.95 and
with two that tell nothing apart.

With --prose the pool is the examination's questions about real prose, each 25 times, with five passages of which one
answers, and smol is both reader and judge: it calls nearly all passages relevant.

`held_by_judge` is the lowest and the highest of the four judges; `too_high` how often all of the interval is over the
truth. `width_to_labels_alone` is the width relative to that from as many labels of passages drawn at random, without
the judge; `raw_held` how often the judge's own 95 % interval holds the truth.
"""

from __future__ import annotations

import asyncio
import math
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.machine import record
from benchmarks.options import parse, parser
from ragguard import connect
from ragguard.engines.prompts import load_prompts
from ragguard.lab.labels.items import LabelItem, in_order_of_worth
from ragguard.metrics.agreement import auc
from ragguard.metrics.distraction import GAMMA, utility_parts
from ragguard.metrics.prediction_powered import CorrectedMean, corrected_mean
from ragguard.records import Passage, RetrievalStep, Run
from ragguard.scorers.exam.cases import exam_cases
from ragguard.scorers.probes import abstention, relevance
from studies.hard_world import hard_cases
from studies.label_noise import tilted
from studies.weak_judges import scale_for

STRENGTHS, LABELS, PLACES, BIAS, RUNS = (0.95, 0.9, 0.8), (30, 50, 100), 5, 1.0, 200
CASES_SEED, JUDGES = 1302, (23, 24, 25, 26)
"""The seeds of the cases and of the judges' noise; the method was chosen on others."""


class Pool(NamedTuple):
    """Runs, and of their passages the probabilities of the two labels, p(abstain), and which are relevant."""

    runs: list[Run]
    p: Any
    abstains: Any
    truth: Any


async def hard_pool(cases: int) -> Pool:
    """Returns runs of nano's hard world."""
    rng, listed = random.Random(CASES_SEED), []
    for case in hard_cases(cases, seed=CASES_SEED):
        gold = case.gold[: rng.randint(0, 3)]
        others = [one for one in case.distractors if one.metadata["kind"] not in ("partial", "outdated")]
        chosen: Sequence[Passage] = [*gold, *rng.sample(others, PLACES - len(gold))]
        listed.append((case.question, rng.sample(chosen, PLACES)))
    return await judged_pool("nano", listed)


async def prose_pool(copies: int = 25) -> Pool:
    """Returns runs of the examination's questions."""
    kinds = ("near", "partial", "gold", "contradiction", "other")
    listed = [
        (one.question, [Passage(getattr(one, kind), metadata={"kind": kind}) for kind in kinds])
        for one in exam_cases().questions
    ]
    found = await judged_pool("smol", listed)
    runs = [replace(run, id=f"{copy}-{run.id}") for copy in range(copies) for run in found.runs]
    return Pool(runs, *(np.concatenate([part] * copies) for part in found[1:]))


async def judged_pool(name: str, listed: Sequence[tuple[str, Sequence[Passage]]]) -> Pool:
    """Returns a run for each question with its passages, judged by an engine."""
    runs = []
    for number, (question, passages) in enumerate(listed):
        step = RetrievalStep(id=f"s{number}", query=question, passages=list(passages), k=PLACES)
        runs.append(Run(id=str(number), question=f"{number} {question}", steps=[step]))
    engine = connect(name)
    prompts = load_prompts((await engine.info()).prompts)
    pairs = [(run.steps[0].query, one.text) for run in runs for one in run.steps[0].passages]
    judged = [relevance(prompts, query, text) for query, text in pairs]
    read = [abstention(prompts, query, text) for query, text in pairs]
    p = await engine.label_probs([one.prompt for one in judged], judged[0].labels)
    abstains = await engine.label_probs([one.prompt for one in read], read[0].labels)
    await engine.aclose()
    truth = [one.metadata["kind"] == "gold" for _, passages in listed for one in passages]
    return Pool(runs, p.p, abstains.p[:, 0], np.array(truth))


def leaning(p: Any, scale: float, judge: int) -> Any:
    """Returns the probabilities of a judge with noise of that scale, its log-odds raised."""
    weak = tilted(p, scale, np.random.default_rng(judge).standard_normal(len(p)))
    return 1 / (1 + weak[:, 1] / weak[:, 0] * math.exp(-BIAS))


def columns(p: Any, abstains: Any) -> dict[str, Any]:
    """Returns what each passage contributes to each mean, by a judge of these probabilities."""
    u = (2 * p - 1) * (1 - abstains)
    gain, harm = utility_parts(p, abstains)
    return {"p_relevant": p, "utility": u, "udcg": gain + GAMMA * harm}


def interval(
    name: str, judged: Any, labelled: Any, reads: Any, strata: Any = None, weight: float | None = None
) -> CorrectedMean:
    """Returns the corrected mean of a metric as `corrected` computes it; UDCG goes by its slope."""
    runs = np.repeat(np.arange(RUNS), PLACES)
    if name == "p_relevant":
        return corrected_mean(judged, labelled, runs=runs, strata=strata, weight=weight)
    reads = np.maximum(reads, 1e-12)
    shares, constants = reads / PLACES, None
    if name == "udcg":
        sums = judged.reshape(-1, PLACES).sum(axis=1)
        value = 1 / (1 + np.exp(-sums / PLACES))
        slope = value * (1 - value)
        shares, constants = shares * slope[runs], value - slope * sums / PLACES
    return corrected_mean(
        judged / reads, labelled / reads, runs=runs, strata=strata, shares=shares, constants=constants,
        weight=weight,
    )  # fmt: skip


def only(right: Any, rows: Sequence[int]) -> Any:
    """Returns the right values of some items, and nan for the others."""
    found = np.full(len(right), np.nan)
    found[rows] = right[rows]
    return found


class Draw(NamedTuple):
    """The result of one draw of runs and labels for one metric."""

    held: bool
    too_high: bool
    raw_held: bool
    error: float
    width: float
    alone: float
    """The width from as many labels at random, without the judge; nan but for every fifth draw."""


def draws(
    every: Sequence[LabelItem], hard: dict[str, Any], right: dict[str, Any], truth: dict[str, float], number: int,
    seeds: Sequence[tuple[int, int]],
) -> Iterator[dict[str, Draw]]:  # fmt: skip
    """Yields what each draw of runs and of so many labels gave, by metric."""
    reads, at = np.array([item.reads for item in every]), {item.place: row for row, item in enumerate(every)}
    strata = np.array([item.stratum for item in every])
    for seed in seeds:
        random_ = np.random.default_rng(seed)
        taken = random_.choice(len(every) // PLACES, RUNS, replace=False)
        cells = (taken[:, None] * PLACES + np.arange(PLACES)).ravel()
        inside = {cell: row for row, cell in enumerate(cells.tolist())}
        chosen = in_order_of_worth([every[cell] for cell in cells.tolist()], number, seed=seed[0])
        rows = [inside[at[item.place]] for item in chosen]
        some = random_.choice(len(cells), number, replace=False)
        found = {}
        for name, goal in truth.items():
            judged, human = hard[name][cells], right[name][cells]
            mean = interval(name, judged, only(human, rows), reads[cells], strata[cells])
            sums = judged.reshape(-1, PLACES).sum(axis=1)
            values = 1 / (1 + np.exp(-sums / PLACES)) if name == "udcg" else sums / PLACES
            margin = 1.96 * float(values.std(ddof=1)) / len(values) ** 0.5
            alone = math.nan
            if seed[0] % 5 == 0:
                mean_alone = interval(name, judged, only(human, some.tolist()), reads[cells], weight=0.0)
                alone = mean_alone.high - mean_alone.low
            found[name] = Draw(
                mean.low <= goal <= mean.high, mean.low > goal, abs(mean.raw - goal) <= margin,
                abs(mean.value - goal), mean.high - mean.low, alone,
            )  # fmt: skip
        yield found


def main() -> None:
    """Prints and records a row for each strength of judges and number of labels."""
    options = parser(__doc__)
    options.add_argument("--draws", type=int, default=500, help="draws for each of the four judges")
    options.add_argument("--cases", type=int, default=3000)
    options.add_argument("--prose", action="store_true", help="smol on the examination's prose")
    given = parse(options, draws=1, cases=200)
    pool = asyncio.run(prose_pool() if given.prose else hard_pool(given.cases))
    right = columns(pool.truth.astype(float), pool.abstains)
    by_run = right["udcg"].reshape(-1, PLACES).mean(axis=1)
    whole = {"p_relevant": float(right["p_relevant"].mean()), "utility": float(right["utility"].mean())}
    whole["udcg"] = float(np.mean(1 / (1 + np.exp(-by_run))))
    if given.prose:
        kinds: list[list[tuple[int, Any]]] = [[(0, pool.p[:, 0] / pool.p.sum(axis=1))]]
    else:
        scales = [scale_for(pool.p, pool.truth, strength) for strength in STRENGTHS]
        kinds = [[(judge, leaning(pool.p, scale, judge)) for judge in JUDGES] for scale in scales]
    rows = [row for judges in kinds for row in rows_of(pool, judges, right, whole, given.draws)]
    counts = {
        "draws": given.draws * len(kinds[0]),
        "judges": len(kinds[0]),
        "cases": len(pool.runs),
        "runs": RUNS,
    }
    print(record("corrected_prose" if given.prose else "corrected", {**counts, "truth": whole, "rows": rows}))


def rows_of(
    pool: Pool,
    judges: Sequence[tuple[int, Any]],
    right: dict[str, Any],
    whole: dict[str, float],
    number_of_draws: int,
) -> Iterator[dict[str, Any]]:
    """Yields a row for each number of labels, over all judges; a judge is its seed and its probabilities of yes."""
    places = [(run.id, run.steps[0].id, at) for run in pool.runs for at in range(1, PLACES + 1)]
    strength = round(float(np.mean([auc(p, pool.truth) for _, p in judges])), 3)
    for labels in LABELS:
        by_judge = []
        for judge, p in judges:
            judged = columns(p, pool.abstains)
            every = [
                LabelItem(
                    ("relevance", *place), "", "", float(p[row]), "judge", reads=1 - float(pool.abstains[row])
                )
                for row, place in enumerate(places)
            ]
            seeds = [(draw, judge) for draw in range(number_of_draws)]
            by_judge.append(list(draws(every, judged, right, whole, labels, seeds)))
        row = {"auc": strength, "labels": labels} | summary(by_judge, list(whole))
        print(row, flush=True)
        yield row


def summary(by_judge: Sequence[Sequence[dict[str, Draw]]], names: Sequence[str]) -> dict[str, Any]:
    """Returns the figures of the draws of all judges, each by metric."""
    figures: dict[str, dict[str, Any]] = {}
    for name in names:
        columns_ = [np.array([one[name] for one in some], dtype=np.float64) for some in by_judge]
        held, too_high, raw_held, error, width, alone = np.nanmean(np.concatenate(columns_), axis=0).tolist()
        each = [round(float(one[:, 0].mean()), 3) for one in columns_]
        of_metric = {
            "held": round(held, 3), "held_by_judge": [min(each), max(each)], "too_high": round(too_high, 3),
            "raw_held": round(raw_held, 3), "error": round(error, 4), "width": round(width, 4),
            "width_to_labels_alone": round(width / alone, 3),
        }  # fmt: skip
        for figure, value in of_metric.items():
            figures.setdefault(figure, {})[name] = value
    return figures


if __name__ == "__main__":
    main()

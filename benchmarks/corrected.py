"""How often the intervals that labels correct hold the truth, with judges that err and lean to one side.

    make bench-corrected

A pool of runs of nano's hard world, each with five passages that answer or do not (none in part, none out of date).
nano reads; judges are nano with noise that leaves it an AUC of 0.95, 0.9 or 0.8, and with its log-odds raised by one,
so that they call too much relevant. 500 times 200 runs of the pool are drawn, 30, 50 or 100 of their passages are
labelled as `ragguard label` chooses them, and the means are corrected as `ragguard report --labels` does. The truth is
the mean over the whole pool with the right labels, UDCG computed anew. Target: 93 to 97 % of the intervals hold it.
`width_to_labels_alone` is the width of the interval of p_relevant, relative to that from as many labels of passages
drawn at random, without the judge; `raw_held` how often the judge's own 95 % interval holds the truth.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
from machine import record

from ragguard import connect
from ragguard.analysis.labels.items import LabelItem, in_order_of_worth
from ragguard.engines.prompts import load_prompts
from ragguard.metrics.agreement import auc
from ragguard.metrics.prediction_powered import CorrectedMean, corrected_mean
from ragguard.records import Passage, RetrievalStep, Run
from ragguard.scorers.probes import abstention, relevance
from studies.hard_world import hard_cases
from studies.label_noise import tilted
from studies.weak_judges import scale_for

STRENGTHS, LABELS, PLACES, BIAS = (0.95, 0.9, 0.8), (30, 50, 100), 5, 1.0


async def pool(cases: int) -> tuple[list[Run], Any, Any, Any]:
    """Returns runs, and of their passages nano's probabilities of the two labels, its p(abstain), and the truth."""
    rng, runs, truth = random.Random(3), [], []
    for number, case in enumerate(hard_cases(cases, seed=11)):
        gold = case.gold[: rng.randint(0, 3)]
        others = [one for one in case.distractors if one.metadata["kind"] not in ("partial", "outdated")]
        chosen: Sequence[Passage] = [*gold, *rng.sample(others, PLACES - len(gold))]
        chosen = rng.sample(chosen, PLACES)
        step = RetrievalStep(id=f"s{number}", query=case.question, passages=list(chosen), k=PLACES)
        runs.append(Run(id=str(number), question=f"{number} {case.question}", steps=[step]))
        truth += [one.metadata["kind"] == "gold" for one in chosen]
    engine = connect("nano")
    prompts = load_prompts((await engine.info()).prompts)
    pairs = [(run.steps[0].query, one.text) for run in runs for one in run.steps[0].passages]
    judged = [relevance(prompts, query, text) for query, text in pairs]
    read = [abstention(prompts, query, text) for query, text in pairs]
    p = await engine.label_probs([one.prompt for one in judged], judged[0].labels)
    abstains = await engine.label_probs([one.prompt for one in read], read[0].labels)
    await engine.aclose()
    return runs, p.p, abstains.p[:, 0], np.array(truth)


def leaning(p: Any, truth: Any, strength: float) -> tuple[Any, float]:
    """Returns a judge's probabilities of that strength, its log-odds raised, and the AUC that it reaches."""
    noise = np.random.default_rng(17).standard_normal(len(p))
    weak = tilted(p, scale_for(p, truth, strength), noise)
    odds = np.log(weak[:, 0] / weak[:, 1]) + BIAS
    return 1 / (1 + np.exp(-odds)), auc(odds, truth)


def columns(p: Any, abstains: Any) -> dict[str, Any]:
    """Returns what each passage contributes to each mean, by a judge of these probabilities."""
    u = (2 * p - 1) * (1 - abstains)
    return {"p_relevant": p, "utility": u, "udcg": np.where(u > 0, u, u / 3)}


def interval(
    items: Sequence[LabelItem], drawn: Sequence[LabelItem], judged: Any, right: Any, name: str
) -> CorrectedMean:
    """Returns the corrected mean of a metric as `corrected` computes it; UDCG goes by its slope."""
    at = {item.place: row for row, item in enumerate(items)}
    labelled = np.full(len(items), np.nan)
    rows = [at[item.place] for item in drawn]
    labelled[rows] = right[rows]
    runs = np.repeat(np.arange(len(items) // PLACES), PLACES)
    strata = [item.stratum for item in items]
    if name == "p_relevant":
        return corrected_mean(judged, labelled, runs=runs, strata=strata)
    reads = np.maximum([item.reads for item in items], 1e-12)
    if name == "utility":
        return corrected_mean(
            judged / reads, labelled / reads, runs=runs, strata=strata, shares=reads / PLACES
        )
    sums = judged.reshape(-1, PLACES).sum(axis=1)
    value = 1 / (1 + np.exp(-sums / PLACES))
    slope = value * (1 - value)
    constants = value - slope * sums / PLACES
    return corrected_mean(
        judged / reads,
        labelled / reads,
        runs=runs,
        strata=strata,
        shares=slope[runs] * reads / PLACES,
        constants=constants,
    )


def main() -> None:
    """Prints and records a row for each judge and number of labels."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--cases", type=int, default=1500)
    given = parser.parse_args()
    runs, p, abstains, truth = asyncio.run(pool(given.cases))
    right = columns(truth.astype(float), abstains)
    by_run = right["udcg"].reshape(-1, PLACES).mean(axis=1)
    whole = {"p_relevant": right["p_relevant"].mean(), "utility": right["utility"].mean()}
    whole["udcg"] = float(np.mean(1 / (1 + np.exp(-by_run))))
    rows = []
    for strength in STRENGTHS:
        p_judge, reached = leaning(p, truth, strength)
        every = [
            LabelItem(
                ("relevance", run.id, run.steps[0].id, at % PLACES + 1),
                "",
                "",
                float(p_judge[row]),
                "judge",
                reads=1 - float(abstains[row]),
            )
            for row, (run, at) in enumerate((run, at) for run in runs for at in range(PLACES))
        ]
        hard = {**columns((p_judge >= 0.5).astype(float), abstains), "p_relevant": p_judge}
        for number in LABELS:
            held, raw_held, gap, width = (dict.fromkeys(whole, 0.0) for _ in range(4))
            narrow = []
            for draw in range(given.draws):
                random_ = np.random.default_rng(draw)
                taken = random_.choice(len(runs), 200, replace=False)
                cells = (taken[:, None] * PLACES + np.arange(PLACES)).ravel()
                items = [every[cell] for cell in cells]
                drawn = in_order_of_worth(items, number, seed=draw)
                for name, truth_of in whole.items():
                    sums = hard[name][cells].reshape(-1, PLACES).sum(axis=1)
                    mean = interval(items, drawn, hard[name][cells], right[name][cells], name)
                    held[name] += (mean.low <= truth_of <= mean.high) / given.draws
                    gap[name] += abs(mean.value - truth_of) / given.draws
                    width[name] += (mean.high - mean.low) / given.draws
                    values = 1 / (1 + np.exp(-sums / PLACES)) if name == "udcg" else sums / PLACES
                    margin = 1.96 * float(values.std(ddof=1)) / len(values) ** 0.5
                    raw_held[name] += (abs(mean.raw - truth_of) <= margin) / given.draws
                some = [items[row] for row in random_.choice(len(items), number, replace=False)]
                alone = corrected_mean(
                    np.zeros(len(items)), _only(items, some, right["p_relevant"][cells]),
                    runs=np.repeat(np.arange(200), PLACES), weight=0.0,
                )  # fmt: skip
                narrow.append(alone.high - alone.low)
            row = {
                "auc": round(reached, 3), "labels": number,
                "held": {name: round(value, 3) for name, value in held.items()},
                "raw_held": {name: round(value, 3) for name, value in raw_held.items()},
                "error": {name: round(value, 4) for name, value in gap.items()},
                "width": {name: round(value, 4) for name, value in width.items()},
                "width_to_labels_alone": round(width["p_relevant"] / float(np.mean(narrow)), 3),
            }  # fmt: skip
            rows.append(row)
            print(row, flush=True)
    print(record("corrected", {"draws": given.draws, "runs": 200, "truth": whole, "rows": rows}))


def _only(items: Sequence[LabelItem], some: Sequence[LabelItem], right: Any) -> Any:
    """Returns the right values of some items, and nan for the others."""
    chosen = {item.place for item in some}
    return np.where([item.place in chosen for item in items], right, np.nan)


if __name__ == "__main__":
    main()

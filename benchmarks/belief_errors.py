"""How the stated errors of beliefs compare with the spread of the same beliefs when all answers are drawn again.

    make bench-belief_errors

Two sets of ten runs of two hops, half of them plain and half hard; in each context 50 draws of ten answers by nano,
which also compares them. The method was chosen on the cases of the first set, not on those of the second. For each
score, over the contexts (or steps) where it varies at all between draws: the ratio of the stated errors to the real
spread, as root mean squares, and the share of draws whose 95 % interval holds the mean over the draws. Targets: a ratio
of 0.9 to 1.3, a share of 0.93 to 0.97. Where the spread is almost none the floor of the error makes intervals too wide:
`least` and `most` are the ratios of single contexts.
"""

from __future__ import annotations

import asyncio
import math
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.machine import record
from benchmarks.options import parse, parser
from ragguard import connect, world
from ragguard.engines.base import Engine
from ragguard.engines.entailer import EngineEntailer
from ragguard.engines.prompts import load_prompts
from ragguard.errors import RagguardError
from ragguard.metrics.arrays import Floats
from ragguard.records import Run
from ragguard.scorers.asker import Asker, Models
from ragguard.scorers.estimates import Estimator, Kind, Meanings
from ragguard.scorers.probes import belief
from ragguard.scorers.question import SampleAnswer, answered
from studies.hard_world import hard_cases

NAMES: dict[Kind, str] = {"soft": "seper", "hard": "seper_hard", "entropy": "semantic_entropy"}
DELTAS: dict[Kind, str] = {
    "soft": "delta_seper",
    "hard": "delta_seper_hard",
    "entropy": "delta_semantic_entropy",
}
SPREAD = 0.01
"""The least standard deviation over the draws with which a context counts as one where the score varies."""


async def estimates(run: Run, engine: Engine, draws: int) -> dict[Kind, Floats]:
    """Returns, for each kind of belief, (contexts, draws, 2): values and stated errors without a passage and after each
    step."""
    prompts = load_prompts((await engine.info()).prompts)
    # An asker of its own: no answer of another run is kept.
    asker = Asker(Models(engine, engine, EngineEntailer(engine, prompts)))
    contexts: list[tuple[str, ...]] = [()]
    for step in run.steps:
        contexts.append(contexts[-1] + tuple(passage.text for passage in step.passages))
    questions = [
        belief(prompts, run.question, context, n=10, seed=1000 + seed)
        for context in contexts
        for seed in range(draws)
    ]
    drawn: dict[tuple[str, ...], SampleAnswer | RagguardError] = {
        (str(at),): SampleAnswer(answered(answer).samples) for at, answer in enumerate(await asker(questions))
    }
    found = await Estimator().beliefs(drawn, tuple(run.references or ()), Meanings(run.question, asker))
    tables = {}
    for kind in NAMES:
        # A judge that is unsure of its own words gives no belief: that draw is left out of mean and spread.
        each = [
            (math.nan, math.nan) if isinstance(one, RagguardError) else one.estimates[kind]
            for one in (found[key] for key in drawn)
        ]
        tables[kind] = np.array(each).reshape(len(contexts), draws, 2)
    return tables


def compared(values: Floats, errors: Floats) -> list[float]:
    """Returns how many rows vary, the ratio, the share of intervals that hold the mean, and the rows' extreme ratios.

    A row holds the draws of one context."""
    varies = np.nanstd(values, axis=1, ddof=1) > SPREAD
    values, errors = values[varies], errors[varies]
    spread = np.nanstd(values, axis=1, ddof=1)
    held = np.abs(values - np.nanmean(values, axis=1, keepdims=True)) <= 1.96 * errors
    ratio = math.sqrt(np.nanmean(errors**2) / np.mean(spread**2))
    each = np.nanmean(errors, axis=1) / spread
    there = ~np.isnan(values)
    return [int(varies.sum()), ratio, float(held[there].mean()), float(each.min()), float(each.max())]


async def measured(seed: int, runs: int, draws: int) -> list[list[object]]:
    """Returns the rows of one set of runs."""
    engine = connect("nano")
    half = runs // 2
    cases = [*world.cases(half, seed=seed, hops=2), *hard_cases(runs - half, seed=seed, hops=2)]
    tables = [await estimates(world.make_run(case, seed=seed), engine, draws) for case in cases]
    await engine.aclose()
    rows: list[list[object]] = []
    for kind, name in NAMES.items():
        every = np.concatenate([table[kind] for table in tables])
        rows.append([name, *compared(every[..., 0], every[..., 1])])
    for kind, name in DELTAS.items():
        values = np.concatenate([np.diff(table[kind][..., 0], axis=0) for table in tables])
        errors = np.concatenate([np.hypot(table[kind][1:, :, 1], table[kind][:-1, :, 1]) for table in tables])
        rows.append([name, *compared(values, errors)])
    return rows


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--runs", type=int, default=10)
    options.add_argument("--draws", type=int, default=50)
    given = parse(options, runs=4, draws=6)
    sets = {}
    for name, seed in (("chosen on", 100), ("held out", 150)):
        sets[name] = asyncio.run(measured(seed, given.runs, given.draws))
        for row in sets[name]:
            print(
                f"{name:9} {row[0]:24} {row[1]:3} vary: ratio {row[2]:.2f}, held {row[3]:.3f}, "
                f"{row[4]:.2f} to {row[5]:.2f}"
            )
    columns = ["score", "contexts that vary", "ratio", "interval holds", "least", "most"]
    print(
        record("belief_errors", {"runs": given.runs, "draws": given.draws, "columns": columns, "sets": sets})
    )


if __name__ == "__main__":
    main()

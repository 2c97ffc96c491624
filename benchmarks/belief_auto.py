"""Belief(by="auto") beside Belief() on nano's runs: what it asks, and how far its ΔSePer is from that of ten answers.

What is counted: prompts read (likelihoods, contexts in which answers are drawn, pairs compared), and answers drawn.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections import Counter
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.machine import record
from benchmarks.options import parse, parser
from ragguard import world
from ragguard.engines.engine import Layer, send_to
from ragguard.engines.nano.nano_engine import NanoEngine
from ragguard.engines.requests import DrawRequest, Request
from ragguard.records import Run, Score
from ragguard.scorers.belief import Belief, By
from ragguard.scorers.pipeline import ScoringPipeline


class Counted(Layer):
    """Counts the prompts that pass, and the answers that are drawn."""

    def __init__(self, engine: NanoEngine) -> None:
        super().__init__(engine)
        self.asked: Counter[str] = Counter()

    async def send(self, request: Request) -> Any:
        self.asked["prompts"] += len(request.prompts)
        if isinstance(request, DrawRequest):
            self.asked["answers"] += request.n * len(request.prompts)
        return await send_to(self.wrapped, request)


async def measure(by: By, runs: list[Run]) -> tuple[Counter[str], dict[tuple[int, str], Score]]:
    engine = Counted(NanoEngine())
    pipeline = ScoringPipeline(engine, scorers=[Belief(by=by)])
    found = {}
    for at, run in enumerate(runs):
        for one in await pipeline.results(run):
            if isinstance(one, Score) and one.name == "delta_seper":
                found[at, one.step_id] = one
    await pipeline.aclose()
    return engine.asked, found


def made(number: int) -> list[Run]:
    runs = []
    for hops in (1, 2):
        for at, case in enumerate(world.cases(number, seed=5, hops=hops)):
            wrong = (1 + at // 3 % hops,)
            miss, mislead = ((), (), wrong)[at % 3], ((), wrong, ())[at % 3]
            runs.append(world.make_run(case, seed=5, useless_steps=1, miss=miss, mislead=mislead))
    return runs


async def main() -> None:
    options = parser(__doc__)
    options.add_argument(
        "--runs", type=int, default=12,
        help="runs of one hop and runs of two; in each third all is found, a hop is missed, a hop misleads",
    )  # fmt: skip
    runs = made(parse(options, runs=3).runs)
    asked, full = await measure("samples", runs)
    fewer, auto = await measure("auto", runs)
    both = [(full[key], auto[key]) for key in full if key in auto]
    gaps = [b.value - a.value for a, b in both]
    errors = [a.stderr or 0.0 for a, _ in both]
    within = [
        abs(gap) <= 2 * math.hypot(a.stderr or 0, b.stderr or 0)
        for gap, (a, b) in zip(gaps, both, strict=True)
    ]
    figures = {
        "runs": len(runs), "steps": len(both), "prompts": asked["prompts"], "prompts_auto": fewer["prompts"],
        "answers": asked["answers"], "answers_auto": fewer["answers"],
        "share_of_prompts_and_answers": round(sum(fewer.values()) / sum(asked.values()), 3),
        "mean_difference": round(fmean(gaps), 4), "mean_absolute_difference": round(fmean(map(abs, gaps)), 4),
        "mean_standard_error": round(fmean(errors), 4),
        "within_two_standard_errors": round(fmean(within), 3),
    }  # fmt: skip
    print(record("belief_auto", figures).read_text())


if __name__ == "__main__":
    asyncio.run(main())

"""How often advice distrusts what it should not, and how many true contradictions it tells, on fresh questions.

    python benchmarks/advice_distrust.py --workers 16      10 seeds of 45 questions for each kind and judge
    python benchmarks/advice_distrust.py --seeds 2         fewer, for a look

Questions, agents and judges are those of `benchmarks/advice.py`, without a calibration; each seed also has a judge of
its own. Counted are the searches after which all that a question needs has been read. Each is judged twice: with the
bound from which a passage counts in a contradiction (`ragguard.advice.evidence.SURE`, chosen on seed 71 and first
measured on 272 and 273), and with the one from which a passage helps, which is next to none.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.advice import AT_ONCE, JUDGES, advised, trips
from benchmarks.machine import record
from ragguard import RagGuard
from ragguard.advice import evidence
from ragguard.engines.connect import connect
from ragguard.metrics.arrays import Booleans, Floats, Integers
from ragguard.runtime.limiter import in_parallel
from studies.intervals import over_questions
from studies.weak_judges import weak_judge

FIRST_SEED = 1001
"""The first of the seeds; none of them was used for the rule or its bound."""
SEEDS, QUESTIONS = 10, 45
BOUNDS = (evidence.SURE, evidence.HELPS)


class Stage(NamedTuple):
    """A search of an agent after which it has read all that its question needs."""

    question: str
    contradicted: bool
    """True where a passage that was read says something else of what is needed."""
    distrusted: tuple[bool, ...]
    """True where the advice was `distrust`, for each of `BOUNDS`."""


def stages(kind: str, strength: float | None, seed: int, questions: int) -> list[Stage]:
    """Returns the stages of the questions of one seed, for a judge of that AUC or the engine itself."""
    return asyncio.run(_stages(kind, strength, seed, questions))


async def _stages(kind: str, strength: float | None, seed: int, questions: int) -> list[Stage]:
    engine = connect("nano")
    judge = engine if strength is None else await weak_judge(engine, strength, seed=seed)
    made = await trips(engine, kind, questions, seed)
    said: list[list[list[str]]] = []
    async with RagGuard(engine, judge=judge, store=None, scorers=()) as rg:
        for bound in BOUNDS:
            evidence.SURE = bound  # this process measures nothing else
            told = await in_parallel([partial(advised, rg, trip) for trip in made], AT_ONCE)
            said.append([[one.action for one in trip.advice] for trip in told])
    return [
        Stage(trip.name, trip.is_contradicted(at), tuple(by[number][at - 1] == "distrust" for by in said))
        for number, trip in enumerate(made) for at in range(1, len(trip.steps) + 1) if trip.holds_all(at)
    ]  # fmt: skip


def share(flags: Floats, chosen: Booleans, owners: Integers) -> dict[str, Any]:
    """Returns a share of the chosen stages with its interval over draws of whole questions, and of how many."""
    flags, owners = flags[chosen], owners[chosen]
    found = {"stages": len(flags), "questions": len(np.unique(owners))}
    if not len(flags):
        return {"share": None, "interval_95": None, **found}
    edges = over_questions(lambda rows: float(flags[rows].mean()), owners, seed=7)
    return {
        "share": round(float(flags.mean()), 3),
        "interval_95": [round(edge, 3) for edge in edges],
        **found,
    }


def figures(found: Sequence[Stage]) -> dict[str, Any]:
    """Returns the shares of `distrust` with the bound and without it, and the change that the bound makes."""
    owners = np.unique([one.question for one in found], return_inverse=True)[1]
    lied = np.array([one.contradicted for one in found])
    by_bound = np.array([one.distrusted for one in found], dtype=np.float64).T
    columns = {f"bound {bound:g}": by_bound[at] for at, bound in enumerate(BOUNDS)}
    columns["change"] = by_bound[0] - by_bound[-1]
    groups = {"all was read": lied | ~lied, "nothing contradicts it": ~lied, "a passage contradicts it": lied}
    return {
        group: {name: share(flags, chosen, owners) for name, flags in columns.items()}
        for group, chosen in groups.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=SEEDS, help="seeds for each kind of question and judge")
    parser.add_argument("--questions", type=int, default=QUESTIONS, help="questions of a seed")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    args = parser.parse_args()
    began, measured = time.monotonic(), {}
    with ProcessPoolExecutor(args.workers, get_context("spawn")) as pool:
        asked = {
            (kind, strength): [
                pool.submit(stages, kind, strength, FIRST_SEED + at, args.questions)
                for at in range(args.seeds)
            ]
            for strength in JUDGES for kind in ("hard", "plain")
        }  # fmt: skip
        for (kind, strength), jobs in asked.items():
            name = f"{kind}, {'nano' if strength is None else f'AUC {strength:g}'}"
            measured[name] = figures([stage for job in jobs for stage in job.result()])
            for group, shares in measured[name].items():
                print(name, "|", group, "|", shares, flush=True)
            seeds = {"first_seed": FIRST_SEED, "seeds": args.seeds, "questions_of_a_seed": args.questions}
            elapsed = round(time.monotonic() - began)
            print(record("advice_distrust", {**seeds, "figures": measured, "seconds": elapsed}), flush=True)


if __name__ == "__main__":
    main()

"""How often advice distrusts what it should not, and how many true contradictions it tells, on fresh questions.

    python benchmarks/advice_distrust.py --workers 16      10 seeds of 45 questions for each kind and judge
    python benchmarks/advice_distrust.py --seeds 2         fewer, for a look
    python benchmarks/advice_distrust.py --first-seed 1001 ten earlier seeds, by which an earlier rule was judged
    python benchmarks/advice_distrust.py --contested       the score `contested` in place of advice, on seeds of its own

Questions, agents and judges are those of `benchmarks/advice.py`, without a calibration; each seed also has a judge of
its own. Counted are the searches after which all that a question needs has been read. Each is judged three times: by
the rule (`SURE` and `ANSWERS` of `ragguard.scorers.contested`, chosen on the hard questions of seeds 2001 to 2004), by
the reader's answer to the query alone, as the rule was before (0.95), and with every passage that helps. The score
`contested` is counted where it is over 0, by the rule and by the judge alone, as it was before. Where advice
distrusts though nothing contradicts what is needed, it is also counted how often passages contradict each other about
what was asked instead, such as another name that the agent took over.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.advice import AT_ONCE, JUDGES, Trip, advised, trips
from benchmarks.machine import record
from benchmarks.options import parse, parser
from ragguard import RagGuard
from ragguard.advice import evidence
from ragguard.engines.connect import connect
from ragguard.facts.verdicts import CLEAR
from ragguard.metrics.arrays import Booleans, Floats, Integers
from ragguard.records import Failure, Score
from ragguard.runtime.limiter import in_parallel
from ragguard.scorers import contested
from ragguard.scorers.pipeline import ScoringPipeline
from studies.intervals import over_questions
from studies.label_noise import LabelNoise
from studies.weak_judges import scales_for

FIRST_SEED = 3001
"""The first of the seeds; none of them was used for the rule or its bounds."""
SEEDS, QUESTIONS = 10, 45
RULES = {
    "rule": (contested.SURE, contested.ANSWERS), "query alone": (0.95, 0.0), "any that helps": (CLEAR, 0.0),
}  # fmt: skip
"""The bounds on the reader's answer to the query and to the sub-question, by the name of the rule."""
CONTESTED_RULES = {"rule": RULES["rule"], "judge alone": (0.0, 0.0)}
CONTESTED_SEED = 4001
"""The first of the seeds for the score `contested`."""


Scales: TypeAlias = dict[float, dict[tuple[str, ...], float]]
"""The noise that leaves a judge its AUC, by that AUC, as `LabelNoise` takes it."""


class Stage(NamedTuple):
    """A search of an agent after which it has read all that its question needs."""

    question: str
    contradicted: bool
    """True where a passage that was read says something else of what is needed."""
    distrusted: tuple[bool, ...]
    """True where the advice was `distrust`, by each rule."""
    otherwise: bool
    """True where passages contradict each other about what was asked, though not about what is needed."""


def stages(
    kind: str, scales: Scales, seed: int, questions: int, *, by_score: bool
) -> dict[float | None, list[Stage]]:
    """Returns the stages of the questions of one seed, by the AUC of the judge; None: the engine itself. They are
    judged by advice, or by the score `contested`."""
    return asyncio.run(_stages(kind, scales, seed, questions, by_score))


async def _stages(
    kind: str, scales: Scales, seed: int, questions: int, by_score: bool
) -> dict[float | None, list[Stage]]:
    engine = connect("nano")
    made = await trips(engine, kind, questions, seed)
    found = {}
    for strength in JUDGES:
        judge = engine if strength is None else LabelNoise(engine, scales[strength], seed)
        said: list[list[list[bool]]] = []
        pipeline = ScoringPipeline(engine, judge=judge, scorers=[contested.Contested()])
        async with RagGuard(engine, judge=judge, store=None, scorers=()) as rg:
            for bounds in (CONTESTED_RULES if by_score else RULES).values():
                contested.SURE, contested.ANSWERS = bounds  # this process measures nothing else
                vars(evidence)["SURE"] = contested.SURE
                if by_score:
                    said.append(
                        await in_parallel([partial(scored, pipeline, trip) for trip in made], AT_ONCE)
                    )
                else:
                    told = await in_parallel([partial(advised, rg, trip) for trip in made], AT_ONCE)
                    said.append([[one.action == "distrust" for one in trip.advice] for trip in told])
        found[strength] = [
            Stage(
                trip.name, trip.is_contradicted(at), tuple(by[number][at - 1] for by in said),
                otherwise=not trip.is_contradicted(at) and is_contradicted_as_asked(trip, at),
            )
            for number, trip in enumerate(made) for at in range(1, len(trip.steps) + 1) if trip.holds_all(at)
        ]  # fmt: skip
    return found


async def scored(pipeline: ScoringPipeline, trip: Trip) -> list[bool]:
    """Returns whether the run is contested as it stood after each search of a trip."""
    found = [await pipeline.results(trip.stage(number)) for number in range(1, len(trip.steps) + 1)]
    if failed := [one for results in found for one in results if isinstance(one, Failure)]:
        raise SystemExit(f"contested failed: {failed[0].message}")
    return [
        any(score.level == "run" and score.value > 0 for score in results if isinstance(score, Score))
        for results in found
    ]


def is_contradicted_as_asked(trip: Trip, steps: int) -> bool:
    """Returns whether passages that were read state different things of a subject that the agent's plan asks about."""
    said: dict[tuple[str, str], set[str]] = defaultdict(set)
    for passage in trip.read(steps):
        known = passage.metadata
        own = known["relation"], known["subject"], known["object"]
        for relation, subject, object_ in (own, *known.get("facts", ())):
            said[relation, subject].add(object_)
    _, plan = trip.asked_then[steps - 1]
    return any(
        len(objects) > 1 and relation == fact.relation and subject in asked
        for (relation, subject), objects in said.items()
        for fact, asked in zip(trip.case.facts, plan, strict=True)
    )


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


def figures(found: Sequence[Stage], rules: Sequence[str]) -> dict[str, Any]:
    """Returns the shares of the stages that are distrusted by each rule, and how the first two rules differ."""
    owners = np.unique([one.question for one in found], return_inverse=True)[1]
    lied = np.array([one.contradicted for one in found])
    by_rule = np.array([one.distrusted for one in found], dtype=np.float64).T
    columns = dict(zip(rules, by_rule, strict=True))
    columns[f"change from {rules[1]}"] = columns["rule"] - columns[rules[1]]
    groups = {"all was read": lied | ~lied, "nothing contradicts it": ~lied, "a passage contradicts it": lied}
    shares: dict[str, Any] = {
        group: {name: share(flags, chosen, owners) for name, flags in columns.items()}
        for group, chosen in groups.items()
    }
    shares["distrusted, nothing contradicts it: contradicted as asked"] = {
        name: sum(
            one.otherwise for one, flag in zip(found, flags, strict=True) if flag and not one.contradicted
        )
        for name, flags in zip(rules, by_rule, strict=True)
    }
    return shares


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--contested", action="store_true", help="judge by the score `contested`")
    options.add_argument("--first-seed", type=int, help="the first of them")
    options.add_argument("--seeds", type=int, default=SEEDS, help="seeds for each kind of question and judge")
    options.add_argument("--questions", type=int, default=QUESTIONS, help="questions of a seed")
    options.add_argument("--workers", type=int, default=1, help="processes")
    args = parse(options, seeds=1, questions=2)
    usual = CONTESTED_SEED if args.contested else FIRST_SEED
    first = usual if args.first_seed is None else args.first_seed
    rules = list(CONTESTED_RULES if args.contested else RULES)
    began, measured = time.monotonic(), {}
    scales = {one: asyncio.run(scales_for(connect("nano"), one)) for one in JUDGES if one is not None}
    with ProcessPoolExecutor(args.workers, get_context("spawn")) as pool:
        asked = {
            kind: [
                pool.submit(stages, kind, scales, first + at, args.questions, by_score=args.contested)
                for at in range(args.seeds)
            ]
            for kind in ("hard", "plain")
        }
        for kind, strength in ((kind, strength) for kind in asked for strength in JUDGES):
            name = f"{kind}, {'nano' if strength is None else f'AUC {strength:g}'}"
            measured[name] = figures(
                [stage for job in asked[kind] for stage in job.result()[strength]], rules
            )
            for group, shares in measured[name].items():
                print(name, "|", group, "|", shares, flush=True)
            seeds = {
                "first_seed": first,
                "seeds": args.seeds,
                "questions_of_a_seed": args.questions,
            }
            elapsed = round(time.monotonic() - began)
            file = ("contested" if args.contested else "advice_distrust") + f"_{first}" * (first != usual)
            print(record(file, {**seeds, "figures": measured, "seconds": elapsed}), flush=True)


if __name__ == "__main__":
    main()

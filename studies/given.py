"""Utility given the earlier passages, on two-hop questions: whether it credits both hops, and goes with the answers.

This study is in none of the papers. Contexts are drawn as in the study of UDCG and read as an agent would have got
them: the passages of the first hop in one step, those of the second in the next.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from typing import get_args

import numpy as np

from ragguard.analysis.validation.answering import grader
from ragguard.analysis.validation.progress import Progress, silent
from ragguard.analysis.validation.tables import Cell, Table
from ragguard.engines.base import Engine
from ragguard.engines.connect import connect
from ragguard.errors import InvalidInput
from ragguard.metrics.arrays import Floats
from ragguard.metrics.distraction import udcg
from ragguard.records import Failure, RetrievalStep, Run, Score
from ragguard.scorers.pipeline import ScoringPipeline
from ragguard.scorers.utility import Utility
from ragguard.world import PassageKind, cases, default_world
from studies.annotations import unknown
from studies.pools import Pool, corpus_for, draw, find_pools
from studies.predictions import DataSet, correlations, differences
from studies.samples import Sample, read_contexts

K, CONTEXTS = 5, 10
GIVEN = "utility given, mean"
METRICS = ("UDCG, by the question", "UDCG, hop by hop", GIVEN, "utility given, as UDCG")
NAMES = ("utility", "utility_given")


async def study(
    engine: Engine,
    judge: Engine | None = None,
    *,
    questions: int = 80,
    seed: int = 0,
    progress: Progress = silent,
) -> list[Table]:
    """Makes the tables of correlations with the answers, and of what each kind of passage earns, over so many questions
    of two hops."""
    if questions < 1:
        raise InvalidInput("questions", questions, "1 or more")
    engine = connect(engine)
    judge = engine if judge is None else connect(judge)
    asked = cases(questions, seed, 2)
    pools = find_pools(corpus_for(default_world(), asked), asked, "two")
    rows = [_rows(pool, seed) for pool in pools]
    contexts = [
        (owner, hops) for owner, drawn in enumerate(rows) for hops in drawn
    ]  # one context: the places of the first hop's passages, and of the second's
    outcome = await read_contexts(
        [pools[owner].context((*one, *two), f"{number}") for number, (owner, (one, two)) in enumerate(contexts)],
        engine, await grader(judge), progress,
    )  # fmt: skip
    pipeline = ScoringPipeline(engine, judge=judge, scorers=[Utility(given=True)])
    values: dict[str, list[float]] = defaultdict(list)
    earned: dict[tuple[int, PassageKind, str], list[float]] = defaultdict(list)
    for number, (owner, hops) in enumerate(contexts):
        progress("scoring contexts", number, len(contexts))
        await _score(pipeline, pools[owner], hops, values, earned)
    progress("scoring contexts", len(contexts), len(contexts))
    drawn = Sample(
        tuple(map(unknown, pools)),
        np.array([owner for owner, _ in contexts], dtype=np.intp),
        np.array([[*one, *two] for _, (one, two) in contexts], dtype=np.intp).reshape(-1, K),
        outcome,
    )
    found: dict[str, Floats | None] = {name: np.array(values[name]) for name in METRICS}
    sets = [DataSet("two hops", drawn, found, questions)]
    recipe = (
        f"{CONTEXTS} contexts a question of {K} of its pool's passages, half with both facts, half without one. "
        "Relevance is the judge's everywhere, references unseen, as in production."
    )
    return [
        correlations(
            sets, "given-correlations", "Which utility goes with the answers", METRICS, "", [recipe]
        ),
        differences(sets, "given-differences", METRICS, GIVEN, ""),
        _earned(earned),
    ]


def _rows(pool: Pool, seed: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Returns the contexts as the agent's two steps; a passage that both hops found belongs to the hop whose fact it
    states, or to the first."""
    rng = random.Random(f"given {seed} {pool.id} {pool.case.question}")
    second = (pool.found_by[1] - pool.found_by[0]) | pool.gold[1]
    return [
        (tuple(at for at in row if at not in second), tuple(at for at in row if at in second))
        for row in draw(pool, K, CONTEXTS, rng)
    ]


async def _score(
    pipeline: ScoringPipeline,
    pool: Pool,
    hops: Sequence[Sequence[int]],
    values: dict[str, list[float]],
    earned: dict[tuple[int, PassageKind, str], list[float]],
) -> None:
    """Adds the metrics of one context to `values`, and those of its passages to `earned`."""
    steps = [
        RetrievalStep(
            query=pool.case.sub_questions[hop], passages=[pool.passages[at] for at in places], index=hop, turn=hop
        )
        for hop, places in enumerate(hops)
    ]  # fmt: skip
    whole = RetrievalStep(
        query=pool.case.question, passages=[pool.passages[at] for places in hops for at in places]
    )
    by_hop = await pipeline.results(Run(question=pool.case.question, steps=steps))
    by_question = await pipeline.results(Run(question=pool.case.question, steps=[whole]))
    given = [score.value for score in _named(by_hop, "utility_given")]
    values["UDCG, by the question"] += [score.value for score in _named(by_question, "udcg_context")]
    values["UDCG, hop by hop"] += [score.value for score in _named(by_hop, "udcg_context")]
    values[GIVEN].append(float(np.mean(given)))
    values["utility given, as UDCG"].append(float(udcg(np.clip(given, -1, 1))))
    places = {step.id: hops[hop] for hop, step in enumerate(steps)}
    for name in NAMES:
        for score in _named(by_hop, name):
            hop = 1 + (score.step_id == steps[1].id)
            kind = pool.kinds[places[score.step_id][(score.position or 1) - 1]]
            earned[hop, kind, name].append(score.value)


def _named(results: Sequence[Score | Failure], name: str) -> list[Score]:
    return [one for one in results if isinstance(one, Score) and one.name == name]


def _earned(earned: dict[tuple[int, PassageKind, str], list[float]]) -> Table:
    """Makes the table of the mean of what each kind of passage earns in each hop."""
    rows: list[tuple[Cell, ...]] = []
    for hop in (1, 2):
        for kind in get_args(PassageKind):
            found = [earned[hop, kind, name] for name in NAMES]
            if found[0]:
                means = [float(np.mean(values)) for values in found]
                rows.append((f"hop {hop}: {kind.replace('_', ' ')}", len(found[0]), *means))
    return Table(
        "given-passages", "What a passage earns, by the hop that brought it",
        ("passages", "number", "utility, by the step's own query", "utility given"), tuple(rows), source="", notes=(),
    )  # fmt: skip

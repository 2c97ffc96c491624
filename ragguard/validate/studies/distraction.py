"""Trappolini et al., "Redefining Retrieval Evaluation in the Era of LLMs" (2025): does UDCG predict the answer?

The paper's recipes on questions of `ragguard.world`: ideal rankings (table 2), correlations over ten contexts of five
passages (table 3), ablations (table 4), the answer's probability as a rival (table 5), contexts of 1 to 10 passages
(figure 2). Every metric has the same relevance, the world's own, unless its row says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ragguard.engines.base import Engine
from ragguard.engines.connect import connect
from ragguard.metrics.agreement import paired_bootstrap
from ragguard.metrics.arrays import Floats
from ragguard.metrics.distraction import Ablation, LearnedUdcg, udcg
from ragguard.validate.annotations import Annotated, annotate
from ragguard.validate.answering import grader
from ragguard.validate.contexts import OUTCOMES
from ragguard.validate.pools import find_pools
from ragguard.validate.predictions import (
    DataSet,
    Values,
    by_length,
    correlations,
    differences,
    other_kinds,
    outcomes,
    splits,
)
from ragguard.validate.progress import Progress, silent
from ragguard.validate.samples import Sample, read_contexts, sample
from ragguard.validate.scoring import rank_measures
from ragguard.validate.tables import Cell, Table
from ragguard.world import cases, default_world

SOURCE = "Trappolini et al. 2025"
K = 5
CONTEXTS = 10
LENGTHS = range(1, 11)
ABLATIONS: dict[str, Ablation | None] = {
    "UDCGθ": None, "UDCGθ, rel-only": "rel_only", "UDCGθ, binary": "binary",
}  # fmt: skip
SCHEMAS: dict[str, Callable[[Annotated], Floats]] = {
    "binary relevance": lambda one: one.relevance,
    "eRAG": lambda one: one.erag,
    "utility": lambda one: one.utility,
}
CLASSICAL = {
    "NDCG": "ndcg", "MRR": "reciprocal_rank", "MAP": "average_precision", "PREC": "precision", "HITS": "hits",
    "RECALL": "recall",
}  # fmt: skip
METRICS = (
    *CLASSICAL, "eRAG", "eRAG, NDCG", "UDCG", "UDCGθ", "UDCG, judge's relevance", "UDCG, hop by hop",
    "UDCG, hop by hop, judge's relevance",
)  # fmt: skip
RELEVANCE = (
    "Every metric has the world's own relevance, UDCG too, unless its row says that it is the judge's. NDCG, MAP and "
    "RECALL know all that is relevant among the 25; eRAG is the mean ROUGE-L of the passages' own answers, or their "
    "NDCG. Hop by hop: each passage is judged for the query that found it, as in an agent's run."
)
RECIPE = (
    f"{CONTEXTS} contexts a question of {K} of the 25 best passages in chance order, half of them with what is needed "
    "for the answer, half without all that states one of the facts."
)
LIKELY = "ANSWER_PROB is the mean probability of the reference, word for word, given each passage alone."


async def study(
    engine: Engine,
    judge: Engine | None = None,
    *,
    questions: int = 200,
    seed: int = 0,
    progress: Progress = silent,
) -> list[Table]:
    """The paper's tables, over so many questions of one hop and as many of two."""
    engine = connect(engine)
    judge = engine if judge is None else connect(judge)
    compares = await grader(judge)
    learnt, trained_on = await _training(engine, judge, compares, questions, seed, progress)
    sets = []
    for hops, name in ((1, "one hop"), (2, "two hops")):
        asked = cases(questions, seed, hops)
        pools = await annotate(find_pools(default_world(), asked, f"{hops}"), engine, judge, progress)
        drawn = await sample(pools, engine, compares, k=K, contexts=CONTEXTS, seed=seed, progress=progress)
        sets.append(DataSet(name, drawn, {**measured(drawn), **_learnt(drawn, learnt)}, questions))
    one = sets[0]
    lengths = {
        k: one.sample if k == K else
        await sample(one.sample.pools, engine, compares, k=k, contexts=CONTEXTS, seed=seed, progress=progress)
        for k in LENGTHS
    }  # fmt: skip
    trained = f"UDCGθ was trained on {trained_on} other contexts of one hop, and on none of two."
    return [
        await _ideal_rankings(sets, engine, compares, progress),
        correlations(
            sets, "distraction-correlations", "Which metric goes with the answers", METRICS,
            f"{SOURCE}, table 3", [RECIPE, RELEVANCE, trained],
        ),
        differences(sets, "distraction-differences", METRICS, "UDCG", f"{SOURCE}, table 3 (its bootstrap)"),
        correlations(
            sets, "distraction-ablation", "What each part of UDCG is good for",
            ("UDCGθ", "UDCGθ, rel-only", "UDCGθ, binary", "UDCG", "UDCG, rel-only"),
            f"{SOURCE}, table 4", [],
        ),
        correlations(
            sets, "distraction-estimators", "The right answer's probability as a rival",
            ("NDCG", "PREC", "eRAG", "ANSWER_PROB", "UDCG", "UDCGθ"),
            f"{SOURCE}, table 5", [LIKELY],
        ),
        by_length(
            {k: DataSet(one.name, drawn, measured(drawn), one.asked) for k, drawn in lengths.items()},
            "distraction-lengths", "Contexts of 1 to 10 passages, one hop",
            ("NDCG", "MRR", "MAP", "PREC", "eRAG", "UDCG"), f"{SOURCE}, figure 2",
        ),
        splits(sets, "distraction-splits", METRICS),
        other_kinds(sets, "distraction-other-kinds", METRICS, f"{SOURCE}, table 3"),
        outcomes(sets, "distraction-outcomes"),
        _weights(learnt),
    ]  # fmt: skip


def measured(drawn: Sample) -> Values:
    """Every metric that needs no training, of each context."""
    relevance = drawn.of(lambda one: one.relevance)
    classical = rank_measures(relevance, drawn.ideal(lambda one: one.relevance))
    erag = drawn.of(lambda one: one.erag)
    hops = max((one.pool.case.hops for one in drawn.pools), default=1)
    likely = all(one.p_answer is not None for one in drawn.pools)
    return {
        **{name: classical[metric] for name, metric in CLASSICAL.items()},
        "eRAG": erag.mean(axis=-1),
        "eRAG, NDCG": rank_measures(erag, drawn.ideal(lambda one: one.erag))["ndcg"],
        "ANSWER_PROB": drawn.of(_p_answer).mean(axis=-1) if likely else None,
        "UDCG": _udcg(drawn, lambda one: one.utility),
        "UDCG, rel-only": _udcg(drawn, lambda one: one.utility, 0.0),
        "UDCG, judge's relevance": _udcg(drawn, lambda one: one.judged),
        "UDCG, hop by hop": _udcg(drawn, lambda one: one.by_hop) if hops > 1 else None,
        "UDCG, hop by hop, judge's relevance":
            _udcg(drawn, lambda one: one.judged_by_hop) if hops > 1 else None,
    }  # fmt: skip


def _p_answer(one: Annotated) -> Floats:
    return np.zeros(0) if one.p_answer is None else one.p_answer


def _udcg(drawn: Sample, values: Callable[[Annotated], Floats], gamma: float = 1 / 3) -> Floats:
    return np.asarray(udcg(drawn.of(values), gamma))


async def _training(
    engine: Engine, judge: Engine, compares: Engine | None, questions: int, seed: int, progress: Progress
) -> tuple[dict[str, LearnedUdcg], int]:
    """The learnt metric and its ablations, and from how many contexts: 1,200 beside 200 questions, as in the paper."""
    tested = {fact for hops in (1, 2) for case in cases(questions, seed, hops) for fact in case.facts}
    wanted = max(4, round(questions * 0.6))
    fresh = [case for case in cases(2 * wanted, seed + 1) if not tested & set(case.facts)][:wanted]
    pools = await annotate(find_pools(default_world(), fresh, "train"), engine, judge, progress)
    drawn = await sample(pools, engine, compares, k=K, contexts=CONTEXTS, seed=seed, progress=progress)
    if not drawn.varied:
        return {}, 0
    utilities, known = drawn.of(lambda one: one.utility), ~np.isnan(drawn.outcome)
    fitted = {
        name: LearnedUdcg(K, ablation).fit(utilities[known], drawn.outcome[known], drawn.owner[known])
        for name, ablation in ABLATIONS.items()
    }
    return fitted, int(known.sum())


def _learnt(drawn: Sample, learnt: Mapping[str, LearnedUdcg]) -> Values:
    utilities = drawn.of(lambda one: one.utility)
    return {name: np.asarray(learnt[name](utilities)) if name in learnt else None for name in ABLATIONS}


async def _ideal_rankings(
    sets: Sequence[DataSet], engine: Engine, compares: Engine | None, progress: Progress
) -> Table:
    """Five passages chosen from each pool by one schema or another, and what the reader makes of them."""
    rows: list[tuple[Cell, ...]] = []
    notes = [
        "Shares of correct answers (C), abstentions (A) and wrong answers (W), of 100. Equal worth: in the order in "
        "which they were found.",
    ]
    for one in sets:
        found = {}
        for name, worth in SCHEMAS.items():
            chosen = [np.argsort(-worth(pool), kind="stable")[:K].tolist() for pool in one.sample.pools]
            contexts = [
                pool.pool.context(row, name) for pool, row in zip(one.sample.pools, chosen, strict=True)
            ]
            found[name] = await read_contexts(contexts, engine, compares, progress)
        shares = [
            100 * float(np.mean(outcome == OUTCOMES[verdict]))
            for outcome in found.values()
            for verdict in ("correct", "abstained", "wrong")
        ]  # fmt: skip
        rows.append((one.name, *shares))
        for name in ("binary relevance", "eRAG"):
            wrong = [
                (outcome == OUTCOMES["wrong"]).astype(float) for outcome in (found["utility"], found[name])
            ]
            gap = paired_bootstrap(*wrong)
            notes.append(
                f"{one.name.capitalize()}: {100 * gap.value:+.1f} of 100 wrong answers, utility beside {name} "
                f"(95 % {100 * gap.low:+.1f} to {100 * gap.high:+.1f}, p = {gap.p:.3f})."
            )
    rows.append(("mean", *(float(np.mean([row[at] for row in rows])) for at in range(1, len(rows[0])))))
    columns = tuple(f"{name} {mark}" for name in SCHEMAS for mark in ("C", "A", "W"))
    return Table(
        "distraction-ideal-rankings", "What is answered from five passages chosen by an oracle",
        ("questions", *columns), tuple(rows), f"{SOURCE}, table 2", tuple(notes), digits=1,
    )  # fmt: skip


def _weights(learnt: Mapping[str, LearnedUdcg]) -> Table:
    told = learnt["UDCGθ"].to_dict() if learnt else {"alpha": [None] * K, "beta": [None] * K}
    rows = tuple((str(at + 1), told["alpha"][at], told["beta"][at]) for at in range(K))
    return Table(
        "distraction-weights", "What UDCGθ learnt for each position", ("position", "α (gain)", "β (harm)"), rows,
        f"{SOURCE}, eq. 3", ("Equal weights in a column would say that it does not matter where a passage stands.",),
    )  # fmt: skip

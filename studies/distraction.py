"""Trappolini et al., "Redefining Retrieval Evaluation in the Era of LLMs" (2025): whether UDCG predicts the answer.

The paper's recipes on questions of `ragguard.world`: ideal rankings (table 2), correlations over ten contexts of five
passages (table 3), ablations (table 4), the answer's probability as a rival (table 5), contexts of 1 to 10 passages
(figure 2). Every metric has the same relevance, the world's own, unless its row says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ragguard.analysis.tables import Cell, Table
from ragguard.engines.base import Engine
from ragguard.engines.connect import connect
from ragguard.errors import InvalidInput
from ragguard.lab.validation.answering import grader
from ragguard.lab.validation.contexts import OUTCOMES, Progress, rank_measures, silent
from ragguard.metrics.agreement import paired_bootstrap
from ragguard.metrics.arrays import Floats
from ragguard.metrics.distraction import Ablation, LearnedUdcg, udcg
from ragguard.world import PassageKind, cases, default_world
from studies.annotations import Annotated, annotate
from studies.pools import Pool, corpus_for, find_pools
from studies.predictions import (
    DataSet,
    Values,
    by_length,
    correlations,
    differences,
    other_kinds,
    outcomes,
    splits,
)
from studies.samples import Sample, read_contexts, sample

SOURCE = "Trappolini et al. 2025"
KINDS: tuple[PassageKind, ...] = ("gold", "same_relation", "same_subject", "contradiction", "unrelated")
SETS = {1: "one hop", 2: "two hops"}
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
PASSAGES: dict[str, Callable[[Annotated], Floats]] = {
    "judged relevant": lambda one: (one.p_relevant >= 0.5).astype(np.float64),
    "p(abstain)": lambda one: one.p_abstain,
    "utility": lambda one: one.utility,
    "utility, judge's relevance": lambda one: one.judged,
    "utility, hop by hop": lambda one: one.by_hop,
    "hop by hop, judge's relevance": lambda one: one.judged_by_hop,
    "eRAG": lambda one: one.erag,
}
CLASSICAL = {
    "NDCG@K": "ndcg_at_k", "MRR": "reciprocal_rank", "MAP": "average_precision", "PREC": "precision", "HITS": "hits",
    "RECALL": "recall",
}  # fmt: skip
METRICS = (
    *CLASSICAL, "eRAG", "eRAG, NDCG@K", "UDCG", "UDCGθ", "UDCG, judge's relevance", "UDCG, hop by hop",
    "UDCG, hop by hop, judge's relevance",
)  # fmt: skip
GAMMAS = {"UDCG, rel-only": 0.0, "UDCG, γ = 2/3": 2 / 3, "UDCG, γ = 1": 1.0}
PARTS = (*ABLATIONS, "UDCG", *GAMMAS)
ESTIMATORS = ("NDCG@K", "PREC", "eRAG", "ANSWER_PROB", "UDCG", "UDCGθ")
DRAWN = ("NDCG@K", "MRR", "MAP", "PREC", "HITS", "eRAG", "UDCG")
UNTIED = "(the outcome, ties broken by chance)"
CONTROLS = ("(the outcome itself)", UNTIED, "(HITS, ties broken by chance)", "(the outcomes, shuffled)")
RELEVANCE = (
    "Every metric has the world's own relevance, UDCG too, unless its row says that it is the judge's. NDCG@K, "
    "cut at the K passages of the context, MAP and RECALL know all that is relevant among the 25. eRAG is the "
    "mean ROUGE-L of the passages' own answers, or their NDCG@K. Hop by hop: each passage is judged for the query "
    "that found it, as in an agent's run."
)
RECIPE = (
    f"{CONTEXTS} contexts for each question, each of {K} of the 25 best passages in chance order. Half of the "
    "contexts have all that the answer needs. In the other half nothing states one of the facts."
)
LIKELY = "ANSWER_PROB is the mean probability of the reference, word for word, given each passage by itself."


async def study(
    engine: Engine,
    judge: Engine | None = None,
    *,
    questions: int = 200,
    seed: int = 0,
    progress: Progress = silent,
) -> list[Table]:
    """Makes the paper's tables, over so many questions of one hop and as many of two.

    The learnt metric is trained on 0.6 times as many others of one hop: 1,200 contexts beside 200 questions, as there.
    """
    if questions < 1:
        raise InvalidInput("questions", questions, "1 or more")
    engine = connect(engine)
    judge = engine if judge is None else connect(judge)
    compares = await grader(judge)
    asked = {hops: cases(questions, seed, hops) for hops in SETS}
    tested = {fact for some in asked.values() for case in some for fact in case.facts}
    wanted = max(4, round(questions * 0.6))
    fresh = [case for case in cases(2 * wanted, seed + 1) if not tested & set(case.facts)][:wanted]
    corpus = corpus_for(default_world(), [*asked[1], *asked[2], *fresh])
    learnt, trained_on = await _training(
        find_pools(corpus, fresh, "train"), engine, judge, compares, seed, progress
    )
    sets = []
    for hops, name in SETS.items():
        pools = await annotate(find_pools(corpus, asked[hops], f"{hops}"), engine, judge, progress=progress)
        drawn = await sample(pools, engine, compares, k=K, contexts=CONTEXTS, seed=seed, progress=progress)
        values = {**measured(drawn), **_learnt(drawn, learnt)}
        values |= controls(drawn, drawn.of(lambda one: one.relevance).max(axis=-1), seed)
        sets.append(DataSet(name, drawn, values, questions))
    few = sets[0].sample.pools[: -(-len(sets[0].sample.pools) // 2)]
    lengths = {}
    for k in LENGTHS:
        drawn = await sample(few, engine, compares, k=k, contexts=CONTEXTS, seed=seed, progress=progress)
        lengths[k] = DataSet("one hop", drawn, measured(drawn), len(few))
    trained = f"UDCGθ was trained on {trained_on} other contexts of one hop, and on none of two."
    reached = [(one.name, one.correlation(UNTIED, draws=2)) for one in sets]
    ceiling = (
        "A metric that knows the outcome but has no ties reaches "
        + ", ".join(f"{found.value:.3f} ({name})" for name, found in reached if found is not None)
        + ". By this coefficient, metrics of few values such as HITS lose less."
    )
    table_3, figure_2 = f"{SOURCE}, table 3", f"{SOURCE}, figure 2"
    return [
        await _ideal_rankings(sets, engine, compares, progress),
        correlations(sets, "distraction-correlations", "Which metric goes with the answers", METRICS,
                     table_3, [RECIPE, RELEVANCE, trained, ceiling]),
        differences(sets, "distraction-differences", METRICS, "UDCG", table_3),
        other_kinds(sets, "distraction-other-kinds", (*METRICS, *CONTROLS), table_3),
        differences(sets, "distraction-differences-d", METRICS, "UDCG", table_3, "somers_d"),
        correlations(sets, "distraction-ablation", "What each part of UDCG is good for", PARTS,
                     f"{SOURCE}, table 4"),
        correlations(sets, "distraction-estimators", "The right answer's probability as a rival", ESTIMATORS,
                     f"{SOURCE}, table 5", [LIKELY]),
        by_length(lengths, "distraction-lengths", "Contexts of 1 to 10 passages, one hop", DRAWN, figure_2),
        by_length(lengths, "distraction-lengths-d", "Contexts of 1 to 10 passages, one hop", DRAWN, figure_2,
                  "somers_d"),
        splits(sets, "distraction-splits", METRICS),
        _passages(sets),
        outcomes(sets, "distraction-outcomes"),
        _weights(learnt),
    ]  # fmt: skip


def measured(drawn: Sample) -> Values:
    """Returns every metric that needs no training, of each context."""
    relevance = drawn.of(lambda one: one.relevance)
    classical = rank_measures(relevance, drawn.ideal(lambda one: one.relevance))
    erag = drawn.of(lambda one: one.erag)
    hops = max((one.pool.case.hops for one in drawn.pools), default=1)
    return {
        **{name: classical[metric] for name, metric in CLASSICAL.items()},
        "eRAG": erag.mean(axis=-1),
        "eRAG, NDCG@K": rank_measures(erag, drawn.ideal(lambda one: one.erag))["ndcg_at_k"],
        "ANSWER_PROB": drawn.of(lambda one: one.p_answer).mean(axis=-1),
        "UDCG": _udcg(drawn, lambda one: one.utility),
        **{name: _udcg(drawn, lambda one: one.utility, gamma) for name, gamma in GAMMAS.items()},
        "UDCG, judge's relevance": _udcg(drawn, lambda one: one.judged),
        "UDCG, hop by hop": _udcg(drawn, lambda one: one.by_hop) if hops > 1 else None,
        "UDCG, hop by hop, judge's relevance":
            _udcg(drawn, lambda one: one.judged_by_hop) if hops > 1 else None,
    }  # fmt: skip


def controls(drawn: Sample, hits: Floats, seed: int = 0) -> Values:
    """Returns the values of those who know the outcome, or whether there is a hit, with and without ties."""
    rng = np.random.default_rng(seed)
    shuffled = drawn.outcome.copy()
    for owner in range(len(drawn.pools)):
        rows = np.flatnonzero(drawn.owner == owner)
        shuffled[rows] = shuffled[rng.permutation(rows)]
    chance = rng.uniform(0, 0.5, len(shuffled))
    found = (drawn.outcome, drawn.outcome + chance, hits + chance, shuffled)
    return dict(zip(CONTROLS, found, strict=True))


def _udcg(drawn: Sample, values: Callable[[Annotated], Floats], gamma: float = 1 / 3) -> Floats:
    return np.asarray(udcg(drawn.of(values), gamma))


async def _training(
    found: Sequence[Pool],
    engine: Engine,
    judge: Engine,
    compares: Engine | None,
    seed: int,
    progress: Progress,
) -> tuple[dict[str, LearnedUdcg], int]:
    """Returns the learnt metric and its ablations, and the number of contexts it was learnt from."""
    pools = await annotate(found, engine, judge, rivals=False, progress=progress)
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
    """Makes the table of five passages chosen from each pool by one schema or another, and of the reader's outcomes
    with them."""
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
            bounds = f"95 % {100 * gap.low:+.1f} to {100 * gap.high:+.1f}, " if np.isfinite(gap.low) else ""
            notes.append(
                f"{one.name.capitalize()}: {100 * gap.value:+.1f} of 100 wrong answers, utility beside {name} "
                f"({bounds}p = {gap.p:.3f})."
            )
    rows.append(("mean", *(float(np.mean([row[at] for row in rows])) for at in range(1, len(rows[0])))))
    columns = tuple(f"{name} {mark}" for name in SCHEMAS for mark in ("C", "A", "W"))
    return Table(
        "distraction-ideal-rankings", "What is answered from five passages chosen by an oracle",
        ("questions", *columns), tuple(rows), source=f"{SOURCE}, table 2", notes=tuple(notes), digits=1,
    )  # fmt: skip


def _passages(sets: Sequence[DataSet]) -> Table:
    """Makes the table of each kind of passage alone, as reader and judge see it: where the metrics get it wrong."""
    rows: list[tuple[Cell, ...]] = []
    for one in sets:
        pools = one.sample.pools
        kinds = np.concatenate([pool.pool.kinds for pool in pools]) if pools else np.array([])
        for kind in KINDS:
            here = kinds == kind
            means = [
                float(np.concatenate([values(pool) for pool in pools])[here].mean()) if here.any() else None
                for values in PASSAGES.values()
            ]
            rows.append((f"{one.name}: {kind.replace('_', ' ')}", int(here.sum()), *means))
    return Table(
        "distraction-passages", "What each kind of passage is to the reader and the judge",
        ("passages", "number", *PASSAGES), tuple(rows), source="", notes=("Means over the pools of all questions.",),
    )  # fmt: skip


def _weights(learnt: Mapping[str, LearnedUdcg]) -> Table:
    weights = learnt["UDCGθ"].to_dict() if learnt else {"alpha": [None] * K, "beta": [None] * K}
    rows = tuple((str(at + 1), weights["alpha"][at], weights["beta"][at]) for at in range(K))
    return Table(
        "distraction-weights", "What UDCGθ learnt for each position", ("position", "α (gain)", "β (harm)"), rows,
        source=f"{SOURCE}, eq. 3",
        notes=("Equal weights in a column would say that it does not matter where a passage stands.",),
    )  # fmt: skip

"""Measures what a judge's strength changes: agreement with the truth, the metrics, and the guard, for each judge.

Judges are the engine itself and the engine with as much noise on its log-odds as leaves it a stated AUC
(`studies.weak_judges`).
The questions are those of the harder world, where the engine errs by itself.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from ragguard import world
from ragguard.analysis.tables import Cell, Table
from ragguard.engines.base import Engine
from ragguard.engines.connect import connect
from ragguard.guard.guard import DistractorGuard
from ragguard.lab.validation.answering import grader
from ragguard.lab.validation.contexts import (
    OUTCOMES,
    Context,
    Progress,
    rank_measures,
    score_contexts,
    silent,
)
from ragguard.metrics import correlate
from ragguard.metrics.agreement import auc, cohen_kappa, paired_bootstrap
from ragguard.metrics.arrays import Booleans, Floats, Integers
from ragguard.metrics.distraction import RELEVANCES, udcg_of_parts, utility_parts
from ragguard.records import Decision
from ragguard.world import Case
from studies.hard_world import DEGREES, hard_cases
from studies.intervals import over_questions
from studies.pipelines import FIRST, chance
from studies.reasons import with_reasons
from studies.reports import Report, join_hard
from studies.responses import measured, rated, written
from studies.samples import read_contexts
from studies.weak_judges import STRENGTHS, judgements, verdicts, weak_judge

OWN = "the engine itself"
SIZE, CONTEXTS = 6, 8
"""The number of passages of a context, and of contexts of a question."""
THRESHOLDS = (-0.2, -0.5)
"""The guard's thresholds: the default one, and one that drops only passages that are harmful for certain."""
AT_EASE_MS = 600_000.0
FRESH = (101, 102, 103, 104)
"""Numbers that are added to the seed for the questions on which the forms of relevance are compared."""
PARTS = 4
"""The number of questions that a report of the coverage table has."""
Judges = Mapping[str, Engine]


async def study(
    engine: Engine,
    judge: Engine | None = None,
    *,
    questions: int = 60,
    seed: int = 0,
    progress: Progress = silent,
) -> list[Table]:
    """Makes the tables over so many questions of one hop; `judge` is the engine that the weaker judges are made of."""
    reader = connect(engine)
    strong = reader if judge is None else connect(judge)
    judges: dict[str, Engine] = {OWN: strong}
    for done, strength in enumerate(STRENGTHS):
        progress("calibrating judges", done, len(STRENGTHS))
        judges[f"AUC {strength:g}"] = await weak_judge(strong, strength, seed=seed)
    progress("calibrating judges", len(STRENGTHS), len(STRENGTHS))
    cases = hard_cases(questions, seed)
    contexts = contexts_of(cases, seed)
    compares = await grader(strong)
    outcome = await read_contexts(contexts, reader, compares, progress)
    tables = [
        await agreement(judges, cases, seed, progress),
        await metrics(judges, contexts, outcome, reader, progress),
        await relevance_forms(judges, questions, seed, reader, compares, progress),
        await guards(judges, contexts, outcome, reader, compares, seed, progress),
        await covered(judges, max(2, questions // 6), reader, seed, progress),
    ]
    return with_reasons(tables, await reader.info(), await strong.info())


def contexts_of(cases: Sequence[Case], seed: int) -> list[Context]:
    """Returns contexts of some of a case's passages in chance order: half with a gold passage, half without."""
    found = []
    for case in cases:
        rng = random.Random(f"judges {seed} {case.question}")
        for number in range(CONTEXTS):
            gold = rng.sample(case.gold, rng.randint(1, 2)) if number % 2 == 0 else []
            passages = [*gold, *rng.sample(case.distractors, SIZE - len(gold))]
            rng.shuffle(passages)
            found.append(Context(
                id=f"{case.question} {number}", question_id=case.question, question=case.question,
                # Without their grades, as each judge gives its own.
                passages=tuple(replace(passage, grade=None) for passage in passages), references=tuple(case.references),
                relevance=tuple(float(passage.metadata["kind"] == "gold") for passage in passages),
            ))  # fmt: skip
    return found


async def agreement(judges: Judges, cases: Sequence[Case], seed: int, progress: Progress) -> Table:
    """Makes the table of Cohen's κ of judge and truth, and the AUC on the plain and on the harder world."""
    rows: list[tuple[Cell, ...]] = []
    plain = world.cases(len(cases), seed + 1)
    pairs = [
        (owner, passage.metadata["kind"], passage.grade or 1)
        for owner, case in enumerate(cases)
        for passage in case.pool()
        if passage.metadata["kind"] not in ("outdated", "partial")
    ]
    owners, kinds, truth = (np.array(column) for column in zip(*pairs, strict=True))
    for done, (name, judge) in enumerate(judges.items()):
        progress("comparing judges with the truth", done, len(judges))
        _, p, good = await judgements(judge, "relevance", plain)
        easy = auc(verdicts(p, "relevance"), good)
        _, p, good = await judgements(judge, "relevance", cases)
        says = verdicts(p, "relevance")
        by_kind = [auc(says[good | (kinds == kind)], good[good | (kinds == kind)]) for kind in DEGREES[:-1]]
        verdict = says >= 0.5
        low, high = over_questions(partial(_kappa, verdict, good), owners, seed)
        _, p, _ = await judgements(judge, "grade", cases)
        graded = cohen_kappa(p.argmax(axis=1) + 1, truth, quadratic=True)
        rows.append(
            (name, easy, auc(says, good), *by_kind, cohen_kappa(verdict, good), low, high, graded, len(says))
        )
    progress("comparing judges with the truth", len(judges), len(judges))
    columns = (
        "judge", "AUC, plain world", "AUC, harder world",
        *(f"against {kind.replace('_', ' ')}" for kind in DEGREES[:-1]),
        "κ of relevance", "low", "high", "κ of grades, quadratic", "passages",
    )  # fmt: skip
    notes = (
        "Relevance without references, over or under one half; grades by their most probable label beside the world's. "
        "Gold passages against the rest; without partial answers, and without facts out of date, which nobody can tell "
        "from true ones. κ's interval: 95 % of a bootstrap over questions.",
        "The stated AUC is that of the plain world, whose passages state one fact each; the noise is calibrated on "
        "other questions of it.",
    )
    return Table(
        "judges-agreement", "How well each judge agrees with the truth", columns, tuple(rows),
        source="Trappolini et al. 2025, appendix B", notes=notes,
    )  # fmt: skip


async def metrics(
    judges: Judges, contexts: Sequence[Context], outcome: Floats, reader: Engine, progress: Progress
) -> Table:
    """Measures which metrics still go with the answers when the judge is weaker."""
    groups = [context.question_id for context in contexts]
    truth = rank_measures([list(context.relevance or ()) for context in contexts])
    rows: list[tuple[Cell, ...]] = []

    def add_row(judge: str, metric: str, values: Floats) -> None:
        found = correlate(values, outcome, "spearman", groups, flat=0.0)
        rows.append((judge, metric, found.value, found.low, found.high, found.counted, found.skipped))

    for name in ("ndcg_at_k", "precision"):
        add_row("the truth", name, truth[name])
    for judge_name, judge in judges.items():
        scored = await score_contexts(
            contexts, reader, judge=judge, scorers=("utility", "grades"), progress=progress
        )
        relevance = [
            [float((value or 0) >= 0.5) for value in one.of_passages("p_relevant")] for one in scored
        ]
        judged = rank_measures(relevance)
        add_row(judge_name, "udcg", np.array([one.values.get("udcg", np.nan) for one in scored]))
        add_row(judge_name, "ndcg_at_k, judged", judged["ndcg_at_k"])
        add_row(judge_name, "precision, judged", judged["precision"])
        add_row(judge_name, "harm (negative)", -np.array([one.values.get("harm", np.nan) for one in scored]))
    columns = ("judge", "metric", "Spearman with the outcome", "low", "high", "questions", "skipped")
    notes = (
        f"{len(contexts)} contexts of {SIZE} passages of the harder world, half of them with an answer. The mean of "
        "the questions' own correlations and its 95 % interval over questions. The reader is the same throughout: "
        "p(abstain) has no noise.",
    )
    return Table(
        "judges-metrics",
        "Which metric goes with the answers, by judge",
        columns,
        tuple(rows),
        source="",
        notes=notes,
    )


async def relevance_forms(
    judges: Judges, questions: int, seed: int, reader: Engine, compares: Engine | None, progress: Progress
) -> Table:
    """Compares UDCG with relevance as the judge's probability and as yes or no, on other questions than the other
    tables: by these the form of utility was chosen."""
    contexts, outcomes = list[Context](), list[Floats]()
    for other in FRESH:
        made = contexts_of(hard_cases(questions, seed + other), seed + other)
        contexts += [
            replace(one, question_id=f"{other} {one.question_id}", id=f"{other} {one.id}") for one in made
        ]
        outcomes.append(await read_contexts(made, reader, compares, progress))
    outcome, groups = np.concatenate(outcomes), [context.question_id for context in contexts]
    rows: list[tuple[Cell, ...]] = []
    for name, judge in judges.items():
        scored = await score_contexts(contexts, reader, judge=judge, progress=progress)
        judged = np.array(
            [[one.of_passages(said) for said in ("p_relevant", "p_abstain")] for one in scored], float
        )
        expected, binary = (
            np.asarray(udcg_of_parts(*utility_parts(judged[:, 0], judged[:, 1], form))) for form in RELEVANCES
        )
        found = [
            correlate(values, outcome, "spearman", groups, flat=0.0).value for values in (expected, binary)
        ]
        gap = paired_bootstrap(expected, binary, groups, outcome, flat=0.0)
        rows.append((name, *found, gap.value, gap.low, gap.high, gap.counted))
    columns = ("judge", "as a probability", "as yes or no", "difference", "low", "high", "questions")
    notes = (
        f"UDCG's Spearman correlation with the outcome within questions: {len(contexts)} contexts of "
        f"{len(groups) // CONTEXTS} questions of four other seeds, the same judges. The difference has its 95 % "
        "interval over questions.",
    )
    return Table(
        "judges-relevance",
        "Relevance as a probability, or as yes or no",
        columns,
        tuple(rows),
        source="",
        notes=notes,
    )


async def guards(
    judges: Judges, contexts: Sequence[Context], outcome: Floats, reader: Engine, compares: Engine | None, seed: int,
    progress: Progress,
) -> Table:  # fmt: skip
    """Measures what a guard drops with each judge, and what the reader makes of the rest."""
    kinds = ("gold", "partial", *DEGREES)
    before = _answers(outcome, outcome, contexts, seed)
    rows: list[tuple[Cell, ...]] = [("no guard", None, *[None] * len(kinds), *before)]
    for threshold in THRESHOLDS:
        for done, (name, judge) in enumerate(judges.items()):
            progress("guarding", done, len(judges))
            guard = DistractorGuard(reader, threshold, budget_ms=AT_EASE_MS, min_keep=0, judge=judge)
            decisions = [await guard.aprune(context.question, context.passages) for context in contexts]
            kept = [_kept(context, decision) for context, decision in zip(contexts, decisions, strict=True)]
            after = await read_contexts(kept, reader, compares, progress)
            dropped = [_dropped(decisions, contexts, kind) for kind in kinds]
            rows.append((name, threshold, *dropped, *_answers(after, outcome, contexts, seed)))
        progress("guarding", len(judges), len(judges))
    columns = (
        "judge", "threshold", *(f"{kind.replace('_', ' ')} dropped, %" for kind in kinds), "correct, %", "abstained, %",
        "wrong, %", "correct: change", "low", "high",
    )  # fmt: skip
    notes = (
        f"The guard may drop all. {len(contexts)} contexts of {len({one.question_id for one in contexts})} questions, "
        "half of them without an answer, where to abstain is right; change of the share of correct answers with its "
        "95 % interval over questions.",
    )
    return Table(
        "judges-guard", "The guard, by judge", columns, tuple(rows), source="", notes=notes, digits=1,
    )  # fmt: skip


async def covered(judges: Judges, reports: int, reader: Engine, seed: int, progress: Progress) -> Table:
    """Measures whether what a context covers tells what is answered, where passages state several facts."""
    made = [
        join_hard(hard_cases(PARTS, seed * 10_000 + 100 + number, gold=2), f"hard-{number}")
        for number in range(reports)
    ]
    rows: list[tuple[Cell, ...]] = []
    for name, judge in judges.items():
        judged = await rated(made, judge, progress)
        plan = {
            f"{search} {number}": [_drawn(one.report, search, number, seed) for one in judged]
            for search in FIRST for number in range(4)
        }  # fmt: skip
        values = measured(plan, judged, await written(judged, [plan], reader, judge, progress)).values
        groups = np.broadcast_to(np.arange(reports), values["right"].shape).ravel()
        row: list[Cell] = [name]
        for metric, against in (
            ("Cov(Z)", "right"),
            ("Cov(Z)", "Cov(y)"),
            ("Recall", "right"),
            ("nDCG@k", "right"),
        ):
            found = correlate(values[metric].ravel(), values[against].ravel(), groups=groups, flat=0.0)
            row += [found.value, found.low, found.high]
        rows.append(
            (*row, float(values["Cov(Z)"].mean()), float(values["right"].mean()), values["right"].size)
        )
    pairs = ("Cov(Z) and right", "Cov(Z) and Cov(y)", "Recall and right", "nDCG@k and right")
    columns = (
        "judge",
        *(part for pair in pairs for part in (pair, "low", "high")),
        "mean Cov(Z)",
        "mean right",
        "contexts",
    )
    notes = (
        f"Reports of {PARTS} questions of the harder world; some passages answer two of them. Spearman within reports "
        "with its 95 % interval. `right` is the share of questions that the reader answers rightly; no judge sees it.",
    )
    return Table(
        "judges-coverage", "What contexts cover, by judge", columns, tuple(rows), source="", notes=notes
    )


def _kappa(first: Booleans, second: Booleans, rows: Integers) -> float:
    return cohen_kappa(first[rows], second[rows])


def _drawn(report: Report, search: str, number: int, seed: int) -> tuple[int, ...]:
    return chance(report, search, number, SIZE, seed)


def _kept(context: Context, decision: Decision) -> Context:
    return Context(
        id=context.id, question_id=context.question_id, question=context.question, passages=tuple(decision.kept),
        references=context.references,
    )  # fmt: skip


def _dropped(decisions: Sequence[Decision], contexts: Sequence[Context], kind: str) -> float | None:
    """Returns how many percent of the passages of one kind were dropped."""
    gone = sum(one.passage.metadata["kind"] == kind for decision in decisions for one in decision.dropped)
    all_ = sum(passage.metadata["kind"] == kind for context in contexts for passage in context.passages)
    return 100 * gone / all_ if all_ else None


def _answers(after: Floats, before: Floats, contexts: Sequence[Context], seed: int) -> tuple[Cell, ...]:
    """Returns the shares of verdicts in percent, and by how much the share of correct ones changed."""
    shares = [100 * float(np.mean(after == value)) for value in OUTCOMES.values()]
    if after is before:
        return (*shares, None, None, None)
    gap = (after == OUTCOMES["correct"]).astype(np.float64) - (before == OUTCOMES["correct"])
    _, owners = np.unique([context.question_id for context in contexts], return_inverse=True)
    low, high = over_questions(lambda rows: 100 * float(gap[rows].mean()), owners, seed)
    return (*shares, 100 * float(gap.mean()), low, high)

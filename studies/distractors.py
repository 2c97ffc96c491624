"""Measures what distractors do to a reader, and how well sampling tells it (Trappolini et al. 2025).

Table 1, figure 1 and appendix D on questions of the harder world: one passage with the answer among weak or hard
distractors; the same at each place of a context of ten; and p(NO-RESPONSE) as the share of sampled answers that
abstain, beside the exact probability.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ragguard.analysis.tables import Cell, Table
from ragguard.engines.base import Engine
from ragguard.engines.connect import connect
from ragguard.engines.prompts import load_prompts
from ragguard.lab.validation.answering import grader
from ragguard.lab.validation.contexts import OUTCOMES, Context, Progress, rank_measures, silent
from ragguard.metrics import correlate, is_abstention, utility
from ragguard.metrics.arrays import Booleans, Floats, Integers
from ragguard.metrics.distraction import udcg
from ragguard.records import Passage
from ragguard.scorers.probes import abstention
from ragguard.world import Case
from studies.hard_world import DEGREES, hard_cases
from studies.intervals import of_mean
from studies.reasons import with_reasons
from studies.samples import read_contexts

SOURCE = "Trappolini et al. 2025"
WEAK, HARD = 0.2, 0.8
"""The distracting effects under which a distractor is weak, and over which it is hard, as in the paper."""
BESIDE = 4
"""The number of distractors beside the passage with the answer."""
LONG = 10
"""The length of the contexts in which that passage is moved."""
DRAWN = (1, 5, 10, 20)
"""The numbers of sampled answers from which abstention is estimated; the paper names 10 to 20."""
GUARD = -0.2
"""The threshold of utility under which a guard drops a passage, unless told."""


@dataclass(frozen=True, slots=True)
class Distractors:
    """A case and its distractors with their distracting effect: 1 − p(NO-RESPONSE) of the reader."""

    case: Case
    passages: tuple[Passage, ...]
    effect: Floats

    def chosen(self, where: Booleans, n: int, rng: random.Random) -> list[int] | None:
        """Draws `n` of the distractors that fit; None where fewer do."""
        fits = np.flatnonzero(where).tolist()
        return rng.sample(fits, n) if len(fits) >= n else None

    def is_a(self, *kinds: str) -> Booleans:
        """Tells which distractors are of these kinds."""
        return np.array([passage.metadata["kind"] in kinds for passage in self.passages])

    def context(self, places: Sequence[int], at: int, name: str) -> Context:
        """Returns the passage with the answer, put before the distractor at place `at`, among the chosen
        distractors."""
        passages = [self.passages[place] for place in places]
        passages.insert(at, self.case.gold[0])
        return Context(
            id=f"{self.case.question} {name} {at}", question_id=self.case.question, question=self.case.question,
            passages=tuple(passages), references=tuple(self.case.references),
            relevance=tuple(float(place == at) for place in range(len(passages))),
        )  # fmt: skip


async def study(
    engine: Engine,
    judge: Engine | None = None,
    *,
    questions: int = 150,
    seed: int = 0,
    progress: Progress = silent,
) -> list[Table]:
    """Makes the tables over so many questions of one hop."""
    reader = connect(engine)
    judging = reader if judge is None else connect(judge)
    compares = await grader(judging)
    pools = await _pools(reader, hard_cases(questions, seed, each=8), progress)
    tables = [
        await strengths(pools, reader, compares, seed, progress),
        await degrees(pools, reader, compares, seed, progress),
        await positions(pools, reader, compares, seed, progress),
        await sampling(pools[: max(1, questions // 5)], reader, seed, progress),
    ]
    return with_reasons(tables, await reader.info(), await judging.info())


async def _pools(reader: Engine, cases: Sequence[Case], progress: Progress) -> list[Distractors]:
    prompts = load_prompts((await reader.info()).prompts)
    found = []
    for done, case in enumerate(cases):
        progress("asking what distracts", done, len(cases))
        passages = tuple(passage for passage in case.distractors if passage.metadata["kind"] != "partial")
        asked = [abstention(prompts, case.question, passage.text) for passage in passages]
        p = (await reader.label_probs([one.prompt for one in asked], asked[0].labels)).p
        found.append(Distractors(case, passages, 1.0 - p[:, 0]))
    progress("asking what distracts", len(cases), len(cases))
    return found


async def strengths(
    pools: Sequence[Distractors], reader: Engine, compares: Engine | None, seed: int, progress: Progress
) -> Table:
    """Makes table 1: the same questions with weak and with hard distractors, the answer at the same place."""
    pairs: list[tuple[Context, Context]] = []
    effects: list[tuple[Floats, Floats]] = []
    for pool in pools:
        rng = random.Random(f"strengths {seed} {pool.case.question}")
        weak = pool.chosen(pool.effect < WEAK, BESIDE, rng)
        hard = pool.chosen(pool.effect > HARD, BESIDE, rng)
        if weak is not None and hard is not None:
            at = rng.randint(0, BESIDE)
            pairs.append((pool.context(weak, at, "weak"), pool.context(hard, at, "hard")))
            effects.append((pool.effect[weak], pool.effect[hard]))
    row: tuple[Cell, ...] = (*[None] * 9, 0)
    if pairs:
        outcome = await read_contexts([one for pair in pairs for one in pair], reader, compares, progress)
        right = (outcome == OUTCOMES["correct"]).astype(np.float64).reshape(-1, 2)
        gap = right[:, 0] - right[:, 1]
        low, high = of_mean(gap, seed)
        ranked = rank_measures([list(one.relevance or ()) for one, _ in pairs])["ndcg_at_k"]
        row = (
            100 * float(right[:, 0].mean()), 100 * float(right[:, 1].mean()), 100 * float(gap.mean()), 100 * low,
            100 * high, _wilcoxon(gap), float(np.mean(ranked)),
            *(float(np.mean([_udcg(effect[side]) for effect in effects])) for side in (0, 1)), len(pairs),
        )  # fmt: skip
    kinds = [
        passage.metadata["kind"]
        for pool in pools
        for passage, effect in zip(pool.passages, pool.effect, strict=True)
        if effect > HARD
    ]
    columns = (
        "reader", "weak: correct, %", "hard: correct, %", "difference", "low", "high", "p", "nDCG@K of both",
        "UDCG, weak", "UDCG, hard", "questions",
    )  # fmt: skip
    notes = (
        f"One passage with the answer and {BESIDE} distractors, weak (effect under {WEAK}) or hard (over {HARD}) by "
        "the reader's own p(NO-RESPONSE), at the same place in both contexts. Intervals: 95 % of a bootstrap over "
        "questions; p: Wilcoxon's signed-rank test, as in the paper.",
        "Questions that have no four hard distractors are left out. Facts out of date are "
        f"{100 * sum(one == 'outdated' for one in kinds) / max(1, len(kinds)):.0f} % of all hard distractors.",
    )
    return Table(
        "distractors-strength", "Weak and hard distractors side by side", columns,
        (((await reader.info()).model, *row),), source=f"{SOURCE}, table 1", notes=notes,
    )  # fmt: skip


async def degrees(
    pools: Sequence[Distractors], reader: Engine, compares: Engine | None, seed: int, progress: Progress
) -> Table:
    """Makes table 1 by the kinds of the distractors."""
    rows: list[tuple[Cell, ...]] = []
    for kind in DEGREES:
        contexts: list[Context] = []
        effects: list[float] = []
        for pool in pools:
            rng = random.Random(f"degrees {seed} {pool.case.question}")
            at = rng.randint(0, BESIDE)
            places = pool.chosen(pool.is_a(kind), BESIDE, rng)
            if places is not None:
                contexts.append(pool.context(places, at, kind))
                effects += pool.effect[places].tolist()
        outcome = await read_contexts(contexts, reader, compares, progress)
        right = (outcome == OUTCOMES["correct"]).astype(np.float64)
        low, high = of_mean(right, seed)
        shares = (100 * float(np.mean(outcome == OUTCOMES[name])) for name in ("abstained", "wrong"))
        rows.append((
            kind.replace("_", " "), float(np.mean(effects)) if effects else None, 100 * float(right.mean()), 100 * low,
            100 * high, *shares, len(contexts),
        ))  # fmt: skip
    columns = (
        "four distractors",
        "mean effect",
        "correct, %",
        "low",
        "high",
        "abstained, %",
        "wrong, %",
        "questions",
    )
    notes = (
        "Beside one passage with the answer. Facts that never change have no passage that is out of date.",
    )
    return Table(
        "distractors-degrees",
        "The same by degree",
        columns,
        tuple(rows),
        source=f"{SOURCE}, table 1",
        notes=notes,
    )


async def positions(
    pools: Sequence[Distractors], reader: Engine, compares: Engine | None, seed: int, progress: Progress
) -> Table:
    """Makes figure 1: the passage with the answer is moved through a context of irrelevant passages."""
    contexts: list[Context] = []
    effects: list[Floats] = []
    for pool in pools:
        rng = random.Random(f"positions {seed} {pool.case.question}")
        places = pool.chosen(~pool.is_a("outdated"), LONG - 1, rng)
        if places is None:
            continue
        for at in range(LONG):
            contexts.append(pool.context(places, at, "moved"))
            effects.append(pool.effect[places])
    outcome = (await read_contexts(contexts, reader, compares, progress)).reshape(-1, LONG)
    right = (outcome == OUTCOMES["correct"]).astype(np.float64)
    ranked = rank_measures([list(one.relevance or ()) for one in contexts[:LONG]])
    worth = [_udcg(effect) for effect in effects[::LONG]]
    rows: list[tuple[Cell, ...]] = []
    for at in range(LONG):
        low, high = of_mean(right[:, at], seed)
        rows.append((
            str(at + 1), 100 * float(right[:, at].mean()), 100 * low, 100 * high,
            *(float(ranked[name][at]) for name in ("ndcg_at_k", "average_precision", "reciprocal_rank", "precision")),
            float(np.mean(worth)),
        ))  # fmt: skip
    ends = right[:, [0, 1, -2, -1]].mean(axis=1) - right[:, 3:7].mean(axis=1)
    low, high = of_mean(ends, seed)
    notes = (
        f"{len(right)} questions; {LONG - 1} distractors that contradict nothing, in the same order throughout. "
        "Intervals: 95 % of a bootstrap over questions.",
        f"The two first and two last places are ahead of the four in the middle by {100 * ends.mean():.1f} points "
        f"({100 * low:.1f} to {100 * high:.1f}); positive is the paper's U shape.",
    )
    columns = ("place of the answer", "correct, %", "low", "high", "nDCG@K", "MAP", "MRR", "PREC", "UDCG")
    return Table(
        "distractors-position", "Where the answer stands in the context", columns, tuple(rows),
        source=f"{SOURCE}, figure 1", notes=notes,
    )  # fmt: skip


async def sampling(pools: Sequence[Distractors], reader: Engine, seed: int, progress: Progress) -> Table:
    """Makes the table of appendix D: p(NO-RESPONSE) as the share of sampled answers that abstain, beside the exact
    probability."""
    prompts = load_prompts((await reader.info()).prompts)
    template = prompts.template("abstention")
    exact, drawn, owners, relevant = [], [], [], []
    for owner, pool in enumerate(pools):
        progress("sampling abstentions", owner, len(pools))
        passages = [*pool.case.gold[:2], *pool.passages[::3]]
        asked = [abstention(prompts, pool.case.question, passage.text) for passage in passages]
        exact.append((await reader.label_probs([one.prompt for one in asked], asked[0].labels)).p[:, 0])
        found = await reader.sample(
            [one.prompt for one in asked],
            n=max(DRAWN),
            max_tokens=template.max_tokens,
            temperature=1.0,
            seed=seed,
        )
        drawn.append([[is_abstention(sample.text) for sample in samples] for samples in found])
        owners += [owner] * len(passages)
        relevant += [float(passage.metadata["kind"] == "gold") for passage in passages]
    progress("sampling abstentions", len(pools), len(pools))
    p, abstained = np.concatenate(exact), np.concatenate([np.array(rows, dtype=np.float64) for rows in drawn])
    truth = np.array(relevant)
    rows: list[tuple[Cell, ...]] = []
    for n in DRAWN:
        estimate = abstained[:, :n].mean(axis=1)
        rows.append((str(n), *sampling_errors(p, estimate, n, truth, np.array(owners, dtype=np.intp))))
    columns = (
        "answers", "mean error", "root mean square", "by chance alone", "bias", "Spearman with the exact",
        "guard decides alike, %", "UDCG: mean error",
    )  # fmt: skip
    notes = (
        f"{len(p)} passages of {len(pools)} questions, answers at temperature 1. By chance alone: the root mean square "
        "of √(p(1 − p)/n), which an unbiased estimate has.",
        f"The guard drops what has a utility under {GUARD}. UDCG of all passages of a question together.",
    )
    return Table(
        "distractors-sampling", "Abstention by sampling beside the exact probability", columns, tuple(rows),
        source=f"{SOURCE}, appendix D", notes=notes,
    )  # fmt: skip


def sampling_errors(
    p: Floats, estimate: Floats, n: int, relevant: Floats, owners: Integers
) -> tuple[float, ...]:
    """Returns the errors of estimates from `n` answers: of p, of decisions by utility, and of each question's UDCG."""
    off = estimate - p
    exact, guessed = np.asarray(utility(relevant, p)), np.asarray(utility(relevant, estimate))
    of_context = [
        abs(float(udcg(exact[owners == one])) - float(udcg(guessed[owners == one])))
        for one in np.unique(owners)
    ]
    return (
        float(np.abs(off).mean()), float(np.sqrt((off**2).mean())), float(np.sqrt((p * (1 - p) / n).mean())),
        float(off.mean()), correlate(estimate, p, flat=0.0).value,
        100 * float(np.mean((exact < GUARD) == (guessed < GUARD))), float(np.mean(of_context)),
    )  # fmt: skip


def _udcg(effect: Floats) -> float:
    """Returns UDCG of a passage with the answer, of which the reader is sure, among distractors of these effects."""
    return float(udcg(np.append(-effect, 1.0)))


def _wilcoxon(gap: Floats) -> float | None:
    """Returns the p of Wilcoxon's signed-rank test; None where no pair differs."""
    from scipy import stats

    return float(stats.wilcoxon(gap).pvalue) if gap.any() else None

"""Compares the numbers that may say which hop paid: how often a needed hop has the larger one than another hop.

In nano's world and, with `--data FOLDER`, on MuSiQue (`musique.jsonl`) and HotpotQA (`hotpotqa.jsonl`), which are no
part of the project: each hop finds its paragraph between two others, and one more hop finds three others.

What a useless hop asked matters to the number that is shown, which knows what led to what. It is measured with two
kinds of queries: the question itself, and a name from a passage that an earlier hop found.

Which material decides was fixed before it was measured, with the rule of `ragguard/facts/hop_worth.py` as it then was:

- HotpotQA: the questions that were never measured, those of two hops behind the first `MEASURED` and all comparisons.
- MuSiQue: every question, with other paragraphs and another place of the useless hop (`DRAW`, a seed never used
  before). The questions themselves are not new; rows of their own leave out those by which a form was chosen. No other
  set of the folder has parts of a question.
- nano's world: ten seeds never used before (`NEW_SEEDS`); over three hops the first five.

Everything that comes out is reported. For want of time MuSiQue's two hops and a second draw (seed 51002) were left out,
which were to go first in this case, and the single passages; HotpotQA's new questions have two hops.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ragguard import world
from ragguard.analysis.tables import Cell, Table
from ragguard.engines.base import Engine
from ragguard.engines.connect import connect
from ragguard.facts.run_view import RunView
from ragguard.lab.validation.contexts import Progress, silent
from ragguard.metrics.agreement import auc
from ragguard.metrics.arrays import Floats, Integers
from ragguard.records import Passage, RetrievalStep, Run, Score
from ragguard.scorers.belief import Belief
from ragguard.scorers.passage_belief import PassageBelief
from ragguard.scorers.pipeline import ScoringPipeline
from ragguard.scorers.plan import Plan
from ragguard.scorers.scorer import Scorer
from ragguard.text.statements.names import names_in
from studies.intervals import auc_over_questions
from studies.readers.multi_hop import MultiHop, read, read_hotpotqa

SHOWN = "worth, as shown in the report"
AFTER_A_LEAD = "worth, the useless hop asks for a name that was read"
NUMBERS = {
    "what it adds when it comes": "delta_likelihood", "what it adds alone": "delta_likelihood_alone",
    "lost without it": "loss_without", "credit": "credit", "the question's part": "question_gain",
    "the reference's part": "reference_gain", "both": "joint_gain", SHOWN: SHOWN,
    AFTER_A_LEAD: AFTER_A_LEAD,
}  # fmt: skip
TWO_HOPS, THREE_HOPS = "nano's world, 2 hops, complete", "nano's world, 3 hops, all runs"
"""The runs of nano's world that are measured on further seeds, too."""
OF_PASSAGES = {
    "alone": "delta_likelihood", "lost without it": "contribution", "the question's part": "question_gain",
    "both": "joint_gain",
}  # fmt: skip
CHOSEN_BY = {"MuSiQue, 3 hops": 6}
"""How many questions, the first of each kind in the file's order, the form of `joint_gain` was chosen by."""
MEASURED = {"HotpotQA, 2 hops": 36}
"""How many questions, the first in the file's order, were measured before the present rule was; they are left out."""
DRAW = 51001
"""The seed of the runs over real questions."""
LEFT_OUT = "MuSiQue, 2 hops"
"""The questions that there was no time for."""
OF_PASSAGES_ASKED = 0
"""The first questions of two hops whose single passages are measured: none, for want of time; each takes half a minute
of a quiet core."""
NEW_SEEDS = range(52001, 52011)
"""The further seeds of nano's world."""
OF_NEW_SEEDS = ("lost without it", "credit", SHOWN, AFTER_A_LEAD)
CHOSE_NOTHING = "questions that chose nothing"
OF_THESE = ("both", SHOWN, AFTER_A_LEAD)
"""The numbers that have a row of their own over the questions by which nothing was chosen."""
BESIDE = 2
"""The paragraphs beside the one that answers a hop."""


async def study(
    engine: Engine,
    *,
    questions: int = 60,
    seed: int = 0,
    progress: Progress = silent,
    judge: Engine | None = None,
    data: str | Path | None = None,
) -> list[Table]:
    """Makes the tables over at most so many questions of each kind, in nano's world or in the files of a folder."""
    reader = connect(engine)
    groups = world_runs(questions, seed) if data is None else data_runs(Path(data), questions, seed)
    hops = ScoringPipeline(reader, judge=judge, scorers=[Belief(by="likelihood")], owned=())
    plain = ScoringPipeline(reader, judge=judge, scorers=[Belief(by="likelihood", credit=0)], owned=())
    rows: list[tuple[Cell, ...]] = []
    costs: list[tuple[Cell, ...]] = []
    for name, runs in groups.items():
        measured = [await _hops(hops, run, progress, name, at, len(runs)) for at, run in enumerate(runs)]
        rows += _rows(name, runs, measured, seed)
        new = [at for at, run in enumerate(runs) if CHOSE_NOTHING in run.metadata]
        if 0 < len(new) < len(runs):
            numbers = [measured[at] for at in new]
            rows += _rows(f"{name}, {CHOSE_NOTHING}", [runs[at] for at in new], numbers, seed, OF_THESE)
        costs.append(
            (name, *_cost([await plain.plan(run) for run in runs], [await hops.plan(run) for run in runs]))
        )
    tables = [_table(rows), _cost_table(costs)]
    if data is None:
        return [*tables, await _new_seeds(hops, questions, seed, progress)]
    if not OF_PASSAGES_ASKED:
        return tables
    some = {name: runs[:OF_PASSAGES_ASKED] for name, runs in groups.items() if name.endswith("2 hops")}
    return [*tables, await _passages(reader, judge, some, progress, seed)]


async def _new_seeds(pipeline: ScoringPipeline, questions: int, seed: int, progress: Progress) -> Table:
    """Returns the numbers that are shown on further seeds; on as many as there is time for in a small run."""
    seeds = NEW_SEEDS[: max(1, questions // 6)]
    rows: list[tuple[Cell, ...]] = []
    for name, some in ((TWO_HOPS, seeds), (THREE_HOPS, seeds[: max(1, len(seeds) // 2)])):
        found: dict[str, list[Cell]] = {}
        for one in some:
            runs = world_runs(questions, seed + one)[name]
            measured = [await _hops(pipeline, run, progress, f"seed {one}, {name}", at, len(runs))
                        for at, run in enumerate(runs)]  # fmt: skip
            for label, _, _, auc_of_all, low, high, *_ in _rows(
                f"seed {one}, {name}", runs, measured, seed, OF_NEW_SEEDS
            ):
                rows.append((label, auc_of_all, low, high, len(runs)))
                found.setdefault(str(label).rpartition(": ")[2], []).append(auc_of_all)
        for label, values in found.items():
            known = [value for value in values if isinstance(value, float)]
            rows.append((f"median of {len(known)} seeds, and range, {name}: {label}",
                         float(np.median(known)), min(known), max(known), questions * len(known)))  # fmt: skip
    return Table(
        "credit-seeds", "Seeds that were never used before",
        ("seed, runs: number", "all hops: AUC", "low", "high", "runs"), tuple(rows),
    )  # fmt: skip


def world_runs(questions: int, seed: int) -> dict[str, list[Run]]:
    """Returns runs of nano's world with one useless hop each: complete ones, and of two and three hops others, of which
    a third is misled, and a third lacks a passage."""
    found: dict[str, list[Run]] = {}
    for hops in (1, 2, 3):
        cases = world.cases(questions, seed=seed, hops=hops)
        found[f"nano's world, {hops} hop{'s' * (hops > 1)}, complete"] = [
            world.make_run(case, seed=seed, useless_steps=1) for case in cases
        ]
        if hops == 1:
            continue
        runs = []
        for at, case in enumerate(cases):
            wrong = (1 + at // 3 % hops,)
            miss, mislead = ((), (), wrong)[at % 3], ((), wrong, ())[at % 3]
            runs.append(world.make_run(case, seed=seed, useless_steps=1, miss=miss, mislead=mislead))
        found[f"nano's world, {hops} hops, all runs"] = runs
    return found


def data_runs(folder: Path, questions: int, seed: int) -> dict[str, list[Run]]:
    """Returns runs over the questions in the files of a folder that decide, in the order in which they are measured."""
    found: dict[str, list[MultiHop]] = {}
    for name, make in (("HotpotQA", read_hotpotqa), ("MuSiQue", read)):
        for one in make(folder / f"{name.lower()}.jsonl"):
            compares = name == "HotpotQA" and not any(part.needs for part in one.parts)
            found.setdefault(f"{name}, {len(one.parts)} hops{', comparison' * compares}", []).append(one)
    runs: dict[str, list[Run]] = {}
    for name, asked in sorted(found.items()):
        some = asked[MEASURED.get(name, 0) :][:questions]
        if len(some) > 2 and name != LEFT_OUT:
            chose = CHOSEN_BY.get(name, 0)
            runs[name] = [
                replace(make_run(one, seed + DRAW), metadata={CHOSE_NOTHING: True} if at >= chose else {})
                for at, one in enumerate(some)
            ]
    return runs


def make_run(one: MultiHop, seed: int, *, useless: bool = True) -> Run:
    """Makes a run over a question: a hop for each part, in order, and a useless one among them. What each step and each
    passage is stands under `role` in its metadata."""
    chance = random.Random(f"hops {seed} {one.question}")
    left = [one.paragraphs[at] for at in one.others]
    chance.shuffle(left)
    hops: list[tuple[str, str, list[Passage]]] = []
    for part in one.parts:
        near = [Passage(left.pop(), metadata={"role": "other"}) for _ in range(min(BESIDE, len(left)))]
        passages = [Passage(one.paragraphs[part.paragraph], metadata={"role": "gold"}), *near]
        chance.shuffle(passages)
        hops.append(("gold", part.query, passages))
    if useless and left:
        passages = [Passage(text, metadata={"role": "other"}) for text in left[: BESIDE + 1]]
        hops.insert(chance.randint(0, len(hops)), ("useless", one.question, passages))
    steps = [
        RetrievalStep(f"s{at}", "", at, at, query, passages, metadata={"role": role})
        for at, (role, query, passages) in enumerate(hops)
    ]
    return Run(question=one.question, references=[*one.references], answer=one.references[0], steps=steps)


def after_a_lead(run: Run) -> Run:
    """Returns a run whose useless hops ask for a name in a passage that an earlier hop found, if there is one."""
    chance, steps, read = random.Random(run.question), list[RetrievalStep](), list[str]()
    for step in run.steps:
        query = step.query
        if step.metadata["role"] == "useless" and read:
            query = f"What is known about {chance.choice(read)}?"
        steps.append(replace(step, query=query, led_by=None))
        read += [name for passage in step.passages for name in names_in(passage.text)]
    return replace(run, steps=steps)


async def _hops(
    pipeline: ScoringPipeline, run: Run, progress: Progress, name: str, at: int, of: int
) -> dict[str, list[float]]:
    """Returns each number of each step."""
    progress(name, at, of)
    scores = [one for one in await pipeline.results(run) if isinstance(one, Score) and one.level == "step"]
    known = {(one.name, one.step_id): one.value for one in scores}
    for label, asked in ((SHOWN, run), (AFTER_A_LEAD, after_a_lead(run))):
        hops = RunView(asked, scores).hops
        known |= {(label, hop.step.id): hop.worth.value for hop in hops if hop.worth}
    return {
        label: [known.get((score, step.id), math.nan) for step in run.steps]
        for label, score in NUMBERS.items()
    }


def _rows(
    name: str,
    runs: Sequence[Run],
    measured: Sequence[Mapping[str, Sequence[float]]],
    seed: int,
    labels: Sequence[str] = (*NUMBERS,),
) -> list[tuple[Cell, ...]]:
    """Returns a row for each number: the AUC of the first needed hop, of the last and of all over the others, with the
    interval of the latter, the mean AUC within a run, and how many runs and questions have the number."""
    asked = {question: number for number, question in enumerate(dict.fromkeys(run.question for run in runs))}
    owners = np.array([asked[run.question] for run in runs])
    rows = []
    for label in labels:
        steps = [
            (value, step.metadata["role"] == "gold", place, at)
            for at, (run, numbers) in enumerate(zip(runs, measured, strict=True))
            for value, step, place in zip(numbers[label], run.steps, place_of_hops(run), strict=True)
        ]
        kept = np.array([one for one in steps if not math.isnan(one[0])], dtype=float).reshape(-1, 4)
        if len(kept):
            known = np.unique(kept[:, 3]).astype(int)
            counts = len(known), len(np.unique(owners[known]))
            rows.append((f"{name}: {label}", *_aucs(kept, seed, owners), *counts))
    return rows


def place_of_hops(run: Run) -> list[int]:
    """Returns for each step: 1 for the first that was needed, 2 for one between, 3 for the last, 0 for any other."""
    gold = [at for at, step in enumerate(run.steps) if step.metadata["role"] == "gold"]
    places = dict.fromkeys(gold[1:-1], 2) | ({gold[-1]: 3, gold[0]: 1} if gold else {})
    return [places.get(at, 0) for at in range(len(run.steps))]


def _aucs(table: Floats, seed: int, questions: Integers | None = None) -> list[Cell]:
    """Returns the figures of a table of values, each with the number of its run; `questions` has that of each run's
    question, if several runs may have the same."""
    value, needed, place, owner = table.T
    drawn = owner if questions is None else questions[owner.astype(int)]
    firsts = []
    for one in (1, 3):
        some = (place == one) | (needed == 0)
        firsts.append(_cell(auc(value[some], needed[some])))
    return [*firsts, *auc_over_questions(value, needed, drawn, seed), _cell(_within(value, needed, owner))]


def _within(value: Floats, needed: Floats, owner: Floats) -> float:
    """Returns the mean over runs of the AUC within one run."""
    found = [auc(value[owner == one], needed[owner == one]) for one in np.unique(owner)]
    known = [one for one in found if not math.isnan(one)]
    return float(np.mean(known)) if known else math.nan


def _cell(value: float) -> float | None:
    return None if math.isnan(value) else value


async def _passages(
    reader: Engine, judge: Engine | None, groups: Mapping[str, Sequence[Run]], progress: Progress, seed: int
) -> Table:
    """Measures single passages in the context of all that was needed, without the useless hop."""
    scorers: list[Scorer] = [Belief(by="likelihood", credit=1.5), PassageBelief(in_context=True)]
    pipeline = ScoringPipeline(reader, judge=judge, scorers=scorers, owned=())
    rows: list[tuple[Cell, ...]] = []
    for name, runs in groups.items():
        found: dict[str, list[tuple[float, float, float, float]]] = {label: [] for label in OF_PASSAGES}
        for at, run in enumerate(runs):
            progress(f"{name}, passages", at, len(runs))
            run.steps = [step for step in run.steps if step.metadata["role"] == "gold"]
            scores = [one for one in await pipeline.results(run) if isinstance(one, Score)]
            known = {(one.name, one.step_id, one.position): one.value for one in scores}
            for step in run.steps:
                for rank, passage in enumerate(step.passages, 1):
                    needed = float(passage.metadata["role"] == "gold")
                    for label, score in OF_PASSAGES.items():
                        value = known.get((score, step.id, rank), math.nan)
                        if not math.isnan(value):
                            found[label].append((value, needed, needed, at))
        for label, each in found.items():
            if each:
                row = _aucs(np.array(each), seed)
                rows.append((f"{name}: {label}", *row[2:], len(each), len(runs)))
    return Table(
        "credit-passages", "Which of six passages in one context was needed",
        ("number", "AUC", "low", "high", "within runs", "passages", "questions"), tuple(rows),
    )  # fmt: skip


def _table(rows: Sequence[tuple[Cell, ...]]) -> Table:
    return Table(
        "credit-hops", "A hop that was needed over a useless one",
        ("number", "first hop: AUC", "last hop: AUC", "all hops: AUC", "low", "high", "within runs", "runs",
         "questions"),
        tuple(rows),
        notes=(
            "AUC: how often a needed hop has the larger number than a useless one, over the hops of all runs; within "
            "runs: the mean of what it is in each run. Useless is also a hop that missed its passage or was misled. "
            "Intervals: the middle 95 % of draws of whole questions.",
        ),
    )  # fmt: skip


def _cost(without: Sequence[Plan], with_credit: Sequence[Plan]) -> list[Cell]:
    both = [[plan.total for plan in plans] for plans in (without, with_credit)]
    return [
        float(np.mean([getattr(one, field) for one in each]))
        for field in ("prompts", "prompt_tokens")
        for each in both
    ]


def _cost_table(rows: Sequence[tuple[Cell, ...]]) -> Table:
    return Table(
        "credit-cost", "What it costs: prompts and tokens of a run, as planned",
        ("runs", "prompts without credit", "with credit", "tokens without credit", "with credit"), tuple(rows),
        notes=("Tokens as if no prefix were shared; the useless hop is counted.",), digits=0,
    )  # fmt: skip

"""Belief by likelihood beside SePer: whether the cheap number and the sampled one order steps alike, and which of them
knows the steps that brought what was needed, and the runs that were answered rightly.

nano reads runs of its own world; any other reader reads the prose of the examination (`ragguard.scorers.exam`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ragguard import world
from ragguard.analysis.validation.agreement import auc
from ragguard.analysis.validation.progress import Progress, silent
from ragguard.analysis.validation.tables import Cell, Table
from ragguard.engines.base import Engine
from ragguard.engines.connect import connect
from ragguard.engines.prompts import load_prompts
from ragguard.metrics import correlate
from ragguard.metrics.arrays import Floats, Integers
from ragguard.records import Passage, RetrievalStep, Run, Score
from ragguard.scorers.belief import Belief
from ragguard.scorers.exam.cases import exam_cases
from ragguard.scorers.pipeline import ScoringPipeline
from ragguard.scorers.probes.belief import belief
from ragguard.text.language import normalise
from studies.intervals import over_questions

GROUPS = (("1 hop", 1, False), ("1 hop, known", 1, True), ("2 hops", 2, False), ("2 hops, known", 2, True),
          ("3 hops", 3, False))  # fmt: skip

_CHANGES = "delta_likelihood", "delta_seper"


@dataclass(frozen=True, slots=True)
class Measured:
    """A step, or the whole of a run, by both numbers and by what is true of it."""

    question: int
    by_likelihood: float
    by_samples: float
    truth: bool
    """True for a step that brought what was needed, and for a run from which the reader answers rightly."""


async def study(
    engine: Engine,
    *,
    questions: int = 40,
    seed: int = 0,
    progress: Progress = silent,
    judge: Engine | None = None,
) -> list[Table]:
    """Makes the table, over as many questions of each kind."""
    reader = connect(engine)
    nano = (await reader.info()).prompts == "nano"
    groups = world_runs(questions, seed) if nano else exam_runs(questions)
    likely = ScoringPipeline(reader, judge=judge, scorers=[Belief(by="likelihood")], owned=())
    drawn = ScoringPipeline(reader, judge=judge, scorers=[Belief(samples=10 if nano else 5)], owned=())
    rows: list[tuple[Cell, ...]] = []
    for name, runs in groups.items():
        steps: list[Measured] = []
        wholes: list[Measured] = []
        for at, run in enumerate(runs):
            progress(name, at, len(runs))
            results = [*await likely.results(run), *await drawn.results(run)]
            found = {(one.name, one.step_id): one.value for one in results if isinstance(one, Score)}
            for step in run.steps:
                likelihood, seper = (found.get((metric, step.id), math.nan) for metric in _CHANGES)
                steps.append(Measured(at, likelihood, seper, step.metadata["role"] == "gold"))
            likelihood, seper = (found.get((f"{metric}_total", ""), math.nan) for metric in _CHANGES)
            wholes.append(Measured(at, likelihood, seper, await _right(reader, run)))
        rows.append((name, *_row(steps, seed, rank=True), *_row(wholes, seed, rank=False)))
    model = (await reader.info()).model
    return [
        Table(
            "likelihood-agreement", f"Δ likelihood and ΔSePer of {model}",
            ("Runs", "τ of steps", "low", "high", "steps: AUC, likelihood", "AUC, SePer", "difference", "low", "high",
             "runs answered rightly: AUC, likelihood", "AUC, SePer", "difference", "low", "high", "steps", "runs"),
            tuple((*row[:9], *row[10:15], row[9], row[15]) for row in rows),
            notes=(
                "τ: Kendall's τ-b between the two changes of a step. AUC: how often a step that brought what its hop "
                "needs has the larger change than one that did not; of runs, one that the reader then answers rightly "
                "(greedily) than one that it does not. Intervals: the middle 95 % of draws of whole questions.",
            ),
        )
    ]  # fmt: skip


def world_runs(questions: int, seed: int) -> dict[str, list[Run]]:
    """Returns runs of nano's world: in each third of them all hops are found, one is missed, one misleads."""
    found: dict[str, list[Run]] = {}
    for name, hops, known in GROUPS:
        runs = found[name] = []
        for at, case in enumerate(world.cases(questions, seed=seed, hops=hops, known=known)):
            wrong = (1 + at // 3 % hops,)
            miss, mislead = ((), (), wrong)[at % 3], ((), wrong, ())[at % 3]
            runs.append(world.make_run(case, seed=seed, useless_steps=1, miss=miss, mislead=mislead))
    return found


def exam_runs(questions: int) -> dict[str, list[Run]]:
    """Returns runs over the examination's prose: the passage that answers is found, or one on the subject alone."""
    cases = exam_cases()
    one_hop = []
    for at, one in enumerate(cases.questions[:questions]):
        texts = [("useless", one.near), ("gold", one.gold) if at % 2 else ("missed", one.partial)]
        one_hop.append(_run(one.question, one.answer, texts))
    two_hop = []
    for at, two in enumerate(cases.two_hop[: questions // 2]):
        second = ("missed", two.near) if at % 2 else ("gold", two.second)
        two_hop.append(_run(two.question, two.answer, [("gold", two.first), second]))
    return {"1 hop": one_hop, "2 hops": two_hop}


def _run(question: str, answer: str, steps: Sequence[tuple[str, str]]) -> Run:
    made = [
        RetrievalStep(
            id=f"s{at}",
            run_id="r",
            index=at,
            query=question,
            passages=[Passage(text)],
            metadata={"role": role},
        )
        for at, (role, text) in enumerate(steps)
    ]
    return Run(id="r", question=question, references=[answer], answer=answer, steps=made)


async def _right(reader: Engine, run: Run) -> bool:
    """Returns whether the reader's likeliest answer, from all that the run retrieved, holds a reference."""
    prompts = load_prompts((await reader.info()).prompts)
    texts = list(dict.fromkeys(passage.text for step in run.steps for passage in step.passages))
    asked = belief(prompts, run.question, texts, n=1, seed=0)
    answers = await reader.sample([asked.prompt], n=1, max_tokens=min(24, asked.max_tokens), temperature=0.0)
    text = f" {normalise(answers[0][0].text)} "
    return any(f" {normalise(one)} " in text for one in run.references or ())


def _row(measured: Sequence[Measured], seed: int, *, rank: bool) -> list[Cell]:
    """Returns the AUC of both numbers and their difference, with the rank correlation before and the count behind."""
    kept = [one for one in measured if not (math.isnan(one.by_likelihood) or math.isnan(one.by_samples))]
    table = np.array([(one.by_likelihood, one.by_samples, one.truth) for one in kept], dtype=float).reshape(
        -1, 3
    )
    owners = np.array([one.question for one in kept])
    cells: list[Cell] = []
    if rank:
        cells += _with_interval(lambda rows: _tau(table[rows]), owners, seed)
    both = [auc(table[:, column], table[:, 2]) for column in (0, 1)]

    def gap(rows: Integers) -> float:
        return auc(table[rows, 0], table[rows, 2]) - auc(table[rows, 1], table[rows, 2])

    return [*cells, *map(_cell, both), *_with_interval(gap, owners, seed), len(kept)]


def _tau(rows: Floats) -> float:
    return correlate(rows[:, 0], rows[:, 1], "kendall_b", draws=2).value


def _with_interval(number: Callable[[Integers], float], owners: Integers, seed: int) -> list[Cell]:
    everything = np.arange(len(owners))
    return [_cell(number(everything)), *map(_cell, over_questions(number, owners, seed))]


def _cell(value: float) -> Cell:
    return None if math.isnan(value) else value

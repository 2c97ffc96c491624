"""Belief by likelihood beside SePer: whether the cheap number and the sampled one order steps alike, and which of them
knows the steps that brought what was needed, and the runs that were answered rightly.

nano reads runs of its own world; any other reader reads ordinary prose: that of the examination, whose facts are made
up, and passages about what everybody knows (`known_facts.json`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ragguard import world
from ragguard.analysis.tables import Cell, Table
from ragguard.engines.base import Engine
from ragguard.engines.connect import connect
from ragguard.engines.prompts import PromptSet, load_prompts
from ragguard.lab.validation.contexts import Progress, silent
from ragguard.lab.validation.entailers import WordEntailer
from ragguard.metrics import correlate
from ragguard.metrics.agreement import auc
from ragguard.metrics.arrays import Floats, Integers
from ragguard.records import Passage, RetrievalStep, Run, Score
from ragguard.scorers.belief import Belief
from ragguard.scorers.exam.cases import ExamQuestion, TwoHopQuestion, exam_cases
from ragguard.scorers.pipeline import ScoringPipeline
from ragguard.scorers.probes import belief
from ragguard.text.language import normalise
from studies.intervals import auc_over_questions, of_mean, with_interval
from studies.rated import direct, rightness

GROUPS = (("1 hop", 1, False), ("1 hop, known", 1, True), ("2 hops", 2, False), ("2 hops, known", 2, True),
          ("3 hops", 3, False))  # fmt: skip
TOGETHER = "1 hop", "1 hop, known", "2 hops"
"""The runs that several readers are compared on. Known is what nano knows by heart."""

_CHANGES = "delta_likelihood", "delta_seper"
_METHODS = "Δ likelihood", "ΔSePer", "rated directly", "difference of ratings"
_TOKENS = 12
"""The most tokens of an answer that is drawn from prose."""
_KNOWN = Path(__file__).with_name("known_facts.json")


@dataclass(frozen=True, slots=True)
class Measured:
    """A step, or the whole of a run, by all numbers and by what is true of it."""

    question: str
    by: tuple[float, ...]
    """The change by likelihood, by SePer and, of a step of prose, by both ratings."""
    truth: bool
    """True for a step that brought what was needed, and for a run from which the reader answers rightly."""


async def study(
    engine: Engine,
    *,
    questions: int = 40,
    seed: int = 0,
    progress: Progress = silent,
    judge: Engine | None = None,
    together: bool = False,
) -> list[Table]:
    """Makes the tables, over as many questions of each kind; of prose, over as many as there are. For several engines
    `together` all read the same runs of nano's world, and words say whether an answer is the reference."""
    reader = connect(engine)
    info = await reader.info()
    nano = info.prompts == "nano"
    prompts = load_prompts(info.prompts)
    groups = world_runs(questions, seed) if nano or together else prose_runs(questions)
    if together:
        groups = {name: groups[name] for name in TOGETHER}
    likely = ScoringPipeline(reader, judge=judge, scorers=[Belief(by="likelihood")], owned=())
    drawn = ScoringPipeline(
        reader, judge=judge, scorers=[Belief()], owned=(),
        # What small models say of entailment in prose is chance: there, words say whether an answer is the reference.
        entailer=None if nano and not together else WordEntailer(), prompts=None if nano else _brief(prompts),
    )  # fmt: skip
    agreement: list[tuple[Cell, ...]] = []
    steps: dict[str, list[Measured]] = {}
    reading: list[tuple[Cell, ...]] = []
    for name, runs in groups.items():
        of_steps = steps[name] = []
        wholes: list[Measured] = []
        beliefs: list[tuple[float, float]] = []
        for at, run in enumerate(runs):
            progress(name, at, len(runs))
            results = [*await likely.results(run), *await drawn.results(run)]
            found = {(one.name, one.step_id): one.value for one in results if isinstance(one, Score)}
            rated = [()] * len(run.steps) if nano or together else await _ratings(reader, run)
            for step, ratings in zip(run.steps, rated, strict=True):
                changes = tuple(found.get((metric, step.id), math.nan) for metric in _CHANGES)
                of_steps.append(Measured(run.question, (*changes, *ratings), step.metadata["role"] == "gold"))
            totals = tuple(found.get((f"{metric}_total", ""), math.nan) for metric in _CHANGES)
            wholes.append(Measured(run.question, totals, await _right(reader, run)))
            if _complete(run):
                last = found.get(("seper", run.steps[-1].id), math.nan)
                beliefs.append((found.get(("seper_closed_book", ""), math.nan), last))
        agreement.append((name, *_row(of_steps, seed, rank=True), *_row(wholes, seed, rank=False)))
        if not nano or together:
            reading.append((name, *await _reading(reader, runs, wholes), *_beliefs(beliefs, seed)))
    tables = [
        Table(
            "likelihood-agreement" if nano else "likelihood-prose", f"Δ likelihood and ΔSePer of {info.model}",
            ("Runs", "τ of steps", "low", "high", "steps: AUC, likelihood", "AUC, SePer", "difference", "low", "high",
             "runs answered rightly: AUC, likelihood", "AUC, SePer", "difference", "low", "high", "steps", "runs"),
            tuple((*row[:9], *row[10:15], row[9], row[15]) for row in agreement),
            notes=(
                "τ: Kendall's τ-b between the two changes of a step. AUC of steps: how often one that brought "
                "what its hop needs has the larger change than one that did not. AUC of runs: how often one that "
                "the reader then answers rightly (greedily) has it. Intervals: the middle 95 % of draws of whole "
                "questions.",
            ),
        )
    ]  # fmt: skip
    if together:
        return [replace(tables[0], name="likelihood-together", title="Δ likelihood and ΔSePer by reader"),
                replace(_reading_table(reading), name="likelihood-together-reading")]  # fmt: skip
    return tables if nano else [*tables, _by_method(steps, seed), _reading_table(reading)]


def _complete(run: Run) -> bool:
    """Returns whether all that the question needs was found."""
    return all(step.metadata["role"] in ("gold", "useless") for step in run.steps)


def _brief(prompts: PromptSet) -> PromptSet:
    """Returns the prompts with short answers: what a small model writes behind its first words is beside the point."""
    short = {
        task: replace(prompts.templates[task], max_tokens=_TOKENS) for task in ("answer", "answer_closed")
    }
    return replace(prompts, templates={**prompts.templates, **short})


async def _ratings(reader: Engine, run: Run) -> list[tuple[float, float]]:
    """Returns for each step the reader's direct rating and the change that its passages make to the answer's rating."""
    answer = (run.references or [""])[0]
    read = [
        [passage.text for step in run.steps[:at] for passage in step.passages]
        for at in range(len(run.steps) + 1)
    ]
    own = [[passage.text for passage in step.passages] for step in run.steps]
    rated = await rightness(reader, run.question, answer, read)
    contributed = await direct(reader, run.question, answer, own)
    return [(one, rated[at + 1] - rated[at]) for at, one in enumerate(contributed)]


def _by_method(steps: Mapping[str, Sequence[Measured]], seed: int) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for at, method in enumerate(_METHODS):
        row: list[Cell] = [method]
        for measured in steps.values():
            table = np.array([(one.by[at], one.truth) for one in measured], dtype=float)
            owners = np.array([one.question for one in measured])
            row += auc_over_questions(table[:, 0], table[:, 1], owners, seed)
        rows.append(tuple(row))
    return Table(
        "likelihood-methods", "Which step brought what its hop needs: AUC of four numbers",
        ("number", *(word for name in steps for word in (name, "low", "high"))), tuple(rows),
        source="SePer, appendix B.2",
        notes=(
            "Prompts a step: two for the likelihood; two with ten answers each for ΔSePer; one for the direct "
            "rating; two for the difference of ratings. The reader itself rates, from 0 to 9 (expected value).",
        ),
    )  # fmt: skip


async def _reading(reader: Engine, runs: Sequence[Run], wholes: Sequence[Measured]) -> list[Cell]:
    """Returns the shares of right answers without a passage, after all that was needed, and after less."""
    closed = {run.question: replace(run, steps=[]) for run in runs}
    alone = [await _right(reader, run) for run in closed.values()]
    complete = [_complete(run) for run in runs]
    right = [one.truth for one in wholes]
    return [
        100 * float(np.mean(some)) if len(some) else None
        for some in (
            alone, [one for one, all_ in zip(right, complete, strict=True) if all_],
            [one for one, all_ in zip(right, complete, strict=True) if not all_],
        )
    ]  # fmt: skip


def _beliefs(beliefs: Sequence[tuple[float, float]], seed: int) -> list[Cell]:
    table = np.array(beliefs).reshape(-1, 2)
    change = table[:, 1] - table[:, 0]
    return [*map(float, table.mean(axis=0)), float(change.mean()), *of_mean(change, seed), len(table)]


def _reading_table(rows: Sequence[tuple[Cell, ...]]) -> Table:
    return Table(
        "likelihood-reading", "What the reader knows and reads",
        ("Runs", "right without a passage, %", "right with what is needed, %", "right with less, %", "SePer without",
         "with what is needed", "ΔSePer", "low", "high", "questions"), tuple(rows),
        source="SePer, figure 4",
        notes=("Right: the reader's greedy answer holds the reference. Intervals: of draws of questions.",),
    )  # fmt: skip


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


def known_questions() -> list[ExamQuestion]:
    """Returns questions about what everybody knows, with passages; none is about another subject."""
    listed = json.loads(_KNOWN.read_text("utf-8"))
    return [ExamQuestion(question=one.pop("q"), other="", miss="", **one) for one in listed]


def prose_runs(questions: int) -> dict[str, list[Run]]:
    """Returns two runs a question over ordinary prose: one finds the passage that answers, the other one about its
    subject alone or, for every other question, one that says something else."""
    cases = exam_cases()
    found: dict[str, list[Run]] = {}
    for name, asked in (("1 hop", cases.questions), ("1 hop, known", known_questions())):
        runs = found[name] = []
        for at, one in enumerate(asked[:questions]):
            wrong = ("misled", one.contradiction) if at % 2 else ("missed", one.partial)
            runs += [_run(one, ("useless", one.near), last) for last in (("gold", one.gold), wrong)]
    found["2 hops"] = [
        _run(two, ("gold", two.first), last)
        for two in cases.two_hop[:questions]
        for last in (("gold", two.second), ("missed", two.near))
    ]
    return found


def _run(asked: ExamQuestion | TwoHopQuestion, *steps: tuple[str, str]) -> Run:
    made = [
        RetrievalStep(
            id=f"s{at}",
            run_id="r",
            index=at,
            query=asked.question,
            passages=[Passage(text)],
            metadata={"role": role},
        )
        for at, (role, text) in enumerate(steps)
    ]
    return Run(id="r", question=asked.question, references=[asked.answer], answer=asked.answer, steps=made)


async def _right(reader: Engine, run: Run) -> bool:
    """Returns whether the reader's likeliest answer, from all that the run retrieved, holds a reference."""
    prompts = load_prompts((await reader.info()).prompts)
    texts = list(dict.fromkeys(passage.text for step in run.steps for passage in step.passages))
    asked = belief(prompts, run.question, texts, n=1, seed=0)
    answers = await reader.sample([asked.prompt], n=1, max_tokens=min(16, asked.max_tokens), temperature=0.0)
    text = f" {normalise(answers[0][0].text)} "
    return any(f" {normalise(one)} " in text for one in run.references or ())


def _row(measured: Sequence[Measured], seed: int, *, rank: bool) -> list[Cell]:
    """Returns the AUC of both numbers and their difference, with the rank correlation before and the count behind."""
    kept = [one for one in measured if not any(map(math.isnan, one.by[:2]))]
    table = np.array([(*one.by[:2], one.truth) for one in kept], dtype=float).reshape(-1, 3)
    owners = np.array([one.question for one in kept])
    cells: list[Cell] = []
    if rank:
        cells += with_interval(lambda rows: _tau(table[rows]), owners, seed)
    both = [auc(table[:, column], table[:, 2]) for column in (0, 1)]

    def gap(rows: Integers) -> float:
        return auc(table[rows, 0], table[rows, 2]) - auc(table[rows, 1], table[rows, 2])

    return [*cells, *map(_cell, both), *with_interval(gap, owners, seed), len(kept)]


def _tau(rows: Floats) -> float:
    return correlate(rows[:, 0], rows[:, 1], "kendall_b", draws=2).value


def _cell(value: float) -> Cell:
    return None if math.isnan(value) else value

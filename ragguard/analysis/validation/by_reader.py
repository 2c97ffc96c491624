"""Compares readers on the same contexts: what each answers, what retrieval does to its belief, and which metric goes
with its own outcomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ragguard.analysis.validation.answering import grader, with_answers, with_outcomes
from ragguard.analysis.validation.contexts import OUTCOMES, Context
from ragguard.analysis.validation.correlations import measured, tables
from ragguard.analysis.validation.progress import Progress, silent
from ragguard.analysis.validation.scoring import Scored, score_contexts
from ragguard.analysis.validation.tables import Cell, Table
from ragguard.engines.base import Engine
from ragguard.errors import InvalidInput, RagguardError
from ragguard.metrics.agreement import interval
from ragguard.metrics.arrays import Floats

DRAWS = 2000
_BELIEFS = "seper_closed_book", "seper", "delta_seper"


async def compare_readers(
    contexts: Sequence[Context],
    readers: Mapping[str, Engine],
    *,
    judge: Engine | None = None,
    scorers: Sequence[str] = (),
    seed: int = 0,
    progress: Progress = silent,
) -> tuple[list[Table], list[str]]:
    """Returns the tables, and a sentence about each reader that failed; where all fail, the error is raised.

    Answers that the data have are another model's: each reader answers for itself. Contexts need texts and references.
    """
    asked = [replace(one, answer=None, outcome=None) for one in contexts if one.readable and one.references]
    if not asked:
        raise InvalidInput(
            "contexts", "none", "contexts with references and texts, to compare several readers"
        )
    rows: list[tuple[Cell, ...]] = []
    predicted: dict[str, dict[str, tuple[Cell, ...]]] = {}
    notes, failed = list[str](), list[str]()
    for name, reader in readers.items():
        try:
            answered = await with_answers(asked, reader, progress=progress)
            graded = await with_outcomes(answered, await grader(judge or reader), progress=progress)
            scored = await score_contexts(
                graded, reader, judge=judge or reader, scorers=scorers or ("utility",), progress=progress
            )
        except RagguardError as error:
            failed.append(f"{name} gave no answers: {error}.")
            if len(failed) == len(readers):
                raise
            continue
        rows += _answers(name, scored, seed)
        missing = {f"{one.scorer}: {one.message}" for context in scored for one in context.failures}
        notes += [f"{name}: {why}." for why in sorted(missing)[:3]]
        try:
            first = tables(measured(scored), seed=seed)[0]
            predicted[name] = {str(row[0]): row[1:4] for row in first.rows}
        except RagguardError as error:
            notes.append(f"{name}: {error}.")
    columns = ("reader", "correct, %", "abstained, %", "wrong, %", "SePer without", "with", "ΔSePer", "from", "to",
               "contexts")  # fmt: skip
    metrics = dict.fromkeys(metric for of_reader in predicted.values() for metric in of_reader)
    none: tuple[Cell, ...] = (None, None, None)
    return [
        Table("readers", "What each reader answers", columns, tuple(rows),
              source="UDCG, table 6, and SePer, figure 4",
              notes=("Each reader's own greedy answers. SePer: its belief in the references before and after reading, "
                     "with `--scorers belief`; intervals: the middle 95 % of draws of contexts.", *failed, *notes)),
        Table("readers-correlations", "Which metric goes with each reader's outcomes: Spearman",
              ("metric", *(word for name in predicted for word in (name, "from", "to"))),
              tuple((metric, *(cell for of in predicted.values() for cell in of.get(metric, none)))
                    for metric in metrics)),
    ], failed  # fmt: skip


def _answers(name: str, scored: Sequence[Scored], seed: int) -> list[tuple[Cell, ...]]:
    """Returns a reader's row over all contexts and, where relevance is known, with and without something relevant."""
    groups = {name: list(scored)}
    for one in scored:
        if one.context.relevance is not None:
            held = "with" if any(one.context.relevance) else "without"
            groups.setdefault(f"{name}: {held} a relevant passage", []).append(one)
    return [(group, *_shares(some), *_beliefs(some, seed), len(some)) for group, some in groups.items()]


def _shares(scored: Sequence[Scored]) -> list[Cell]:
    outcomes = [one.context.outcome for one in scored if one.context.outcome is not None]
    return [100 * outcomes.count(value) / len(outcomes) if outcomes else None for value in OUTCOMES.values()]


def _beliefs(scored: Sequence[Scored], seed: int) -> list[Cell]:
    known = [one.values for one in scored if all(name in one.values for name in _BELIEFS)]
    if not known:
        return [None] * 5
    table: Floats = np.array([[values[name] for name in _BELIEFS] for values in known])
    draws = np.random.default_rng(seed).integers(len(table), size=(DRAWS, len(table)))
    _, low, high = interval(table[draws, 2].mean(axis=1))
    return [*map(float, table.mean(axis=0)), low, high]

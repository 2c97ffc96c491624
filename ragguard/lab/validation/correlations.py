"""Correlations of metrics with outcomes: within each question, or over all contexts where few questions vary."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ragguard.analysis.tables import Cell, Table
from ragguard.errors import InvalidInput, ScoringError
from ragguard.lab.validation.contexts import Scored
from ragguard.lab.validation.differences import DRAWS, differences
from ragguard.lab.validation.udcg_fit import FEW, FITTED_GAMMA, held_out_values, varied
from ragguard.metrics.agreement import Kind, correlate
from ragguard.metrics.arrays import Floats
from ragguard.metrics.distraction import udcg, utility

KINDS: dict[Kind, str] = {"spearman": "Spearman", "kendall_b": "Kendall τ-b", "pearson": "Pearson"}
FLAT = 0.0
"""The correlation of a metric that is constant over a question's contexts while their outcomes differ. Were such
questions left out, a metric that varies only on easy questions would come first."""
_OF_THE_RUN = {
    "udcg_context": "udcg", "coverage_total": "coverage", "delta_coverage": "coverage",
    "alpha_ndcg_total": "alpha_ndcg",
    "delta_seper_total": "delta_seper", "delta_seper_alone": "delta_seper",
}  # fmt: skip
"""Scores that are equal for a run of one step, as every context is, by the name that is kept."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A data set as columns: the outcome of each context, and the value of each metric."""

    outcome: Floats
    questions: tuple[str, ...]
    values: dict[str, Floats]
    """The values of each metric, by its name; nan where a metric has no value."""
    varying: int
    """The number of questions whose contexts have different outcomes."""
    left_out: int
    """Contexts without an outcome."""

    @property
    def groups(self) -> tuple[str, ...] | None:
        """The questions within which contexts are compared; None where too few of them vary."""
        return self.questions if self.varying >= FEW else None

    @property
    def unit(self) -> str:
        """The word for what is counted under a correlation."""
        return "questions" if self.groups else "contexts"


def measured(scored: Sequence[Scored]) -> Measured:
    """Returns the contexts that have an outcome as columns."""
    kept = [one for one in scored if one.context.outcome is not None]
    if not kept:
        allowed = "one for some contexts: in the data, or from references and an engine (--engine)"
        raise InvalidInput("outcome", None, allowed)
    outcome = np.array([one.context.outcome for one in kept], dtype=np.float64)
    if not np.ptp(outcome):
        raise ScoringError(
            f"no metric can be compared with the outcomes: all {len(kept):,} contexts that have one have the same, "
            f"{outcome[0]:g}; give contexts whose outcomes differ"
        )
    rows = [_values_of(one) for one in kept]
    # A metric that only contexts without passages have is 0 for all of them and says nothing.
    naming = [row for row, one in zip(rows, kept, strict=True) if one.context.passages] or rows
    names = sorted({name for values in naming for name in values})
    if not names:
        allowed = "relevance of the passages, given numbers, or texts and an engine (--engine)"
        raise InvalidInput("metrics", None, allowed)
    columns = {name: np.array([values.get(name, math.nan) for values in rows]) for name in names}
    columns |= held_out_values(kept)
    questions = tuple(one.context.question_id for one in kept)
    left_out = len(scored) - len(kept)
    return Measured(outcome, questions, columns, len(varied(questions, outcome)), left_out=left_out)


def _values_of(one: Scored) -> dict[str, float]:
    """Returns all values of a context: those given with the data set, the engine's, and those made of both."""
    said = {
        name: value
        for name, value in one.values.items()
        if name not in _OF_THE_RUN or _OF_THE_RUN[name] not in one.values
    }
    given = {f"{name}, given" if name in said else name: value for name, value in one.context.given.items()}
    p_abstain = [value for value in one.of_passages("p_abstain") if value is not None]
    relevance = one.context.relevance
    if relevance is not None and len(p_abstain) == len(relevance) and (relevance or "udcg" in said):
        # Where nothing was retrieved and no K is known, every K gives the same.
        k = one.context.k or len(relevance) or 1
        said["udcg, own relevance"] = float(udcg(utility([grade > 0 for grade in relevance], p_abstain), k=k))
    return given | said


def tables(data: Measured, against: str | None = None) -> list[Table]:
    """Returns the correlation of every metric with the outcomes, best first, and the differences to one metric.

    `against` names that metric; None: the best one.
    """
    if against is not None and against not in data.values:
        raise InvalidInput("metric", against, f"one of {', '.join(data.values)}")
    rows: list[tuple[Cell, ...]] = []
    groups = data.groups
    for name, values in data.values.items():
        spearman, *others = (
            correlate(values, data.outcome, kind, groups, DRAWS if kind == "spearman" else 2, flat=FLAT)
            for kind in KINDS
        )
        ends = (spearman.low, spearman.high) if spearman.counted > 1 else (math.nan, math.nan)
        numbers = map(_cell, (spearman.value, *ends, *(other.value for other in others)))
        rows.append((name, *numbers, spearman.counted, spearman.skipped))
    rows.sort(key=lambda row: -(row[1] if isinstance(row[1], float) else -math.inf))
    columns = ("metric", "Spearman", "from", "to", "Kendall τ-b", "Pearson", data.unit, "skipped")
    title = "Which metric goes with the outcomes"
    found = [Table("correlations", title, columns, tuple(rows), notes=tuple(_notes(data)))]
    known = [str(row[0]) for row in rows if row[1] is not None]
    if len(known) > 1:
        found.append(_differences(data, against, known))
    return found


def _notes(data: Measured) -> list[str]:
    """Returns what a reader of the correlations has to know."""
    notes = [
        f"{len(data.outcome):,} contexts of {len(set(data.questions)):,} questions; {data.varying:,} questions have "
        f"contexts with different outcomes. {data.left_out:,} contexts without an outcome were left out.",
        "The mean of the questions' own correlations; from and to: the 95 % interval of sign flips of the questions' "
        "values. Skipped: questions without contexts of different outcomes for which the metric has a value. A metric "
        "that is the same for all contexts of a question counts 0 there."
        if data.groups
        else f"Fewer than {FEW} questions vary, so all contexts are compared with one another: what makes a question "
        "easy counts here as well, and there is no interval.",
    ]
    if FITTED_GAMMA in data.values:
        notes.append(
            f"{FITTED_GAMMA}, and learned_udcg: a context's value is from a fit on four fifths of the questions, of "
            "which its own is none (`ragguard calibrate --for udcg` fits on all)."
        )
    fewer: dict[int, list[str]] = defaultdict(list)
    for name, values in data.values.items():
        if (count := int((~np.isnan(values)).sum())) < len(values):
            fewer[count].append(name)
    if fewer:
        listed = "; ".join(f"{', '.join(names)} on {count:,}" for count, names in sorted(fewer.items()))
        notes.append(
            f"Not every metric has a value for all {len(data.outcome):,} contexts, so that rows rest on different "
            f"contexts, and differences are not those of the rows: {listed}."
        )
    return notes


def _differences(data: Measured, against: str | None, names: Sequence[str]) -> Table:
    few, groups = len(set(data.questions)) < FEW, data.groups
    over = "the other metrics" if against else "all pairs of metrics, since the data chose the best"
    note = (
        f"Spearman; fewer than {FEW} questions are too few for a test, so there is no interval and no p."
        if few
        else f"Spearman; p is corrected over {over}; from and to: the 95 % interval of the pair by itself."
    )
    values = {name: data.values[name] for name in names}
    first, gaps = differences(values, data.outcome, groups, against, FLAT)
    rows: list[tuple[Cell, ...]] = []
    for name, gap in gaps.items():
        tested = (math.nan,) * 3 if few or gap.counted < 2 else (gap.low, gap.high, gap.p)
        rows.append((name, *map(_cell, (gap.value, *tested)), gap.counted))
    title, columns = (
        f"By how much {first} goes better with them",
        ("than", "by", "from", "to", "p", data.unit),
    )
    return Table("differences", title, columns, tuple(rows), notes=(note,))


def _cell(value: float) -> float | None:
    return None if math.isnan(value) else value

"""Tables of correlations between metrics and the outcomes of contexts, within questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ragguard.analysis.tables import Cell, Table
from ragguard.lab.validation.contexts import OUTCOMES
from ragguard.metrics.agreement import Correlation, Kind, correlate, paired_bootstrap
from ragguard.metrics.arrays import Booleans, Floats
from studies.samples import Sample

Values = Mapping[str, Floats | None]
KINDS: dict[Kind, str] = {
    "spearman": "Spearman", "kendall_b": "Kendall τ-b", "pearson": "Pearson", "somers_d": "Somers' D",
}  # fmt: skip
_HOW = (
    "Per question {kind} with the outcome (correct 2, abstained 1, wrong 0), then the mean over questions; from and "
    "to: 95 % of a bootstrap over questions. A metric that is the same for all contexts of a question counts 0 there."
)
_PAIRS = (
    "Somers' D compares only contexts with different outcomes: the share of such pairs that a metric orders "
    "rightly, minus the share that it orders wrongly. The other coefficients also penalise a metric that "
    "separates contexts with equal outcomes: a metric that knows the outcome but has no ties cannot reach 1."
)


@dataclass(frozen=True, slots=True)
class DataSet:
    """The contexts and metrics of one column of the tables."""

    name: str
    sample: Sample
    values: Values
    """Every metric of each context; None where it does not exist."""
    asked: int
    """The number of questions before those without gold in their pool were left out."""

    def correlation(
        self, metric: str, kind: Kind = "spearman", where: Booleans | None = None, draws: int = 2000
    ) -> Correlation | None:
        """Returns the correlation of a metric with the outcome, over all contexts or some."""
        values = self.values.get(metric)
        if values is None:
            return None
        rows = np.ones(len(values), dtype=bool) if where is None else where
        return correlate(
            values[rows], self.sample.outcome[rows], kind, self.sample.owner[rows], draws, flat=0.0
        )


def correlations(
    sets: Sequence[DataSet],
    name: str,
    title: str,
    metrics: Sequence[str],
    source: str,
    notes: Sequence[str] = (),
) -> Table:
    """Makes a table with a row for each metric: its correlation and interval in each set."""
    rows = [
        (metric, *(cell for one in sets for cell in _cells(one.correlation(metric)))) for metric in metrics
    ]
    columns = [column for one in sets for column in (one.name, f"{one.name}, from", f"{one.name}, to")]
    return Table(
        name,
        title,
        ("metric", *columns),
        tuple(rows),
        source=source,
        notes=(_HOW.format(kind=KINDS["spearman"]), *notes, *map(skipped, sets)),
    )


def differences(
    sets: Sequence[DataSet],
    name: str,
    metrics: Sequence[str],
    of: str,
    source: str,
    kind: Kind = "spearman",
) -> Table:
    """Returns a table of how much more one metric correlates with the outcome than each of the others."""
    rows = []
    for metric in metrics:
        cells: list[Cell] = []
        for one in sets:
            mine, other = one.values.get(of), one.values.get(metric)
            if metric == of or mine is None or other is None:
                cells += [None] * 4
                continue
            gap = paired_bootstrap(mine, other, one.sample.owner, one.sample.outcome, kind, flat=0.0)
            cells += [gap.value, gap.low, gap.high, gap.p]
        if any(cell is not None for cell in cells):
            rows.append((metric, *cells))
    columns = [
        f"{one.name}{mark}" for one in sets for mark in (", more by", ", from", ", to", ", p")
    ]  # fmt: skip
    title = f"By how much {of} goes better with the answers, by {KINDS[kind]}"
    return Table(
        name, title, ("than", *columns), tuple(rows), source=source,
        notes=("Paired bootstrap over questions: the same draws for both metrics.",),
    )  # fmt: skip


def by_length(
    sets: Mapping[int, DataSet],
    name: str,
    title: str,
    metrics: Sequence[str],
    source: str,
    kind: Kind = "spearman",
) -> Table:
    """Makes a table with a row for each context length, and how much each metric's correlation varies over them."""
    rows: list[tuple[Cell, ...]] = []
    for k, one in sets.items():
        found = [one.correlation(metric, kind, draws=2) for metric in metrics]
        rows.append((str(k), *(None if value is None else value.value for value in found)))
    table = np.array(
        [[np.nan if cell is None else cell for cell in row[1:]] for row in rows], dtype=np.float64
    )
    spread = [float(value) for value in table.std(axis=0)]
    rows.append(("standard deviation", *spread))
    counts = ", ".join(f"{one.sample.varied} of {len(one.sample.pools)}" for one in sets.values())
    notes = (f"Questions whose outcomes vary, by k: {counts}.",)
    title = f"{title}, by {KINDS[kind]}"
    return Table(name, title, ("k", *metrics), tuple(rows), source=source, notes=notes)


def splits(sets: Sequence[DataSet], name: str, metrics: Sequence[str]) -> Table:
    """Returns a table of correlations within parts of the contexts: with the answer, without it, without falsehoods."""
    columns: list[str] = []
    cells: list[list[Cell]] = []
    for one in sets:
        true = ~one.sample.misleading
        parts = {
            "answerable": one.sample.answerable, "not answerable": ~one.sample.answerable, "no falsehood": true,
        }  # fmt: skip
        for part, where in parts.items():
            columns.append(f"{one.name}, {part}")
            found = [one.correlation(metric, where=where, draws=2) for metric in metrics]
            cells.append([None if value is None else value.value for value in found])
            counted = max((value.counted for value in found if value is not None), default=0)
            columns[-1] += f" ({counted})"
    rows = tuple((metric, *(column[at] for column in cells)) for at, metric in enumerate(metrics))
    notes = (
        "Correlations over a part of the contexts; in brackets the number of questions whose outcomes still vary.",
        "Answerable: every fact that is needed is there, so answers are right or wrong. Not answerable: the "
        "reader abstains or is misled. No falsehood: no passage contradicts what is true.",
    )
    return Table(name, "Where the correlations come from", ("metric", *columns), rows, source="", notes=notes)


def other_kinds(sets: Sequence[DataSet], name: str, metrics: Sequence[str], source: str) -> Table:
    """Returns the table of correlations with other coefficients."""
    kinds = [(one, kind) for one in sets for kind in KINDS]
    rows = []
    for metric in metrics:
        found = [one.correlation(metric, kind, draws=2) for one, kind in kinds]
        rows.append((metric, *(None if value is None else value.value for value in found)))
    columns = [f"{one.name}, {KINDS[kind]}" for one, kind in kinds]
    return Table(
        name,
        "The same by other coefficients",
        ("metric", *columns),
        tuple(rows),
        source=source,
        notes=(_PAIRS,),
    )


def outcomes(sets: Sequence[DataSet], name: str) -> Table:
    """Makes a table of the outcomes of contexts by what they held."""
    rows: list[tuple[Cell, ...]] = []
    for one in sets:
        answerable, misleading = one.sample.answerable, one.sample.misleading
        for label, where in (
            ("answerable", answerable & ~misleading),
            ("answerable, with a falsehood", answerable & misleading),
            ("not answerable", ~answerable & ~misleading),
            ("not answerable, with a falsehood", ~answerable & misleading),
        ):
            found = one.sample.outcome[where]
            shares = [
                100 * float(np.mean(found == value)) if found.size else None for value in OUTCOMES.values()
            ]
            rows.append((f"{one.name}: {label}", int(found.size), *shares))
    columns = ("contexts", "number", *(f"{verdict}, %" for verdict in OUTCOMES))
    notes = tuple(map(skipped, sets))
    return Table(
        name, "What the reader made of the contexts", columns, tuple(rows), source="", notes=notes, digits=1
    )


def skipped(one: DataSet) -> str:
    """Returns a note on how many questions were left out, and why."""
    kept, varied = len(one.sample.pools), one.sample.varied
    return (
        f"{one.name.capitalize()}: of {one.asked} questions {one.asked - kept} were left out as no search found what "
        f"answers them, and {kept - varied} as all their contexts came out the same; {varied} count."
    )


def _cells(found: Correlation | None) -> tuple[Cell, Cell, Cell]:
    return (None, None, None) if found is None else (found.value, found.low, found.high)

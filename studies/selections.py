"""Measures of a top-K selection beside the grade of the response: T, T_u, F, F_e and nDCG (Schwartz et al.).

The selections of all questions are compared together, as in that paper, each measure at the α that fits the grades
best. Contexts of one question are not independent of each other, so intervals come from draws of whole questions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ragguard.analysis.tables import Cell, Table
from ragguard.lab.validation.contexts import Progress, silent
from ragguard.metrics import best_alpha, correlate, f, f_e, t, t_u
from ragguard.metrics.arrays import Booleans, Floats, Integers
from studies.pooled import pooled_difference

SOURCE = "Schwartz et al."
LEAST = 300
"""The fewest selections of a segment that is shown, as in the paper."""
DRAWS = 200
GAPS = (
    ("T", "F"), ("T_u", "T"), ("nDCG@K", "F"), ("nDCG@K of the list", "F"), ("F_e", "F"),
    ("T", "nDCG@K of the list"), ("T", "F_e"), ("RA-nWG", "F"), ("%PROC", "F"),
)  # fmt: skip
"""The pairs of measures whose correlations are compared, where both are known."""
FITTED = ("T", "T_u", "F", "F_e")
"""The measures that have an α."""
_GRID = tuple(step / 10 for step in range(11))


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The top K that one search found for a question, as counts."""

    data: str
    """The data set."""
    search: str
    """The search, or its embedding."""
    question: str
    """Selections of one question are drawn together."""
    k: int
    n_p: int
    """How many of the top K are relevant."""
    total: int
    """How many are relevant in the whole base: N_p."""
    n_p_2k: int | None = None
    """How many of the top 2K are relevant; None where the ranking beyond K is not known."""
    values: Mapping[str, float] = field(default_factory=dict)
    """Measures that have no α, by name."""


class Fitted(NamedTuple):
    """A measure at the α that goes best with the grades, and that α (nan: it has none)."""

    values: Floats
    alpha: float


@dataclass(frozen=True, eq=False)
class Selections:
    """Graded selections as columns, a row each."""

    data: NDArray[np.str_]
    search: NDArray[np.str_]
    question: NDArray[np.str_]
    k: Floats
    n_p: Floats
    total: Floats
    n_p_2k: Floats
    """nan where it is not known."""
    grade: Floats
    values: Mapping[str, Floats]
    _parts: list[tuple[str, Selections]] = field(default_factory=list, init=False, repr=False)
    _fitted: dict[str, Fitted] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(cls, graded: Sequence[tuple[Selection, float]]) -> Selections:
        """Returns the columns of selections and of the grades of their responses."""
        rows = [selection for selection, _ in graded]

        def text(name: str) -> NDArray[np.str_]:
            return np.array([getattr(row, name) for row in rows], dtype=np.str_)

        def number(name: str) -> Floats:
            return np.array([getattr(row, name) for row in rows], dtype=np.float64)

        names = dict.fromkeys(name for row in rows for name in row.values)
        return cls(
            text("data"), text("search"), text("question"), number("k"), number("n_p"), number("total"),
            number("n_p_2k"), np.array([grade for _, grade in graded], dtype=np.float64),
            {name: np.array([row.values.get(name, math.nan) for row in rows]) for name in names},
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.grade)

    @property
    def segment(self) -> Floats:
        """The ratio K/N_p of each selection, rounded to its first digit."""
        return np.array([float(f"{ratio:.1g}") for ratio in self.k / self.total])

    def where(self, rows: Booleans | Integers) -> Selections:
        """Returns some of the rows."""
        return Selections(
            self.data[rows], self.search[rows], self.question[rows], self.k[rows], n_p=self.n_p[rows],
            total=self.total[rows], n_p_2k=self.n_p_2k[rows], grade=self.grade[rows],
            values={name: values[rows] for name, values in self.values.items()},
        )  # fmt: skip

    def by(self, column: NDArray[np.str_]) -> Iterator[tuple[str, Selections]]:
        """Yields the selections of each data set or search, in the order in which they first occur."""
        for name in dict.fromkeys(column.tolist()):
            yield name, self.where(column == name)

    @property
    def parts(self) -> Sequence[tuple[str, Selections]]:
        """The narrow (K < N_p) and the wide part of each data set, without those that are empty; made once."""
        if not self._parts:
            self._parts.extend(
                (f"{name}-{suffix}", group.where(rows))
                for name, group in self.by(self.data)
                for suffix, rows in (("n", group.k < group.total), ("w", group.k >= group.total))
                if rows.any()
            )
        return self._parts

    def at(self, measure: str, alpha: float) -> Floats:
        """Returns a measure that has an α, at that α."""
        values: dict[str, Callable[[], object]] = {
            "T": lambda: t(self.n_p, self.k, alpha),
            "T_u": lambda: t_u(self.n_p, self.k, alpha),
            "F": lambda: f(self.n_p, self.k, self.total, alpha),
            "F_e": lambda: self._f_e(alpha),
        }
        found: Floats = np.asarray(values[measure](), dtype=np.float64)
        # Values that are equal but for rounding are ties.
        return found.round(12)

    def _f_e(self, alpha: float) -> Floats:
        found = np.full(len(self), np.nan)
        known = ~np.isnan(self.n_p_2k)
        found[known] = f_e(self.n_p[known], self.k[known], self.n_p_2k[known], alpha)
        return found

    @property
    def measures(self) -> tuple[str, ...]:
        """The names of the measures of these selections; F_e only where the top 2K is known."""
        fits = [name for name in FITTED if name != "F_e" or not np.isnan(self.n_p_2k).all()]
        return (*fits, *self.values)

    def fitted(self, measure: str) -> Fitted:
        """Returns a measure at its best α of a grid of 101, found once; at 0.5 where none goes with the grades."""
        if measure in self.values:
            return Fitted(self.values[measure], math.nan)
        if measure not in self._fitted:
            alpha = best_alpha(partial(self.at, measure), self.grade).alpha
            self._fitted[measure] = Fitted(self.at(measure, 0.5 if math.isnan(alpha) else alpha), alpha)
        return self._fitted[measure]


def tables(
    found: Selections, *, least: int = LEAST, draws: int = DRAWS, progress: Progress = silent
) -> list[Table]:
    """Makes the paper's tables: grades, correlations at the best α pooled, by search and by K/N_p, and by α."""
    makers: tuple[Callable[[], Table], ...] = (
        lambda: grades(found, least=least),
        lambda: correlations(found),
        lambda: differences(found, draws=draws),
        lambda: correlations(found, by_search=True),
        lambda: segments(found, least=least),
        lambda: segments(found, least=least, by_search=True),
        lambda: coefficients(found),
        lambda: alphas(found),
    )
    made = []
    for done, make in enumerate(makers):
        progress("comparing selections", done, len(makers))
        made.append(make())
    progress("comparing selections", len(makers), len(makers))
    return made


def grades(found: Selections, *, least: int = LEAST, notes: Sequence[str] = ()) -> Table:
    """Tabulates the grades of the responses at each K/N_p (figures 2 to 4, 19, 20)."""
    ratios = sorted(set(found.segment.tolist()))
    few = f"Shares of segments of fewer than {least} contexts are hidden; the rows of contexts count all."
    rows: list[tuple[Cell, ...]] = []
    hidden = 0
    for name, group in found.by(found.data):
        segment = group.segment
        cells = [group.grade[segment == ratio] for ratio in ratios]
        hidden += sum(0 < len(cell) < least for cell in cells)
        for grade in (5, 4, 3, 2, 1):
            shares = (float(np.mean(cell == grade)) if len(cell) >= max(least, 1) else None for cell in cells)
            rows.append((f"{name}: grade {grade}", *shares))
        rows.append((f"{name}: contexts", *(len(cell) for cell in cells)))
    return Table(
        "sets-grades", "Response grades by K/N_p", ("K/N_p", *(f"{ratio:g}" for ratio in ratios)), tuple(rows),
        source=f"{SOURCE}, figures 2 to 4 and 19 to 20", notes=(*notes, *((few,) if hidden else ())),
    )  # fmt: skip


def correlations(found: Selections, *, by_search: bool = False) -> Table:
    """Tabulates Spearman's correlations with the grade for the narrow and the wide part of each data set (figure 5)."""
    rows: list[tuple[Cell, ...]] = []
    for name, part in found.parts:
        for search, group in part.by(part.search) if by_search else (("", part),):
            fits = {measure: group.fitted(measure) for measure in found.measures}
            values = (correlate(fit.values, group.grade, flat=0.0).value for fit in fits.values())
            alphas = (fits[measure].alpha for measure in FITTED if measure in fits)
            rows.append((f"{name}, {search}" if search else name, *values, *alphas, len(group)))
    named = [f"α of {measure}" for measure in FITTED if measure in found.measures]
    explained: tuple[str, ...] = (
        "-n: narrow, K < N_p; -w: wide, K ≥ N_p. T, T_u, F and F_e at the α that fits these grades best, as in the "
        "paper; the others have nothing to fit, which is an advantage of those four.",
        "nDCG@K is beside the best top K that the base allows, which needs N_p; of the list: beside the best order of "
        "the same K passages, which does not.",
    )
    if "F_e" not in found.measures:
        explained += (
            "F_e needs the top 2K, which the ranked samples hold: put them beside the graded samples.",
        )
    if by_search:
        return Table(
            "sets-searches", "The same by search", ("Data", *found.measures, *named, "contexts"), tuple(rows)
        )
    return Table(
        "sets-correlations", "Measures of a selection and the response grade: Spearman correlations",
        ("Data", *found.measures, *named, "contexts"), tuple(rows), source=f"{SOURCE}, figure 5",
        notes=explained,
    )  # fmt: skip


def differences(found: Selections, *, draws: int = DRAWS) -> Table:
    """Tabulates the differences between measures, with intervals from draws of whole questions."""
    rows: list[tuple[Cell, ...]] = []
    for name, group in found.parts:
        fits = {measure: group.fitted(measure).values for measure in found.measures}
        for one, other in _gaps(found):
            gap = pooled_difference(
                fits[one], fits[other], group.grade, group.question, "spearman", draws=draws
            )
            rows.append(
                (f"{name}: {one} − {other}", gap.value, gap.low, gap.high, gap.p, gap.counted, gap.skipped)
            )
    notes = [f"Intervals: the middle 95 % of {draws} draws of whole questions, each measure at its α."]
    if any(len(set(group.question.tolist())) == 1 for _, group in found.parts):
        notes.append("One question alone has neither interval nor p.")
    return Table(
        "sets-differences", "Differences between the measures' Spearman correlations",
        ("Data", "difference", "low", "high", "p", "contexts", "skipped"), tuple(rows),
        notes=tuple(notes),
    )  # fmt: skip


def segments(found: Selections, *, least: int = LEAST, by_search: bool = False) -> Table:
    """Tabulates F's correlation and the differences between measures by K/N_p (figures 6 to 18)."""
    rows: list[tuple[Cell, ...]] = []
    hidden, gaps = 0, _gaps(found)
    for name, data in found.by(found.data):
        for search, part in data.by(data.search) if by_search else (("", data),):
            segment = part.segment
            for ratio in sorted(set(segment.tolist())):
                group = part.where(segment == ratio)
                if len(group) < least:
                    hidden += 1
                    continue
                r = {
                    measure: correlate(group.fitted(measure).values, group.grade, flat=0.0).value
                    for measure in found.measures
                }
                label = f"{name}, {search}" if search else name
                rows.append(
                    (f"{label}: {ratio:g}", r["F"], *(r[one] - r[other] for one, other in gaps), len(group))
                )
    columns = ("Data: K/N_p", "F", *(f"{one} − {other}" for one, other in gaps), "contexts")
    title, table = ("The same by search and K/N_p", "sets-segments-searches") if by_search else (
        "The same by K/N_p", "sets-segments")  # fmt: skip
    notes = ("K/N_p rounded to its first digit. A dash: all responses of the segment have one grade.",)
    return Table(
        table,
        title,
        columns,
        tuple(rows),
        source=f"{SOURCE}, figures 6 to 18",
        notes=(*notes, *_hidden(hidden, least)),
    )


def coefficients(found: Selections) -> Table:
    """Tabulates Pearson's and Kendall's correlations (figures 23 to 25)."""
    rows: list[tuple[Cell, ...]] = []
    shown = [measure for measure in ("T", "nDCG@K", "F") if measure in found.measures]
    for name, group in found.parts:
        row: list[Cell] = [name]
        for measure in shown:
            values = group.fitted(measure).values
            row.append(correlate(values, group.grade, "pearson", flat=0.0).value)
            row.append(correlate(values, group.grade, "kendall_b", flat=0.0).value)
            row.append(correlate(values, group.grade, "kendall_c", flat=0.0).value)
        rows.append(tuple(row))
    columns = [f"{measure}, {kind}" for measure in shown for kind in ("Pearson", "τ-b", "τ-c")]
    return Table(
        "sets-kinds", "The same by other coefficients", ("Data", *columns), tuple(rows),
        source=f"{SOURCE}, figures 23 to 25",
    )  # fmt: skip


def alphas(found: Selections) -> Table:
    """Tabulates Spearman's correlations at each α of a coarse grid, over all of a data set."""
    fits = [measure for measure in FITTED if measure in found.measures]
    columns = {
        f"{name}: {measure}": [correlate(group.at(measure, a), group.grade, flat=0.0).value for a in _GRID]
        for name, group in found.by(found.data)
        for measure in fits
    }
    rows = tuple((alpha, *(column[at] for column in columns.values())) for at, alpha in enumerate(_GRID))
    return Table("sets-alpha", "Spearman correlations by α", ("α", *columns), rows)


def all_together(found: Selections) -> Selections:
    """Returns the selections with one more data set that holds all of them, where there are several."""
    if len(set(found.data.tolist())) < 2:
        return found
    twice = found.where(np.tile(np.arange(len(found)), 2))
    return replace(twice, data=np.concatenate([found.data, np.full(len(found), "all")]))


def _gaps(found: Selections) -> list[tuple[str, str]]:
    """Returns the pairs of which both measures are known."""
    return [(one, other) for one, other in GAPS if {one, other} <= set(found.measures)]


def _hidden(segments: int, least: int) -> tuple[str, ...]:
    """Returns a note about segments that are too small to be shown."""
    return (f"Segments of fewer than {least} contexts are not shown ({segments}).",) if segments else ()

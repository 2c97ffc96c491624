"""Measures whether a judge's labels agree with those of people: of single items, and as coverage (Ju et al. 2025).

CRUX's two tasks on anybody's labels: items one by one with precision, recall and κ, and each context's coverage, the
share of its items that a rater holds for answered, with Spearman's ρ and an interval over contexts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ragguard.analysis.validation.agreement import cohen_kappa, fleiss_kappa
from ragguard.analysis.validation.readers.labels import Labelled
from ragguard.analysis.validation.tables import Cell, Table
from ragguard.errors import InvalidInput
from ragguard.metrics.agreement import correlate, interval
from ragguard.metrics.arrays import Booleans, Floats

SOURCE = "CRUX"
ENOUGH = 3.0
"""The rating from which on an item is answered, where labels are grades."""
TOGETHER = "all raters"
DRAWS = 2000


def tables(items: Sequence[Labelled], *, threshold: float | None = None, seed: int = 0) -> list[Table]:
    """Makes the tables: items, coverage, and systems where there are several.

    `threshold`: the label from which on an item is answered; None: 3, or 1 where all labels are 0 or 1.
    """
    every = [label for one in items for label in (one.judge, *one.labels.values())]
    if min(every) == max(every):
        raise InvalidInput(
            "labels", f"{every[0]:g} everywhere", "items of both kinds: some answered, some not"
        )
    yes_or_no = set(every) <= {0.0, 1.0}
    at = (1.0 if yes_or_no else ENOUGH) if threshold is None else threshold
    if not min(every) < at <= max(every):
        allowed = f"a label that some reach and some do not: over {min(every):g}, at most {max(every):g}"
        raise InvalidInput("threshold", at, allowed)
    made = [_items(items, at, graded=not yes_or_no), _coverage(items, at, seed)]
    if len({one.system for one in items}) > 1:
        made.append(_systems(items, at, seed))
    return made


def raters(items: Sequence[Labelled]) -> list[str]:
    """The names of the people, in the order in which they first occur."""
    return list(dict.fromkeys(name for one in items for name in one.labels))


def _items(items: Sequence[Labelled], at: float, *, graded: bool) -> Table:
    """Tabulates the judge beside each rater and beside their majority, item by item."""
    rows: list[tuple[Cell, ...]] = []
    for name in (*raters(items), TOGETHER):
        pairs = [(one.judge, one.labels[name]) for one in items if name in one.labels]
        if name == TOGETHER:
            pairs = [(one.judge, float(np.median(list(one.labels.values())))) for one in items]
        judge, person = (np.array(column) for column in zip(*pairs, strict=True))
        says, true = judge >= at, person >= at
        rows.append((
            name, _share(says & true, says), _share(says & true, true), _share(~says & ~true, ~says),
            _share(~says & ~true, ~true), cohen_kappa(says, true),
            cohen_kappa(judge, person, quadratic=True) if graded else None, len(pairs),
        ))  # fmt: skip
    people = fleiss(items, at)
    notes = [
        f"Answered: a label of {at:g} or more. People are taken for the truth; {TOGETHER}: the median of an item's "
        "labels.",
        "Agreement among people: " + (
            "each item has one label." if people is None else
            f"Fleiss' κ {people[0]:.3f} over {people[1]:,} items that {people[2]} raters labelled."
        ),
    ]  # fmt: skip
    columns = (
        "judge beside", "answered: precision", "recall", "not answered: precision", "recall", "κ",
        "κ of grades, quadratic", "items",
    )  # fmt: skip
    return Table(
        "people-items", "The judge beside people, item by item", columns, tuple(rows),
        source=f"{SOURCE}, appendix A.2, task 2", notes=tuple(notes),
    )  # fmt: skip


def fleiss(items: Sequence[Labelled], at: float) -> tuple[float, int, int] | None:
    """Returns Fleiss' κ of the people over the items that most raters labelled, how many, and how many raters."""
    counts = [len(one.labels) for one in items]
    most = max(set(counts), key=lambda n: (counts.count(n), n))
    if most < 2:
        return None
    table = [
        [float(label >= at) for label in one.labels.values()] for one in items if len(one.labels) == most
    ]
    return fleiss_kappa(table), len(table), most


def _coverage(items: Sequence[Labelled], at: float, seed: int) -> Table:
    """Tabulates each context's coverage by the judge beside that by each rater."""
    rows: list[tuple[Cell, ...]] = []
    for name in (*raters(items), TOGETHER):
        judge, person = coverages(items, name, at)
        found = correlate(judge, person, flat=0.0)
        low, high = _interval(judge, person, seed)
        rows.append((
            name, float(person.mean()), float(judge.mean()), float((judge - person).mean()),
            float(np.abs(judge - person).mean()), found.value, low, high, found.p, len(judge),
        ))  # fmt: skip
    columns = (
        "judge beside", "coverage by people", "by the judge", "judge − people", "mean absolute difference",
        "Spearman's ρ", "low", "high", "p", "contexts",
    )  # fmt: skip
    notes = (
        "Coverage of a context: the share of its items that are answered, by the judge over the items that the rater "
        f"labelled as well; {TOGETHER}: the mean of the raters' coverages. Judge − people: above 0 the judge finds "
        "more answered than people do; the absolute difference is of each context, whatever its sign. Intervals: 95 % "
        "of a bootstrap over contexts.",
    )
    return Table(
        "people-coverage",
        "Coverage by the judge and by people",
        columns,
        tuple(rows),
        source=f"{SOURCE}, figure 4",
        notes=notes,
    )


def _systems(items: Sequence[Labelled], at: float, seed: int) -> Table:
    """Tabulates the panels of figure 4: the same by the system that the contexts come from."""
    rows: list[tuple[Cell, ...]] = []
    for system in dict.fromkeys(one.system for one in items):
        some = [one for one in items if one.system == system]
        judge, person = coverages(some, TOGETHER, at)
        low, high = _interval(judge, person, seed)
        rho = correlate(judge, person, flat=0.0).value
        rows.append((system or "–", float(person.mean()), float(judge.mean()), rho, low, high, len(judge)))
    columns = ("system", "coverage by people", "by the judge", "Spearman's ρ", "low", "high", "contexts")
    return Table("people-systems", "The same by system", columns, tuple(rows), source=f"{SOURCE}, figure 4")


def coverages(items: Sequence[Labelled], rater: str, at: float) -> tuple[Floats, Floats]:
    """Returns the coverage of each context by the judge and by a rater (`TOGETHER`: the mean of all)."""
    groups: dict[tuple[str, str], list[Labelled]] = {}
    for one in items:
        groups.setdefault((one.system, one.context), []).append(one)
    judge: list[float] = []
    person: list[float] = []
    for some in groups.values():
        each = [name for name in raters(some) if rater in (name, TOGETHER)]
        if not each:
            continue
        labelled = [[one for one in some if name in one.labels] for name in each]
        of_people = [
            np.mean([one.labels[name] >= at for one in ones])
            for name, ones in zip(each, labelled, strict=True)
        ]
        person.append(float(np.mean(of_people)))
        judge.append(float(np.mean([np.mean([one.judge >= at for one in ones]) for ones in labelled])))
    return np.array(judge), np.array(person)


def _share(part: Booleans, whole: Booleans) -> float | None:
    return float(part.sum() / whole.sum()) if whole.any() else None


def _interval(judge: Floats, person: Floats, seed: int) -> tuple[float, float]:
    """Returns the middle 95 % of ρ over draws of contexts; nan where no draw varies."""
    rng = np.random.default_rng(seed)
    drawn = [
        correlate(judge[rows], person[rows], flat=float("nan")).value
        for rows in rng.integers(len(judge), size=(DRAWS // 10, len(judge)))
    ]
    _, low, high = interval(np.array(drawn))
    return low, high

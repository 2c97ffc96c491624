"""Means of scored runs as people would have judged them: the judge's values, corrected by a few labels; the difference
of two such means, and the tables of `ragguard validate STORE --labels`."""

from __future__ import annotations

import math
import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias

from ragguard.analysis.comparison import interval_text
from ragguard.analysis.labels.items import READERS, LabelItem, latest
from ragguard.analysis.labels.label_file import FEWEST, Label, agreements, by_place
from ragguard.analysis.validation.agreement import cohen_kappa
from ragguard.analysis.validation.tables import Cell, Table
from ragguard.errors import InvalidInput
from ragguard.metrics.agreement import auc
from ragguard.metrics.distraction import GAMMA, udcg
from ragguard.metrics.prediction_powered import LEAST_LABELS, CorrectedMean, corrected_mean, rogan_gladen
from ragguard.metrics.registry import METRICS
from ragguard.records import ScoredRun
from ragguard.scorers.grades import RELEVANT
from ragguard.scorers.run_facts import ANSWERS
from ragguard.storage.source import open_source
from ragguard.text.language import normalise

Side: TypeAlias = tuple[str | Path, range | None]
"""A store, and the `seq` of its runs; None: all."""
_TOGETHER = "all together"
_ANSWERED = ANSWERS / 5
"""The share of the best rating from which on a passage answers a sub-question, where no other η was given."""
_FAR = 0.06
"""The distance from the judge's UDCG to the corrected one up to which its slope is right to about 0.003."""


@dataclass(slots=True)
class _MetricItems:
    """The items of one metric: what each contributes to its question's mean, according to the judge and to a person."""

    judged: list[float] = field(default_factory=list)
    labelled: list[float] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    questions: list[str] = field(default_factory=list)
    strata: list[int] = field(default_factory=list)
    constants: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, item: LabelItem, question: str, share: float, judged: float, labelled: float) -> None:
        """Adds what an item contributes by the judge and by a person, with its share in the mean of its question."""
        self.judged.append(judged)
        self.labelled.append(labelled)
        self.shares.append(share)
        self.questions.append(question)
        self.strata.append(item.stratum)

    def add_read(self, item: LabelItem, question: str, share: float, judged: float, labelled: float) -> None:
        """Adds what the reading of an item contributes: its share is smaller, as the model may not answer from it."""
        reads = max(item.reads, 1e-12)
        self.add(item, question, share * reads, judged / reads, labelled / reads)


@dataclass(slots=True)
class Corrections:
    """The corrected means of one side, and what a reader of them has to know."""

    means: dict[str, CorrectedMean] = field(default_factory=dict)
    rogan_gladen: float | None = None
    """The share of relevant passages by the judge's sensitivity and specificity on the labels, as a check."""
    remarks: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Returns plain data for JSON."""
        return asdict(self)


def corrected(runs: Iterable[ScoredRun], labels: Sequence[Label], where: str = "ragguard.db") -> Corrections:
    """Returns the means over questions of p_relevant, utility, UDCG, coverage_total, answer_correct and grade by the
    labels of these runs.

    Raises InvalidInput where a label is about another text, or was drawn by the numbers of another judge.
    """
    known, columns = by_place(labels), defaultdict[str, _MetricItems](_MetricItems)
    taken = list(runs)
    times = Counter(normalise(scored.run.question) for scored in taken)
    used: set[tuple[str, str, str, int]] = set()
    for scored in taken:
        question = normalise(scored.run.question)
        for kind, read in READERS.items():
            items = list(read(scored))
            y = {item.place: _value(item, known) for item in items}
            used.update(place for place in y if place in known)
            _ADD[kind](columns, scored, items, y, question, 1 / times[question])
    found = Corrections()
    if not used:
        raise InvalidInput(
            "--labels",
            f"{len(known)} labels",
            f"labels of the runs in {where}: `ragguard label {shlex.quote(where)}`",
        )
    for name, column in columns.items():
        _correct(found, name, column)
    found.remarks += agreements([label for label in labels if label.place in used])
    return found


def _value(item: LabelItem, known: dict[tuple[str, str, str, int], Label]) -> float:
    label = known.get(item.place)
    if label is None:
        return math.nan
    of = f"label of run {item.place[1]}"
    if label.digest != item.digest:
        raise InvalidInput(
            of, label.digest, f"{item.digest}: the text is another one than was labelled; label it again"
        )
    if label.judge != item.judge:
        raise InvalidInput(
            of,
            label.judge,
            f"{item.judge}: labels are drawn by the judge's numbers; label anew, or score with that judge",
        )
    return label.value


def _add_passages(
    columns: dict[str, _MetricItems], scored: ScoredRun, items: Sequence[LabelItem], y: dict[Any, float], question: str,
    weight: float,
) -> None:  # fmt: skip
    numbers = {
        (one.name, one.step_id, one.position or 0): one
        for one in latest(scored, "p_abstain", "utility", "udcg")
    }
    by_step: dict[str, list[tuple[LabelItem, float, float]]] = defaultdict(list)
    for item in items:
        columns["p_relevant"].add(item, question, weight / len(items), item.judged, y[item.place])
        _, _, step, position = item.place
        utility, abstains = (numbers.get((name, step, position)) for name in ("utility", "p_abstain"))
        if utility is not None and abstains is not None:
            by_step[step].append((item, utility.value, (2 * y[item.place] - 1) * item.reads))
    count = sum(map(len, by_step.values()))
    for rows in by_step.values():
        for item, judged, human in rows:
            columns["utility"].add_read(item, question, weight / count, judged, human)
    steps = [one for one in numbers.values() if one.name == "udcg"]
    for score in steps:
        _add_udcg(
            columns["udcg"],
            score.value,
            score.metadata.get("k"),
            by_step[score.step_id],
            question,
            weight / len(steps),
        )


def _add_udcg(
    column: _MetricItems, value: float, k: object, rows: Sequence[tuple[LabelItem, float, float]], question: str,
    weight: float,
) -> None:  # fmt: skip
    """Adds a step's passages to UDCG. One label changes UDCG little, so its slope at the judge's value is used."""
    places = k if isinstance(k, int) else len(rows)
    utilities = [u for _, u, _ in rows] or [0.0]
    # Given with another γ, softly, or about passages that are not all judged.
    if len(rows) > places or abs(float(udcg(utilities, k=max(1, places))) - value) > 1e-6:
        column.constants[question] = math.nan
        return
    slope = value * (1 - value)
    inside = 0.0
    for item, judged, human in rows:
        f, g = (one if one > 0 else GAMMA * one for one in (judged, human))
        g = math.nan if math.isnan(human) else g
        inside += f
        column.add_read(item, question, weight * slope / places, f, g)
    column.constants[question] += weight * (value - slope * inside / places if places else value)


def _add_each(
    name: str, columns: dict[str, _MetricItems], scored: ScoredRun, items: Sequence[LabelItem], y: dict[Any, float],
    question: str, weight: float,
) -> None:  # fmt: skip
    for item in items:
        columns[name].add(item, question, weight / len(items), item.judged_label, y[item.place])


def _add_coverage(
    columns: dict[str, _MetricItems], scored: ScoredRun, items: Sequence[LabelItem], y: dict[Any, float], question: str,
    weight: float,
) -> None:  # fmt: skip
    covered = [float(item.judged >= _ANSWERED) for item in items]
    for item, judged in zip(items, covered, strict=True):
        columns["coverage_total"].add(item, question, weight / len(items), judged, y[item.place])
    for score in latest(scored, "coverage_total"):
        # Given with another η, or about those sub-questions alone that a pool answers.
        if not items or abs(fmean(covered) - score.value) > 1e-6:
            columns["coverage_total"].constants[question] = math.nan


_ADD: Mapping[str, Callable[..., None]] = {
    "relevance": _add_passages, "answer": partial(_add_each, "answer_correct"), "coverage": _add_coverage,
    "grade": partial(_add_each, "grade"),
}  # fmt: skip


def _correct(found: Corrections, name: str, column: _MetricItems) -> None:
    """Adds the corrected mean of a metric, or the sentence why there is none."""
    if any(math.isnan(value) for value in column.constants.values()):
        found.remarks.append(f"{name} is not corrected: it was given with settings other than the usual ones")
        return
    given = [value for value in column.labelled if not math.isnan(value)]
    if not given:
        return
    if len(given) < LEAST_LABELS:
        found.remarks.append(f"{name} is not corrected: {len(given)} labels, and {LEAST_LABELS} are needed")
        return
    if max(given) - min(given) < 1e-9:
        found.remarks.append(f"{name} is not corrected: all {len(given)} labels say the same; label more")
        return
    names = dict.fromkeys([*column.constants, *column.questions])
    number = {question: at for at, question in enumerate(names)}
    found.means[name] = corrected_mean(
        column.judged,
        column.labelled,
        shares=column.shares,
        runs=[number[question] for question in column.questions],
        strata=column.strata,
        constants=[column.constants.get(question, 0.0) for question in names],
        range=METRICS[name].range,
    )
    if name == "udcg" and abs(found.means[name].value - found.means[name].raw) > _FAR:
        del found.means[name]
        found.remarks.append(
            "udcg is not corrected: people and the judge are too far apart for its slope; correct utility instead"
        )
    if name == "p_relevant":
        says = [value >= 0.5 for value in column.judged]
        check = rogan_gladen(says, column.labelled, column.strata)
        found.rogan_gladen = None if math.isnan(check) else check


@dataclass(frozen=True, slots=True)
class CorrectedDifference:
    """The difference, after less before, with its 95 % interval as of two sides that were drawn and labelled apart."""

    value: float
    low: float
    high: float

    @property
    def shown(self) -> str:
        """The difference as text."""
        return f"{self.value:+z.3f}{interval_text(self.low, self.high)}"

    @property
    def verdict(self) -> str:
        """The verdict: that it differs, or that the labels do not decide it."""
        return "differs" if self.low > 0 or self.high < 0 else "not decisive"


@dataclass(frozen=True, slots=True)
class CorrectedChanges:
    """The corrected means of both sides."""

    before: Corrections
    after: Corrections

    @property
    def differences(self) -> dict[str, CorrectedDifference]:
        """The difference of each metric that is corrected on both sides."""
        return {
            name: _difference(mean, self.after.means[name])
            for name, mean in self.before.means.items()
            if name in self.after.means
        }

    @property
    def remarks(self) -> list[str]:
        """The facts that a reader of the numbers has to know of either side."""
        sides = (("before", self.before), ("after", self.after))
        return [f"{side}: {remark}" for side, found in sides for remark in found.remarks]

    def as_dict(self) -> dict[str, Any]:
        """Returns plain data for JSON."""
        differences = {name: asdict(found) for name, found in self.differences.items()}
        return {"before": self.before.as_dict(), "after": self.after.as_dict(), "differences": differences}


def corrected_changes(before: Side, after: Side, labels: Sequence[Label]) -> CorrectedChanges:
    """Returns the means of two stores, corrected by the labels of each."""
    sides = [corrected(open_source(*side).scored_runs(), labels, str(side[0])) for side in (before, after)]
    return CorrectedChanges(*sides)


def _difference(before: CorrectedMean, after: CorrectedMean) -> CorrectedDifference:
    gap = after.value - before.value
    below, above = math.hypot(before.above, after.below), math.hypot(before.below, after.above)
    return CorrectedDifference(gap, gap - below, gap + above)


def judge_tables(runs: Iterable[ScoredRun], labels: Sequence[Label], where: str) -> list[Table]:
    """Returns the agreement of the judge with each person and with all, and the corrected means; raises InvalidInput
    where a label is about another text, or was drawn by another judge."""
    taken = list(runs)
    found = corrected(taken, labels, where)
    judged = {
        item.place: item.judged_label for one in taken for read in READERS.values() for item in read(one)
    }
    groups = {
        (kind, _TOGETHER): list(by_place(labels).values())
        for kind in dict.fromkeys(one.place[0] for one in labels)
    }
    for label in labels:
        groups.setdefault((label.place[0], label.by), []).append(label)
    rows: list[tuple[Cell, ...]] = []
    for (kind, by), some in groups.items():
        pairs = [
            (judged[one.place], one.value) for one in some if one.place[0] == kind and one.place in judged
        ]
        if not pairs:
            continue
        mine, theirs = zip(*pairs, strict=True)
        graded = kind == "grade"
        if graded:
            mine = tuple(map(round, mine))
        least = RELEVANT if graded else 0.5
        says, right = ([value >= least for value in column] for column in (mine, theirs))
        compared = (mine, [*map(round, theirs)]) if graded else (says, right)
        both = sum(a and b for a, b in zip(says, right, strict=True))
        rows.append((
            kind, by, len(pairs), both / sum(says) if any(says) else None, both / sum(right) if any(right) else None,
            *((cohen_kappa(*compared, quadratic=graded), auc(mine, right)) if len(pairs) >= FEWEST else (None, None)),
        ))  # fmt: skip
    means = tuple(
        (name, one.raw, one.value, one.low, one.high, one.labels, one.weight)
        for name, one in found.means.items()
    )
    beside = ("label", "judge beside", "items", "precision", "recall", "κ", "AUC")
    columns = ("metric", "by the judge", "corrected", "low", "high", "labels", "weight of the judge")
    drawn = (
        "Labels are drawn where the judge is unsure, so that it agrees with people more often than here. Of grades: "
        f"4 and 5 are relevant, κ has quadratic weights. κ and AUC are told from {FEWEST} items on."
    )
    return [
        Table("judge-labels", "The judge beside people", beside, tuple(rows), notes=(drawn,)),
        Table("corrected-means", "Means corrected by labels", columns, means, notes=tuple(found.remarks)),
    ]

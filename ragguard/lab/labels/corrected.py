"""Means of scored runs as people would have judged them: the judge's values, corrected by a few labels; the difference
of two such means, and the tables of `ragguard validate STORE --labels`."""

from __future__ import annotations

import math
import shlex
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from ragguard.analysis.comparison import interval_text
from ragguard.analysis.tables import Cell, Table
from ragguard.errors import InvalidInput
from ragguard.facts.run_facts import ANSWERS
from ragguard.lab.labels.items import (
    METRIC_OF,
    STRATA,
    LabelItem,
    Place,
    latest,
    least_and_largest,
    run_items,
)
from ragguard.lab.labels.label_file import FEWEST, Label, agreements, by_place, check_text, read_label_file
from ragguard.metrics.agreement import auc, cohen_kappa
from ragguard.metrics.distraction import GAMMA, RELEVANCES, RELEVANT_FROM, Relevance, utility_parts
from ragguard.metrics.prediction_powered import LEAST_LABELS, CorrectedMean, corrected_mean, rogan_gladen
from ragguard.metrics.registry import METRICS
from ragguard.records import Score, ScoredRun
from ragguard.scorers.grades import RELEVANT
from ragguard.storage.source import open_source
from ragguard.text.language import normalise

_ANSWERED = ANSWERS / 5
"""The share of the best rating from which on a passage answers a sub-question, where no other η was given."""
_FAR = 0.06
"""The distance from the judge's UDCG up to which its slope is right to about 0.003. The whole interval has to lie
within it: by the estimate alone, chance would decide in doubt."""


class _Contribution(NamedTuple):
    """The contribution of an item to the mean of its question."""

    question: str
    stratum: int
    share: float
    judged: float
    """The value according to the judge."""
    labelled: float
    """The value according to a person; nan without a label."""


@dataclass(slots=True)
class Corrections:
    """The corrected means of one side, and what a reader of them has to know."""

    means: dict[str, CorrectedMean] = field(default_factory=dict)
    rogan_gladen: float | None = None
    """The share of relevant passages by the judge's sensitivity and specificity on the labels, as a check."""
    remarks: list[str] = field(default_factory=list)

    def table(self) -> Table:
        """Returns the means of the judge beside those that the labels correct."""
        columns = ("metric", "by the judge", "corrected", "low", "high", "labels", "weight of the judge")
        rows = tuple(
            (name, one.raw, one.value, one.low, one.high, one.labels, one.weight)
            for name, one in self.means.items()
        )
        check = "p_relevant by the judge's errors on only the labels, as a check"
        notes = [] if self.rogan_gladen is None else [f"{check}: {self.rogan_gladen:.3f}."]
        notes += [f"{remark}." for remark in self.remarks]
        title = "Means over questions, corrected by labels"
        return Table("corrected-means", title, columns, rows, notes=tuple(notes))


class _Rows:
    """The rows of each metric, and what else its means are made of."""

    def __init__(self) -> None:
        self.of: dict[str, list[_Contribution]] = defaultdict(list)
        self.constants: dict[str, float] = defaultdict(float)
        """The number that is added to UDCG whatever the passages are, by question."""
        self.unusual: set[str] = set()
        """The metrics that were given with settings other than the usual ones."""
        self.epoch = 0
        """The number of draws of labels before the run whose items are added."""

    def add_run(
        self, scored: ScoredRun, kind: str, known: Mapping[Place, float], weight: float, epoch: int
    ) -> None:
        """Adds the items of a kind in a run, which has this weight in the mean of its question. Items of another epoch
        have strata of their own, as other labels were drawn from them."""
        question = normalise(scored.run.question)
        items = [(item, known.get(item.place, math.nan)) for item in run_items(scored, kind)]
        share = weight / max(1, len(items))
        self.epoch = epoch
        for item, human in items:
            judged = float(item.judged >= _ANSWERED) if kind == "coverage" else item.judged_label
            self._add(METRIC_OF[kind], question, item, share, judged, human)
        if kind == "relevance":
            self._add_utility(scored, question, weight, items)
        elif kind == "coverage":
            covered = [item.judged >= _ANSWERED for item, _ in items]
            # Given with another η, or about those sub-questions alone that a pool answers.
            for score in latest(scored, "coverage_total"):
                if not covered or abs(fmean(covered) - score.value) > 1e-6:
                    self.unusual.add("coverage_total")

    def _add(
        self, name: str, question: str, item: LabelItem, share: float, judged: float, human: float
    ) -> None:
        stratum = item.stratum + self.epoch * STRATA
        self.of[name].append(_Contribution(question, stratum, share, judged, labelled=human))

    def _add_utility(
        self, scored: ScoredRun, question: str, weight: float, items: Sequence[tuple[LabelItem, float]]
    ) -> None:
        """Adds the passages to the means of utility and UDCG."""
        names = ("p_abstain", "p_relevant", "utility", "udcg")
        found = {(one.name, one.step_id, one.position or 0): one for one in latest(scored, *names)}
        by_step: dict[str, list[tuple[LabelItem, float, float]]] = defaultdict(list)
        utilities = []
        for item, human in items:
            _, _, step, position = item.place
            if ("utility", step, position) in found and ("p_abstain", step, position) in found:
                utilities.append((item, found["utility", step, position].value, (2 * human - 1) * item.reads))
                by_step[step].append((item, found["p_relevant", step, position].value, human))
        for item, judged, labelled in utilities:
            self._add_read("utility", question, item, weight / len(utilities), judged, labelled)
        steps = [one for one in found.values() if one.name == "udcg"]
        for score in steps:
            self._add_udcg(question, score, by_step[score.step_id], weight / len(steps))

    def _add_udcg(
        self, question: str, score: Score, rows: Sequence[tuple[LabelItem, float, float]], share: float
    ) -> None:
        """Adds a step's passages to UDCG. One label changes UDCG little, so its slope at the judge's value is used.

        `rows` has the relevance of each passage by the judge and by people.
        """
        value, k = score.value, score.metadata.get("k")
        places = k if isinstance(k, int) else len(rows)
        for form in RELEVANCES:
            worths = [_worth(judged, item.reads, form) for item, judged, _ in rows]
            inside = sum(worths)
            if len(rows) <= places and abs(1 / (1 + math.exp(-inside / max(1, places))) - value) < 1e-6:
                break
        else:  # given with another γ, or about passages that are not all judged
            self.unusual.add("udcg")
            return
        slope = value * (1 - value)
        for worth, (item, _, human) in zip(worths, rows, strict=True):
            labelled = math.nan if math.isnan(human) else _worth(human, item.reads, "probability")
            self._add_read("udcg", question, item, share * slope / places, worth, labelled)
        self.constants[question] += share * (value - slope * inside / places if places else value)

    def _add_read(
        self, name: str, question: str, item: LabelItem, share: float, judged: float, human: float
    ) -> None:
        """Adds what the reading of an item contributes: its share is smaller, as the model may not answer from it."""
        reads = max(item.reads, 1e-12)
        self._add(name, question, item, share * reads, judged / reads, human / reads)

    def correct(self, name: str, found: Corrections) -> None:
        """Adds the corrected mean of a metric, or the sentence why there is none; nothing where it has no labels."""
        given = [one.labelled for one in self.of[name] if not math.isnan(one.labelled)]
        why = ""
        if name in self.unusual:
            why = "it was given with settings other than the usual ones"
        elif not given:
            return
        elif len(given) < LEAST_LABELS:
            why = f"{len(given)} labels, and {LEAST_LABELS} are needed"
        elif max(given) - min(given) < 1e-9:
            why = f"all {len(given)} labels say the same; label more"
        if why:
            found.remarks.append(f"{name} is not corrected: {why}")
            return
        questions, strata, shares, judged, labelled = zip(*self.of[name], strict=True)
        constants = self.constants if name == "udcg" else {}
        names = {question: at for at, question in enumerate(dict.fromkeys([*constants, *questions]))}
        runs, added = [names[one] for one in questions], [constants.get(one, 0.0) for one in names]
        ends = METRICS[name].range
        mean = corrected_mean(
            judged, labelled, shares=shares, runs=runs, strata=strata, constants=added, range=ends
        )
        if name == "udcg" and max(mean.raw - mean.low, mean.high - mean.raw) > _FAR:
            found.remarks.append(
                "udcg is not corrected: people and the judge may be too far apart for its slope; correct utility "
                "instead, or label more"
            )
            return
        found.means[name] = mean
        if name == "p_relevant":
            check = rogan_gladen([value >= RELEVANT_FROM for value in judged], labelled, strata)
            found.rogan_gladen = None if math.isnan(check) else check


def _worth(relevant: float, reads: float, form: Relevance) -> float:
    """Returns what a passage adds to the sum inside of UDCG."""
    gain, harm = utility_parts(relevant, 1 - reads, form)
    return float(gain + GAMMA * harm)


def corrected(runs: Iterable[ScoredRun], labels: Sequence[Label], where: str = "ragguard.db") -> Corrections:
    """Returns the means over questions of p_relevant, utility, UDCG, coverage_total, answer_correct and grade by the
    labels of these runs.

    Raises InvalidInput where a label is about another text, or was drawn by the numbers of another judge.
    """
    taken = list(runs)
    ids = {scored.run.id for scored in taken}
    mine = [label for label in labels if label.place[1] in ids]
    known = {place: label.value for place, label in by_place(mine).items()}
    skipped = _checked(taken, mine) - known.keys()
    if not known:
        allowed = f"labels of the runs in {where}: `ragguard label {shlex.quote(where)}`"
        raise InvalidInput("--labels", f"{len(labels)} labels", allowed)
    found = _corrected(taken, mine, known)
    if skipped:
        extremes = [
            _corrected(taken, mine, known | {one: least_and_largest(one[0])[at] for one in skipped})
            for at in (0, 1)
        ]
        for name, mean in found.means.items():
            found.means[name] = _widened(mean, [one.means[name] for one in extremes if name in one.means])
        found.remarks.append(
            f"{len(skipped)} items were skipped: the intervals are wide enough for any labels that they could have; "
            f"fewer skips "
            "make them narrower"
        )
    if unasked := sum(label.unasked for label in mine):
        found.remarks.append(
            f"{unasked} of {len(mine)} labels were not drawn: people gave a thumb or an annotation if they wanted, "
            f"so this assumes that a run without one is like those with one and the same verdict of the judge"
        )
    found.remarks += agreements(mine)
    return found


def _checked(runs: Iterable[ScoredRun], labels: Sequence[Label]) -> set[Place]:
    """Returns the places of all labels that are about an item of the runs. Raises InvalidInput where a label is about
    another text, or was drawn by the numbers of another judge."""
    by_item: dict[Place, list[Label]] = defaultdict(list)
    for label in labels:
        by_item[label.place].append(label)
    places: set[Place] = set()
    for item in (item for scored in runs for kind in METRIC_OF for item in run_items(scored, kind)):
        for label in by_item.get(item.place, ()):
            check_text(label, item.digest)
            if label.judge != item.judge:
                allowed = f"{item.judge}: labels are drawn by the judge's numbers; label again, or score by that one"
                raise InvalidInput(f"label of run {item.place[1]}", label.judge, allowed)
            places.add(item.place)
    return places


def _corrected(
    runs: Sequence[ScoredRun], labels: Sequence[Label], known: Mapping[Place, float]
) -> Corrections:
    """Returns the corrected means by labels of these runs; those of a kind over the runs from which they were drawn."""
    rows, found = _Rows(), Corrections()
    for kind in METRIC_OF:
        draws = sorted({label.drawn_ns for label in labels if label.place[0] == kind})
        # A label that does not say when it was drawn was drawn from every run.
        drawn_from = [one for one in runs if not any(draws) or one.run.started_ns <= draws[-1]]
        times = Counter(normalise(scored.run.question) for scored in drawn_from)
        for scored in drawn_from:
            weight, epoch = (
                1 / times[normalise(scored.run.question)],
                bisect_left(draws, scored.run.started_ns),
            )
            rows.add_run(scored, kind, known, weight, epoch)
        if later := len(runs) - len(drawn_from):
            found.remarks.append(
                f"{METRIC_OF[kind]}: {later} of {len(runs)} runs began after the labels were drawn and are left out; "
                "`ragguard label` again draws from them, too"
            )
    for name in dict.fromkeys([*rows.of, *sorted(rows.unusual)]):
        rows.correct(name, found)
    return found


def _widened(mean: CorrectedMean, extremes: Sequence[CorrectedMean]) -> CorrectedMean:
    """Returns a mean whose interval holds those of others."""
    below = max(mean.value - one.value + one.below for one in (mean, *extremes))
    above = max(one.value + one.above - mean.value for one in (mean, *extremes))
    low, high = (
        end(getattr(one, name) for one in (mean, *extremes)) for end, name in ((min, "low"), (max, "high"))
    )
    return replace(mean, low=low, high=high, below=below, above=above)


@dataclass(frozen=True, slots=True)
class CorrectedChanges:
    """The corrected means of both sides."""

    before: Corrections
    after: Corrections

    @property
    def differences(self) -> dict[str, tuple[float, float, float]]:
        """The difference, after less before, of each metric that is corrected on both sides, with its 95 % interval as
        of two sides that were drawn and labelled apart."""
        found = {}
        for name in (one for one in self.before.means if one in self.after.means):
            before, after = self.before.means[name], self.after.means[name]
            gap = after.value - before.value
            low, high = math.hypot(before.above, after.below), math.hypot(before.below, after.above)
            found[name] = gap, gap - low, gap + high
        return found

    def table(self) -> Table:
        """Returns the means of both sides as labels correct them, and as the judge has them."""
        rows: list[tuple[Cell, ...]] = []
        for name, (gap, low, high) in self.differences.items():
            a, b = self.before.means[name], self.after.means[name]
            shown = f"{gap:+z.3f}{interval_text(low, high)}"
            verdict = "differs" if low > 0 or high < 0 else "not decisive"
            rows.append((name, shown, verdict, a.value, b.value, f"{a.labels} + {b.labels}", a.raw, b.raw))
        columns = ("metric", "difference (95 %)", "verdict", "before", "after", "labels", "before, by the judge",
                   "after, by the judge")  # fmt: skip
        sides = (("before", self.before), ("after", self.after))
        notes = tuple(f"{side}: {remark}." for side, found in sides for remark in found.remarks)
        return Table("corrected", "Corrected by labels of people", columns, tuple(rows), notes=notes)

    def as_dict(self) -> dict[str, Any]:
        """Returns plain data for JSON."""
        ends = ("value", "low", "high")
        gaps = {name: dict(zip(ends, gap, strict=True)) for name, gap in self.differences.items()}
        return asdict(self) | {"differences": gaps}


def corrected_by(
    labels: str | Path,
) -> Callable[[Iterable[tuple[str | Path, range | None]]], CorrectedChanges]:
    """Returns a function that corrects the means of two sides by the labels of a file."""
    return lambda sides: corrected_changes(sides, read_label_file(labels, models=True, skipped=True))


def corrected_changes(
    sides: Iterable[tuple[str | Path, range | None]], labels: Sequence[Label]
) -> CorrectedChanges:
    """Returns the means of two stores, each with the `seq` of its runs or None for all, corrected by their labels."""
    runs = ((open_source(path).scored_runs(span), str(path)) for path, span in sides)
    return CorrectedChanges(*(corrected(some, labels, where) for some, where in runs))


def judge_tables(runs: Iterable[ScoredRun], labels: Sequence[Label], where: str) -> list[Table]:
    """Returns the agreement of the judge with each person and with all, and the corrected means; raises InvalidInput
    where a label is about another text, or was drawn by another judge."""
    taken = list(runs)
    found = corrected(taken, labels, where)
    judged = {
        item.place: item.judged_label for one in taken for kind in METRIC_OF for item in run_items(one, kind)
    }
    groups: dict[tuple[str, str], list[Label]] = defaultdict(list)
    for label in by_place(labels).values():
        groups[label.place[0], "all together"].append(label)
    for label in labels:
        if not label.skipped:
            groups[label.place[0], label.by].append(label)
    rows: list[tuple[Cell, ...]] = []
    for (kind, by), some in groups.items():
        pairs = [(judged[one.place], one.value) for one in some if one.place in judged]
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
    beside = ("label", "judge beside", "items", "precision", "recall", "κ", "AUC")
    drawn = (
        "Labels are drawn where the judge is unsure, so that it agrees with people more often than here. Of grades: "
        f"4 and 5 are relevant, κ has quadratic weights. κ and AUC are shown from {FEWEST} items on."
    )
    return [
        Table("judge-labels", "The judge beside people", beside, tuple(rows), notes=(drawn,)),
        found.table(),
    ]

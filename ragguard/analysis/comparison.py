"""Compares two sets of runs over the same questions: what changed, by how much, and whether that is more than noise."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from ragguard.analysis.pairs import Questions
from ragguard.analysis.verdict import SIGNIFICANT, Change, ComparisonVerdict, judge, primary_of
from ragguard.errors import InvalidInput
from ragguard.metrics.agreement import FlipTest, least_p, sign_flips
from ragguard.metrics.arrays import MOST_DRAWS, Floats
from ragguard.metrics.registry import METRICS
from ragguard.runtime.arguments import whole_number
from ragguard.storage.sqlite.score_rows import Series, titles

NOT_DECISIVE = "not decisive"
TOO_FEW = "too few questions"
UNDECIDED = NOT_DECISIVE, TOO_FEW
"""The verdicts that call nothing different."""
_SIGNS = {"higher": 1, "lower": -1}
TOLERANCE = 1e-6
"""Differences up to this, absolute or relative to the values, are rounding and count as none."""


@dataclass(frozen=True, slots=True)
class Move:
    """The values of one metric for one question, before and after."""

    metric: str
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class MovedQuestion:
    """A question that changed, with the metrics in which it did, the largest change first."""

    question: str
    moves: list[Move]


@dataclass(frozen=True, slots=True)
class EmptyRuns:
    """The runs of one side of which the model got no passage."""

    count: int
    runs: int
    """All runs of the side."""
    unscored: dict[str, int]
    """Metric → how many of the empty runs have no score of it; without the metrics that all of them have."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of comparing two sets of runs."""

    changes: list[Change]
    moved: list[MovedQuestion]
    """The questions that changed most, by their largest change in standard deviations of the metric's changes."""
    fell: list[MovedQuestion]
    """The questions that became worse in a metric on which the verdict rests, also where its mean did not."""
    moved_in_all: int
    """How many questions changed in any metric."""
    paired: int
    only_before: int
    only_after: int
    missing: list[str]
    """Metrics that one side lacks."""
    passages_before: float | None
    """The number of passages that the model got of a step, on average; None where no steps are known, as of a score
    file."""
    passages_after: float | None
    places_before: float | None
    """K, the number of places in the prompt of a step, on average; scores that are computed on K shift with it. None
    where no steps are known."""
    places_after: float | None
    failures_before: int
    failures_after: int
    """Scores that could not be given."""
    judged_otherwise: dict[str, list[str]]
    """Metrics whose scores differ in engine, prompts or settings between the sides, with what made them."""
    empty_before: EmptyRuns
    empty_after: EmptyRuns
    remarks: list[str] = field(default_factory=list)
    """The facts that a reader of the numbers has to know of either side, such as runs that are missing."""
    draws: int = 0
    """How many random patterns of signs were tried, where there were too many questions to try all."""

    @property
    def decisive(self) -> list[Change]:
        """The changes on which the verdict rests: of the primary metrics, or of all where none of these was
        compared."""
        return _decisive(self.changes)

    @property
    def verdict(self) -> ComparisonVerdict:
        """The verdict on the two sides."""
        return judge(
            self.decisive, identical=not self.moved_in_all, paired=self.paired, metrics=len(self.changes)
        )

    @property
    def about_p(self) -> str:
        """The sentence about what p means."""
        number, first = len(self.changes), len(self.decisive)
        together = (
            f"for {'all ' if first == number else ''}{first} metrics together"
            if first > 1
            else "for one metric"
        )
        if first < number:
            together += f", and for all {number} where it is another metric's"
        return (
            f"p is from sign flips of the questions' differences, {together}: where nothing differs, any is called "
            f"different once in {1 / SIGNIFICANT:.0f} comparisons."
        )

    @property
    def left_out(self) -> str:
        """The sentence about questions that only one side has; "" where there are none."""
        if not (self.only_before or self.only_after):
            return ""
        return f"Left out: {self.only_before} questions only before, {self.only_after} only after."

    @property
    def about_k(self) -> str:
        """The sentences about K of both sides; "" where neither is known."""
        sides = {
            "before": (self.places_before, self.passages_before),
            "after": (self.places_after, self.passages_after),
        }
        known = {
            side: f"K = {k:.1f}, {kept:.1f} kept"
            for side, (k, kept) in sides.items()
            if None not in (k, kept)
        }
        if not known:
            return ""
        said = "; ".join(
            f"{known[side]} {side}" if side in known else f"K is not known {side}: that side has no steps"
            for side in sides
        )
        other = len(known) == 2 and self.places_before != self.places_after
        return f"A step, on average: {said}.{' Scores on other K are not alike.' if other else ''}"

    @property
    def nothing_read(self) -> str:
        """The sentence about runs without any passage for the model, and metrics that leave these out; "" for none."""
        before, after = self.empty_before, self.empty_after
        if not (before.count or after.count):
            return ""
        said = (
            f"No passage reached the model in {before.count:,} of {before.runs:,} runs before and in "
            f"{after.count:,} of {after.runs:,} after."
        )
        by_numbers: dict[tuple[int, int], list[str]] = defaultdict(list)
        for change in self.changes:
            numbers = before.unscored.get(change.metric, 0), after.unscored.get(change.metric, 0)
            if change.level != "passage" and any(numbers):
                by_numbers[numbers].append(change.metric)
        for (first, second), metrics in by_numbers.items():
            said += (
                f" Of these, {first:,} before and {second:,} after have no score of {', '.join(sorted(metrics))}: "
                f"the differences above do not count them."
            )
        return said

    def resting_on(self, metric: str) -> str:
        """Returns the sentence about a metric that was compared on fewer questions than the two sides have; "" where it
        was compared on all."""
        found = [change for change in self.changes if change.metric == metric]
        every = self.paired + self.only_before + self.only_after
        if not found or found[0].questions == every:
            return ""
        why = [
            f"{count:,} {reason}"
            for count, reason in (
                (self.paired - found[0].questions, "lack a score on one side"),
                (self.only_before, "are on the side before only"),
                (self.only_after, "are on the side after only"),
            )
            if count
        ]
        return (
            f"{metric} was compared on {found[0].questions:,} of the {every:,} questions: of the others, "
            f"{', '.join(why)}."
        )

    def as_dict(self) -> dict[str, Any]:
        """Returns plain data for JSON, with None for what is infinite or nan, which JSON cannot hold."""
        data = asdict(self) | {"verdict": asdict(self.verdict)}
        for change in data["changes"]:
            for name in ("effect", "low", "high"):
                change[name] = change[name] if math.isfinite(change[name]) else None
        return data


def compare(
    before: Questions, after: Questions, draws: int = 9999, seed: int = 0, most: int = 5
) -> Comparison:
    """Pairs the questions of two sides, metric by metric; names the `most` questions that changed most.

    A difference within numerical tolerance, a millionth of the larger value or of 1, is none. Up to 14 questions all
    patterns of signs are tried, beyond that `draws` random ones.
    """
    for name, value, least in (("draws", draws, 99), ("seed", seed, 0), ("most", most, 0)):
        whole_number(name, value, least)
    for name, given in (("before", before), ("after", after)):
        if not isinstance(given, Questions):
            raise InvalidInput(name, given, "what `read_questions(PATH)` returns")
    for side, questions_there in (("first", before), ("second", after)):
        if not questions_there.asked:
            raise InvalidInput(
                f"the {side} side",
                "no runs",
                "scored runs; make some with `ragguard score RUNS.jsonl --store new.db`",
            )
    shared = before.asked.keys() & after.asked.keys()
    if not shared:
        raise InvalidInput(
            "the two sides", f"{len(before.asked)} and {len(after.asked)} questions",
            "at least one question in common; they are paired by their normalised text",
        )  # fmt: skip
    both = sorted(before.values.keys() & after.values.keys())
    named = titles(before.values.keys() | after.values.keys())
    if not both:
        raise InvalidInput(
            "the two sides", f"{_named(before)} and {_named(after)}",
            "at least one metric in common; score both with the same scorers: `ragguard score RUNS.jsonl --scorers …`",
        )  # fmt: skip
    missing = sorted({named[series] for series in before.values.keys() ^ after.values.keys()})
    compared: list[tuple[Series, dict[str, float], Floats]] = []
    moves: dict[str, list[tuple[float, Move]]] = defaultdict(list)
    for series in both:
        questions = sorted(before.values[series].keys() & after.values[series].keys())
        if not questions:
            missing.append(named[series])
            continue
        a = np.array([before.values[series][question] for question in questions])
        b = np.array([after.values[series][question] for question in questions])
        gap = _gap(a, b)
        compared.append((series, dict(zip(questions, gap.tolist(), strict=True)), a))
        spread = float(np.abs(gap).mean()) or 1.0
        for i in np.flatnonzero(gap):
            move = Move(named[series], float(a[i]), float(b[i]))
            moves[questions[i]].append((abs(float(gap[i])) / spread, move))
    changes = _changes(compared, named, draws, seed)
    signs = {change.metric: _SIGNS.get(change.direction, 0) for change in _decisive(changes)}
    fell: dict[str, list[tuple[float, Move]]] = defaultdict(list)
    for question, some in moves.items():
        for size, move in some:
            if (move.after - move.before) * signs.get(move.metric, 0) < 0:
                fell[question].append((size, move))
    return Comparison(
        changes,
        _most_moved(moves, after.asked, most),
        _most_moved(fell, after.asked, len(fell)),
        moved_in_all=len(moves),
        paired=len(shared),
        only_before=len(before.asked) - len(shared),
        only_after=len(after.asked) - len(shared),
        missing=missing,
        passages_before=before.passages,
        passages_after=after.passages,
        places_before=before.places,
        places_after=after.places,
        failures_before=before.failures,
        failures_after=after.failures,
        judged_otherwise={
            named[series]: sorted(before.origins[series] ^ after.origins[series])
            for series in both
            if before.origins[series] != after.origins[series]
        },
        empty_before=_empty(before, named),
        empty_after=_empty(after, named),
        remarks=list(dict.fromkeys((*before.remarks, *after.remarks))),
        draws=draws,
    )


def _decisive(changes: list[Change]) -> list[Change]:
    return [change for change in changes if change.primary] or changes


def _empty(side: Questions, named: Mapping[Series, str]) -> EmptyRuns:
    lacking = {named[series]: side.empty - side.empty_scored[series] for series in side.values}
    return EmptyRuns(side.empty, side.runs, {title: count for title, count in lacking.items() if count})


def _named(side: Questions) -> str:
    return ", ".join(sorted({series.title for series in side.values})) or "no scores"


def _most_moved(
    moves: Mapping[str, list[tuple[float, Move]]], asked: Mapping[str, str], most: int
) -> list[MovedQuestion]:
    ranked = sorted(moves, key=lambda question: (-max(size for size, _ in moves[question]), question))
    return [
        MovedQuestion(
            asked[question],
            [move for _, move in sorted(moves[question], key=lambda one: (-one[0], one[1].metric))],
        )
        for question in ranked[:most]
    ]


def _gap(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns after − before, and 0 where the difference is within numerical tolerance."""
    gap: np.ndarray[Any, Any] = b - a
    gap[np.abs(gap) <= TOLERANCE * np.maximum(1.0, np.maximum(np.abs(a), np.abs(b)))] = 0.0
    return gap


def _changes(
    compared: Sequence[tuple[Series, Mapping[str, float], Floats]],
    named: Mapping[Series, str],
    draws: int,
    seed: int,
) -> list[Change]:
    """Returns the changes of all metrics, tested by sign flips of their questions' differences: the primary ones among
    themselves, the others among all."""
    everywhere = sorted({question for _, gaps, _ in compared for question in gaps})
    table = [np.array([gaps.get(question, math.nan) for question in everywhere]) for _, gaps, _ in compared]
    draws = min(draws, MOST_DRAWS)
    tested = sign_flips(table, draws=draws, seed=seed)
    primary = primary_of(series for series, *_ in compared)
    rows = [row for row, (series, *_) in enumerate(compared) if series in primary]
    for row, alone in zip(
        rows, sign_flips([table[row] for row in rows], draws=draws, seed=seed), strict=True
    ):
        tested[row] = alone
    return [
        _change(named[series], series, a, np.array(list(gaps.values())), found, primary=series in primary)
        for (series, gaps, a), found in zip(compared, tested, strict=True)
    ]


def _change(title: str, series: Series, a: Floats, gap: Floats, found: FlipTest, *, primary: bool) -> Change:
    mean = found.value
    if abs(mean) <= TOLERANCE * max(1.0, float(np.abs(a).mean())):
        mean = 0.0
    spread = float(gap.std(ddof=1)) if len(gap) > 1 else 0.0
    effect = mean / spread if spread > 1e-12 else math.copysign(math.inf, mean) if mean else 0.0
    known = METRICS.get(series.name)
    change = Change(
        title, series.level, len(gap), float(a.mean()), after=float((a + gap).mean()), difference=mean,
        low=found.low, high=found.high, p=found.p, p_corrected=found.p_adjusted, effect=effect, verdict="",
        direction="neither" if known is None else known.direction, primary=primary,
    )  # fmt: skip
    return replace(change, verdict=_verdict(change))


def _verdict(change: Change) -> str:
    if change.difference == 0:
        return NOT_DECISIVE
    if change.p_corrected > SIGNIFICANT:
        return TOO_FEW if least_p(change.questions) > SIGNIFICANT else NOT_DECISIVE
    if change.direction == "neither":
        return "changed"
    return "better" if (change.difference > 0) == (change.direction == "higher") else "worse"

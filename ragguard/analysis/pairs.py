"""Pairs the scored runs of two sides by their questions, and compares them metric by metric: by how much each changed,
and whether that is more than noise."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ragguard.analysis.cause_tables import SIGNIFICANT, cause_changes
from ragguard.analysis.comparison import LEAST_MOVE, PRIMARY, Change, Comparison, Move, MovedQuestion
from ragguard.errors import InvalidInput
from ragguard.metrics.arrays import Floats
from ragguard.metrics.mean_differences import mean_tests
from ragguard.metrics.registry import METRICS
from ragguard.scorers.answer_words import AnswerWords
from ragguard.storage.source import read_means
from ragguard.storage.sqlite.score_rows import RunMeans, Series, titles
from ragguard.text.language import normalise

_SIGNS = {"higher": 1, "lower": -1}
PRIMARY_SHARE = 0.8
"""The share of the level that the primary metrics have together; the others have the rest."""
DRAWS_A_LOOK = 200
"""The least number of random draws a look, so that a level shared among many looks can be reached."""
TOLERANCE = 1e-6
"""Differences up to this, absolute or relative to the values, are rounding and count as none."""


@dataclass(slots=True)
class Questions:
    """A side of a comparison: the means of each question, by the normalised question, and facts about its scores."""

    asked: dict[str, str] = field(default_factory=dict)
    """Each question as it was asked."""
    values: dict[Series, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    """The mean over runs of the mean over steps or passages, by series and question."""
    origins: dict[Series, set[str]] = field(default_factory=lambda: defaultdict(set))
    """The engines, prompts and settings that scored each series."""
    steps: Counter[str] = field(default_factory=Counter)
    places: Counter[str] = field(default_factory=Counter)
    """The sum of K over all steps, by question; metrics such as UDCG and RA-nWG are computed on K."""
    causes: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """The causes of the judged runs of each question."""
    failures: int = 0
    remarks: list[str] = field(default_factory=list)
    """The facts that a reader of the numbers has to know, such as runs that are missing."""

    def k(self, questions: Iterable[str]) -> float | None:
        """Returns the mean number of places per step of some questions; None where no steps are known, as in a score
        file."""
        chosen = list(questions)
        steps = sum(self.steps[one] for one in chosen)
        return sum(self.places[one] for one in chosen) / steps if steps else None


def read_questions(path: str | Path, span: range | None = None) -> Questions:
    """Returns one side of a comparison: the questions of a store or a span of its runs, a folder of parts or a score
    file."""
    remarks: list[str] = []
    found = questions_of(read_means(path, remarks, span))
    found.remarks = remarks
    return found


def questions_of(runs: Iterable[RunMeans]) -> Questions:
    """Returns the means of each question over its runs; iterates over `runs` once."""
    found = Questions()
    again: dict[Series, Counter[str]] = defaultdict(Counter)
    for run in runs:
        question = normalise(run.question)
        if not question:
            continue
        found.asked.setdefault(question, run.question)
        found.failures += run.failures
        if run.cause and run.steps_known:
            found.causes[question][run.cause] += 1
        if run.steps:
            found.steps[question] += run.steps
            found.places[question] += run.places
        for series, mean in run.means.items():
            known = found.values[series]
            if question in known:
                known[question] += mean
                again[series][question] += 1
            else:
                known[question] = mean
            found.origins[series].add(run.origins[series])
    for series, times in again.items():
        for question, more in times.items():
            found.values[series][question] /= 1 + more
    return found


def compare(
    before: Questions, after: Questions, *, looks: int = 1, draws: int = 9999, seed: int = 0
) -> Comparison:
    """Pairs the questions of two sides, metric by metric, and names the questions that fell.

    With `looks`, the comparison is one of so many that share the 5 %, such as the runs of a daily gate.

    A difference within numerical tolerance, a millionth of the larger value or of 1, is none. Metrics that count places
    are compared only on questions with the same K on both sides.
    """
    shared = sorted(before.asked.keys() & after.asked.keys())
    if not shared:
        raise InvalidInput(
            "the two sides", f"{len(before.asked)} and {len(after.asked)} questions",
            "scored runs (`ragguard score RUNS.jsonl --store new.db`) of at least one question in common, by its "
            "normalised text",
        )  # fmt: skip
    both = sorted(before.values.keys() & after.values.keys())
    if not both:
        had = (
            ", ".join(sorted({one.title for one in side.values})) or "no scores" for side in (before, after)
        )
        raise InvalidInput(
            "the two sides", " and ".join(had),
            "at least one metric in common; score both with the same scorers: `ragguard score RUNS.jsonl --scorers …`",
        )  # fmt: skip
    named = titles(before.values.keys() | after.values.keys())
    a, b = (
        np.array([[side.values[series].get(one, math.nan) for one in shared] for series in both])
        for side in (before, after)
    )
    gone = before.asked.keys() - after.asked.keys()
    lost = (~np.isnan(a) & np.isnan(b)).sum(axis=1)
    lost += [len(gone & before.values[series].keys()) for series in both]
    other_k = np.array([_other_k(before, after, question) for question in shared])
    by_places = np.array([getattr(METRICS.get(series.name), "by_places", False) for series in both])
    counting = np.flatnonzero(by_places & (~np.isnan(a + b) & other_k).any(axis=1))
    a[np.outer(by_places, other_k)] = math.nan
    known = ~np.isnan(a + b)
    rows, columns = np.flatnonzero(known.any(axis=1)), np.flatnonzero(known.any(axis=0))
    compared, a, b = [both[row] for row in rows], a[np.ix_(rows, columns)], b[np.ix_(rows, columns)]
    gap = b - a
    gap[np.abs(gap) <= TOLERANCE * np.maximum(1.0, np.maximum(np.abs(a), np.abs(b)))] = 0.0
    changes = _changes(
        compared, [named[series] for series in compared], a, gap, lost[rows].tolist(), looks, draws, seed
    )
    asked = [after.asked[shared[column]] for column in columns]
    fell, rose = _moved(changes, asked, a, b, gap)
    return Comparison(
        changes,
        fell,
        identical=bool(compared) and not np.nan_to_num(gap).any(),
        paired=len(shared),
        only_before=len(before.asked) - len(shared),
        only_after=len(after.asked) - len(shared),
        looks=looks,
        refused=sorted({named[both[row]] for row in counting} - {named[series] for series in compared}),
        notes=[
            *_on_other_k(before, after, shared, int(other_k.sum()), [named[both[row]] for row in counting]),
            *_notes(before, after, shared, named, named.keys() - set(both)),
            *_on_undecided_answers(before, after, shared),
        ],
        causes=cause_changes(before.causes, after.causes, shared),
        rose=rose,
    )


def _other_k(before: Questions, after: Questions, question: str) -> bool:
    """Returns whether both sides know the number of places of a question, and it differs."""
    was, now = before.k([question]), after.k([question])
    return None not in (was, now) and was != now


def _on_other_k(
    before: Questions, after: Questions, shared: Sequence[str], questions: int, metrics: Sequence[str]
) -> list[str]:
    """Returns the sentence about the questions with another K on each side, on which metrics that count places are not
    compared."""
    if not questions or not metrics:
        return []
    return [
        f"K is {before.k(shared):.1f} before and {after.k(shared):.1f} after: on {questions:,} of {len(shared):,} "
        f"questions with another K these are not compared: {', '.join(sorted(metrics))}."
    ]


def _on_undecided_answers(before: Questions, after: Questions, shared: Sequence[str]) -> list[str]:
    """Returns the sentence about answers that words leave open, if they were asked of no judge."""
    for series in before.values.keys() & after.values.keys():
        sides = [side.values[series] for side in (before, after)]
        compared = sum(all(question in side for side in sides) for question in shared)
        origins = before.origins[series] | after.origins[series]
        by_words = all(f", {AnswerWords.name} " in origin for origin in origins)
        if series.name == "answer_correct" and by_words and compared < len(shared):
            return [
                f"answer_correct is compared on {compared:,} of {len(shared):,} questions: words do not decide "
                "the others, or these have no short reference; `ragguard score … --scorers coverage` asks a judge."
            ]
    return []


def _notes(
    before: Questions,
    after: Questions,
    shared: Sequence[str],
    named: Mapping[Series, str],
    one_sided: Collection[Series],
) -> list[str]:
    """Returns the sentences that a reader of the numbers has to know of two sides that have some questions in
    common, and some series on one side only."""
    found = []
    alone = [len(side.asked) - len(shared) for side in (before, after)]
    if any(alone):
        found.append(f"Left out: {alone[0]} questions only before, {alone[1]} only after.")
    if one_sided:
        found.append(f"On one side only: {', '.join(sorted({named[one] for one in one_sided}))}.")
    if before.failures or after.failures:
        found.append(f"Scores that failed: {before.failures} before, {after.failures} after.")
    otherwise = {
        named[series]: sorted(before.origins[series] ^ after.origins[series])
        for series in sorted(before.values.keys() & after.values.keys())
        if before.origins[series] != after.origins[series]
    }
    if otherwise:
        first, origins = next(iter(otherwise.items()))
        found.append(
            "Not scored alike on both sides, so that a difference may be the judge's: "
            f"{', '.join(otherwise)}. {first}: {'; '.join(origins)}."
        )
    return [*found, *(f"{remark}." for remark in dict.fromkeys((*before.remarks, *after.remarks)))]


def _moved(
    changes: Sequence[Change], asked: Sequence[str], a: Floats, b: Floats, gap: Floats
) -> tuple[list[MovedQuestion], list[MovedQuestion]]:
    """Returns the questions that fell by `LEAST_MOVE` or more in a decisive metric, with all of their moves, and those
    that rose so in one and fell in none, the largest move first."""
    fell: set[int] = set()
    moves: dict[int, list[tuple[float, Move]]] = defaultdict(list)
    any_primary = any(change.primary for change in changes)
    for row, change in enumerate(changes):
        sign = _SIGNS.get(change.direction, 0)
        if (any_primary and not change.primary) or not sign:
            continue
        size = np.abs(gap[row]) / (float(np.nanmean(np.abs(gap[row]))) or 1.0)
        for at in np.flatnonzero(np.abs(gap[row]) >= LEAST_MOVE - TOLERANCE).tolist():
            better = bool(gap[row, at] * sign > 0)
            moves[at].append((
                -float(size[at]), Move(change.metric, float(a[row, at]), float(b[row, at]), better=better)
            ))  # fmt: skip
            if not better:
                fell.add(at)
    for some in moves.values():
        some.sort(key=lambda one: (one[0], one[1].metric))
    ranked = sorted(moves, key=lambda at: (moves[at][0][0], at))
    moved = {at: MovedQuestion(asked[at], [move for _, move in moves[at]]) for at in ranked}
    return [moved[at] for at in ranked if at in fell], [moved[at] for at in ranked if at not in fell]


def _changes(
    compared: Sequence[Series],
    named: Sequence[str],
    a: Floats,
    gap: Floats,
    lost: Sequence[int],
    looks: int,
    draws: int,
    seed: int,
) -> list[Change]:
    """Returns the changes of all metrics, tested together: the primary ones share most of the level."""
    gold = {one.name: row for row, one in enumerate(compared) if not one.support and one.stage == "passages"}
    # Of each group the first that was compared.
    primary = {
        row for group in PRIMARY if (row := next((gold[name] for name in group if name in gold), -1)) >= 0
    }
    others = len(compared) - len(primary)
    of_primary = PRIMARY_SHARE if others else 1.0
    weights = [
        of_primary / len(primary) if row in primary else (1 - of_primary * bool(primary)) / others
        for row in range(len(compared))
    ]
    tested = mean_tests(
        list(gap), weights, level=SIGNIFICANT / looks, draws=max(draws, DRAWS_A_LOOK * looks), seed=seed
    )
    changes = []
    for row, (series, found) in enumerate(zip(compared, tested, strict=True)):
        known = ~np.isnan(gap[row])
        base, gaps = a[row][known], gap[row][known]
        mean = found.value if abs(found.value) > TOLERANCE * max(1.0, float(np.abs(base).mean())) else 0.0
        spread = float(gaps.std(ddof=1)) if len(gaps) > 1 else 0.0
        metric = METRICS.get(series.name)
        widest = metric.range[1] - metric.range[0] if metric is not None else math.inf
        changes.append(Change(
            named[row], series.level, len(gaps), float(base.mean()), after=float((base + gaps).mean()),
            difference=mean, low=max(found.low, -widest), high=min(found.high, widest), p=found.p,
            p_corrected=min(1.0, found.p_adjusted * looks),
            effect=mean / spread if spread > 1e-12 else math.copysign(math.inf, mean) if mean else 0.0,
            direction="neither" if metric is None else metric.direction, primary=row in primary, lost=lost[row],
        ))  # fmt: skip
    return changes

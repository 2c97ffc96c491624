"""Pairs the scored runs of two sides by their questions, and compares them metric by metric: by how much each changed,
and whether that is more than noise."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ragguard.analysis.comparison import (
    NOT_DECISIVE,
    SIGNIFICANT,
    TOO_FEW,
    Change,
    Comparison,
    Move,
    MovedQuestion,
    decisive_of,
    primary_of,
)
from ragguard.errors import InvalidInput
from ragguard.metrics.agreement import FlipTest, least_p, sign_flips
from ragguard.metrics.arrays import MOST_DRAWS, Floats
from ragguard.metrics.registry import METRICS
from ragguard.runtime.arguments import whole_number
from ragguard.storage.source import read_means
from ragguard.storage.sqlite.score_rows import RunMeans, Series, titles
from ragguard.text.language import normalise

_SIGNS = {"higher": 1, "lower": -1}
TOLERANCE = 1e-6
"""Differences up to this, absolute or relative to the values, are rounding and count as none."""


@dataclass(slots=True)
class Questions:
    """A side of a comparison: the means of each question, and facts about its scores."""

    values: dict[Series, dict[str, float]] = field(default_factory=dict)
    """The mean over runs of the mean over steps or passages, by series and question."""
    asked: dict[str, str] = field(default_factory=dict)
    """The question as it was asked, by the normalised question."""
    origins: dict[Series, set[str]] = field(default_factory=lambda: defaultdict(set))
    """The engines, prompts and settings that scored each series."""
    k: float | None = None
    """The mean number of places in the prompt per step; metrics such as UDCG and RA-nWG are computed on it. None where
    no steps are known, as in a score file."""
    failures: int = 0
    remarks: list[str] = field(default_factory=list)
    """The facts that a reader of the numbers has to know, such as runs that are missing."""


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
    values: dict[Series, dict[str, float]] = defaultdict(dict)
    again: dict[Series, Counter[str]] = defaultdict(Counter)
    steps = places = 0
    for run in runs:
        question = normalise(run.question)
        if not question:
            continue
        found.asked.setdefault(question, run.question)
        found.failures += run.failures
        steps += run.steps
        places += run.places
        for series, mean in run.means.items():
            if question in values[series]:
                values[series][question] += mean
                again[series][question] += 1
            else:
                values[series][question] = mean
            found.origins[series].add(run.origins[series])
    for series, times in again.items():
        for question, more in times.items():
            values[series][question] /= 1 + more
    found.values = dict(values)
    if steps:
        found.k = places / steps
    return found


def compare(before: Questions, after: Questions, draws: int = 9999, seed: int = 0) -> Comparison:
    """Pairs the questions of two sides, metric by metric, and names the questions that fell.

    A difference within numerical tolerance, a millionth of the larger value or of 1, is none. Up to 14 questions all
    patterns of signs are tried, beyond that `draws` random ones.
    """
    whole_number("draws", draws, 99)
    whole_number("seed", seed, 0)
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
    signs = {change.metric: _SIGNS.get(change.direction, 0) for change in decisive_of(changes)}
    fell: dict[str, list[tuple[float, Move]]] = defaultdict(list)
    for question, some in moves.items():
        for size, move in some:
            # As far as the three digits that are shown can tell.
            if (round(move.after, 3) - round(move.before, 3)) * signs.get(move.metric, 0) < 0:
                fell[question].append((size, move))
    return Comparison(
        changes,
        _worst_first(fell, after.asked),
        identical=not moves,
        paired=len(shared),
        only_before=len(before.asked) - len(shared),
        only_after=len(after.asked) - len(shared),
        missing=missing,
        k_before=before.k,
        k_after=after.k,
        failures_before=before.failures,
        failures_after=after.failures,
        judged_otherwise={
            named[series]: sorted(before.origins[series] ^ after.origins[series])
            for series in both
            if before.origins[series] != after.origins[series]
        },
        remarks=list(dict.fromkeys((*before.remarks, *after.remarks))),
        draws=draws,
    )


def _named(side: Questions) -> str:
    return ", ".join(sorted({series.title for series in side.values})) or "no scores"


def _worst_first(
    moves: Mapping[str, list[tuple[float, Move]]], asked: Mapping[str, str]
) -> list[MovedQuestion]:
    ranked = sorted(moves, key=lambda question: (-max(size for size, _ in moves[question]), question))
    return [
        MovedQuestion(
            asked[question],
            [move for _, move in sorted(moves[question], key=lambda one: (-one[0], one[1].metric))],
        )
        for question in ranked
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

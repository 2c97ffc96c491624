"""Says of two compared sides which one is better, in a sentence that rests on four primary metrics."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

from ragguard.metrics.agreement import least_p
from ragguard.storage.sqlite.score_rows import Series

SIGNIFICANT = 0.05
PRIMARY = (
    ("answer_correct",),
    ("delta_seper_total", "delta_seper", "delta_likelihood_total", "delta_likelihood"),
    ("udcg_context", "udcg"),
    ("coverage_total", "coverage"),
)
"""The metrics that decide. Of each group the first one counts that both sides have: that of the run before that of its
steps, and belief before likelihood."""
POWER = 0.8
"""The chance with which as many questions as are asked for show the difference, if it stays as large as it is."""
_WORTH_ASKING = 10
"""A difference that would need more than this many times the questions is called too small."""
Word = Literal["better", "worse", "mixed", "changed", "undecided", "identical"]


@dataclass(frozen=True, slots=True)
class Change:
    """The change of one metric over the questions that both sides have."""

    metric: str
    level: str
    questions: int
    before: float
    after: float
    difference: float
    """The difference after − before, as the mean over questions."""
    low: float
    high: float
    """The 95 % interval of the difference: what the sign flips of the questions' differences do not reject; nan
    where so few questions bound nothing."""
    p: float
    p_corrected: float
    """p for several metrics together: the chance that any of them without a difference looks so different. A primary
    metric is corrected among the primary ones, another one among all."""
    effect: float
    """The difference divided by its standard deviation over questions (Cohen's d of pairs)."""
    verdict: str
    """The verdict: better, worse, changed (where neither direction is better), not decisive, or too few questions
    (there is a difference, and with so few questions even the clearest would not be called one)."""
    direction: str = "neither"
    """The better direction: higher, lower or neither."""
    primary: bool = False
    """True for the metrics on which the comparison's verdict rests."""

    @property
    def shown(self) -> str:
        """The difference as text, with its interval where there is one."""
        return f"{self.difference:+z.3f}{interval_text(self.low, self.high)}"


@dataclass(frozen=True, slots=True)
class ComparisonVerdict:
    """The verdict on two sides: a word, and a sentence that says what it rests on."""

    word: Word
    sentence: str


def interval_text(low: float, high: float) -> str:
    """Returns a 95 % interval as it stands behind a difference; empty where too few questions give none."""
    return f" ({low:+z.3f} … {high:+z.3f})" if math.isfinite(low) else ""


def primary_of(compared: Iterable[Series]) -> set[Series]:
    """Returns the series that decide: of gold, and of what the model got; empty where none of them was compared."""
    named = {series.name: series for series in compared if not series.support and series.stage == "passages"}
    firsts = (next((named[name] for name in group if name in named), None) for group in PRIMARY)
    return {series for series in firsts if series is not None}


def judge(changes: Sequence[Change], *, identical: bool, paired: int, metrics: int) -> ComparisonVerdict:
    """Returns the verdict by these changes, which are corrected among themselves.

    Args:
        changes: The changes of the metrics that decide.
        identical: True where no question changed in any metric.
        paired: The number of questions that both sides have.
        metrics: The number of all metrics that were compared.
    """
    if identical:
        scores = "score" if metrics == 1 else f"{metrics} scores"
        return ComparisonVerdict(
            "identical", f"Identical: {_questions(paired)} with the same {scores} on both sides."
        )
    by_word = {
        word: [change for change in changes if change.verdict == word]
        for word in ("better", "worse", "changed")
    }
    words = [word for word, found in by_word.items() if found]
    if not words:
        return ComparisonVerdict("undecided", _undecided(changes, paired))
    if len(words) == 1:
        word: Word = "better" if words == ["better"] else "worse" if words == ["worse"] else "changed"
        return ComparisonVerdict(
            word, f"{word.capitalize()} on {_questions(paired)}: {_named(by_word[word])}."
        )
    said = "; ".join(
        f"{word} in {', '.join(f'{one.metric} {one.difference:+z.3f}' for one in by_word[word])}"
        for word in words
    )
    return ComparisonVerdict("mixed", f"Mixed on {_questions(paired)}: {said}.")


def questions_needed(change: Change, metrics: int) -> int | None:
    """Returns about how many questions would show a difference among so many metrics, if it stays as large as it is;
    None where there is none."""
    if not change.difference:
        return None
    least = next(count for count in range(2, 100) if least_p(count) <= SIGNIFICANT)
    if math.isinf(change.effect):
        return least
    normal = NormalDist()
    z = normal.inv_cdf(1 - SIGNIFICANT / (2 * metrics)) + normal.inv_cdf(POWER)
    return max(least, math.ceil((z / change.effect) ** 2) + 1)


def _undecided(changes: Sequence[Change], paired: int) -> str:
    """Returns the sentence about sides that no metric tells apart, and how many more questions might."""
    asked = [
        (needed - change.questions, change)
        for change in changes
        # One question has no spread.
        if change.questions > 1 and (needed := questions_needed(change, len(changes))) is not None
    ]
    said = f"Undecided on {_questions(paired)}: no difference is measurable."
    if not asked:
        return said
    more, change = min(asked, key=lambda item: item[0])
    if more > _WORTH_ASKING * change.questions:
        return f"{said} The clearest, {_named([change])}, is too small for so few questions."
    if more <= 0:
        return f"{said} A few more questions may show that of {_named([change])}."
    return f"{said} About {more:,} more questions would be enough, if {_named([change])} holds."


def _named(changes: Sequence[Change]) -> str:
    """Lists metrics with their differences; if there is only one, with its interval."""
    if len(changes) == 1:
        return f"{changes[0].metric} {changes[0].shown}"
    return ", ".join(f"{change.metric} {change.difference:+z.3f}" for change in changes)


def _questions(count: int) -> str:
    return "1 question" if count == 1 else f"{count:,} questions"

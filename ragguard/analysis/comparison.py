"""The result of comparing two sets of runs: what changed, which side is better, and what that rests on, in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from statistics import NormalDist
from typing import Any, Literal

from ragguard.metrics.agreement import least_p
from ragguard.storage.sqlite.score_rows import Series

NOT_DECISIVE = "not decisive"
TOO_FEW = "too few questions"
UNDECIDED = NOT_DECISIVE, TOO_FEW
"""The verdicts that call nothing different."""
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
    decided: tuple[Word, ...] = ("better", "worse", "changed")
    of_word = {word: [change for change in changes if change.verdict == word] for word in decided}
    of_word = {word: some for word, some in of_word.items() if some}
    if not of_word:
        return ComparisonVerdict("undecided", _undecided(changes, paired))
    if len(of_word) == 1:
        ((word, some),) = of_word.items()
        return ComparisonVerdict(word, f"{word.capitalize()} on {_questions(paired)}: {_named(some)}.")
    said = "; ".join(f"{word} in {_listed(some)}" for word, some in of_word.items())
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
    return f"{changes[0].metric} {changes[0].shown}" if len(changes) == 1 else _listed(changes)


def _listed(changes: Sequence[Change]) -> str:
    return ", ".join(f"{change.metric} {change.difference:+z.3f}" for change in changes)


def _questions(count: int) -> str:
    return "1 question" if count == 1 else f"{count:,} questions"


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
class Comparison:
    """The result of comparing two sets of runs."""

    changes: list[Change]
    fell: list[MovedQuestion]
    """The questions that became worse in a metric on which the verdict rests, also where its mean did not; first that
    with the largest change in mean sizes of the metric's changes."""
    identical: bool
    """True where no question changed in any metric."""
    paired: int
    only_before: int
    only_after: int
    missing: list[str]
    """Metrics that one side lacks."""
    k_before: float | None
    """K, the number of places in the prompt of a step, on average; scores that are computed on K shift with it. None
    where no steps are known, as of a score file."""
    k_after: float | None
    failures_before: int
    failures_after: int
    """Scores that could not be given."""
    judged_otherwise: dict[str, list[str]]
    """Metrics whose scores differ in engine, prompts or settings between the sides, with what made them."""
    remarks: list[str] = field(default_factory=list)
    """The facts that a reader of the numbers has to know of either side, such as runs that are missing."""
    draws: int = 0
    """How many random patterns of signs were tried, where there were too many questions to try all."""

    @property
    def decisive(self) -> list[Change]:
        """The changes on which the verdict rests: of the primary metrics, or of all where none of these was
        compared."""
        return decisive_of(self.changes)

    @property
    def verdict(self) -> ComparisonVerdict:
        """The verdict on the two sides."""
        return judge(self.decisive, identical=self.identical, paired=self.paired, metrics=len(self.changes))

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
        """The sentence about K where the sides differ in it; "" where they do not, or it is not known."""
        if None in (self.k_before, self.k_after) or self.k_before == self.k_after:
            return ""
        return (
            f"K is {self.k_before:.1f} before and {self.k_after:.1f} after: scores on other K are not alike."
        )

    def resting_on(self, metric: str) -> str:
        """Returns the sentence about a metric that was compared on fewer questions than the two sides have; "" where it
        was compared on all."""
        compared = next((change.questions for change in self.changes if change.metric == metric), 0)
        every = self.paired + self.only_before + self.only_after
        if compared in (0, every):
            return ""
        return f"{metric} was compared on {compared:,} of the {every:,} questions: the others lack it on one side."

    def as_dict(self) -> dict[str, Any]:
        """Returns plain data for JSON, with None for what is infinite or nan, which JSON cannot hold."""
        data = asdict(self) | {"verdict": asdict(self.verdict)}
        for change in data["changes"]:
            for name in ("effect", "low", "high"):
                change[name] = change[name] if math.isfinite(change[name]) else None
        return data


def decisive_of(changes: list[Change]) -> list[Change]:
    return [change for change in changes if change.primary] or changes

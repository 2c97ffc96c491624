"""The result of comparing two sets of runs, in words: what changed, which side is better, and from what data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import NormalDist
from typing import Any, Literal

from ragguard.analysis.cause_tables import SIGNIFICANT, CauseChange, clear_causes
from ragguard.metrics.mean_differences import least_p
from ragguard.text.plain import counted

NOT_DECISIVE = "not decisive"
TOO_FEW = "too few questions"
UNDECIDED = NOT_DECISIVE, TOO_FEW
"""The verdicts that call nothing different."""
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
LEAST_MOVE = 0.02
"""The least difference of one question that counts as a fall or a rise: smaller ones come and go with rounding and
sampling."""
Word = Literal["better", "worse", "mixed", "changed", "undecided", "identical"]
_DECIDED: tuple[Word, ...] = ("better", "worse", "changed")


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
    """The 95 % interval of the difference; nan if so few questions bound nothing."""
    p: float
    p_corrected: float
    """p for all metrics together: the chance that any of them looks so different without a difference. The primary
    metrics have four fifths of the 5 %."""
    effect: float
    """The difference divided by its standard deviation over questions (Cohen's d of pairs)."""
    direction: str = "neither"
    """The better direction: higher, lower or neither."""
    primary: bool = False
    """True for the metrics on which the comparison's verdict rests."""
    lost: int = 0
    """The number of questions that have a value before and none after, or that were not asked after."""

    @property
    def verdict(self) -> str:
        """The verdict: better, worse, changed (where neither direction is better), not decisive, or too few questions
        (there is a difference, and with so few questions even the clearest would not be called one)."""
        if self.difference == 0:
            return NOT_DECISIVE
        if self.p_corrected > SIGNIFICANT:
            return TOO_FEW if least_p(self.questions) > SIGNIFICANT else NOT_DECISIVE
        if self.direction == "neither":
            return "changed"
        return "better" if (self.difference > 0) == (self.direction == "higher") else "worse"

    @property
    def shown(self) -> str:
        """The difference as text, with its interval where there is one."""
        return f"{self.difference:+z.3f}{interval_text(self.low, self.high)}"


@dataclass(frozen=True, slots=True)
class ComparisonVerdict:
    """The verdict on two sides: a word, and a sentence that says what it rests on."""

    word: Word
    sentence: str


_PLAIN = {"delta_seper": "belief", "seper": "belief", "udcg": "list quality"}


def plain_name(metric: str) -> str:
    """Returns the plain name of a metric that few people know; "" for others."""
    return next((plain for name, plain in _PLAIN.items() if metric.startswith(name)), "")


def named_plainly(metric: str) -> str:
    """Returns a metric's name as a sentence has it: behind its plain name, if it has one."""
    plain = plain_name(metric)
    return f"{plain} ({metric})" if plain else metric


def interval_text(low: float, high: float) -> str:
    """Returns a 95 % interval as it stands behind a difference; empty where too few questions give none."""
    return f" ({low:+z.3f} … {high:+z.3f})" if math.isfinite(low) else ""


def questions_needed(change: Change, metrics: int) -> int | None:
    """Returns about how many questions would show a difference among so many metrics, if it stays as large as it is;
    None where there is none."""
    if not change.difference:
        return None
    least = next(count for count in range(2, 100) if least_p(count) <= SIGNIFICANT)
    normal = NormalDist()
    z = normal.inv_cdf(1 - SIGNIFICANT / (2 * metrics)) + normal.inv_cdf(POWER)
    return max(least, math.ceil((z / change.effect) ** 2) + 1)


def _more_questions(changes: Sequence[Change]) -> str:
    """Returns the sentence about how many more questions might tell the sides apart; "" where nothing differs."""
    asked = [
        (max(2, needed - change.questions), change)
        for change in changes
        # One question has no spread.
        if change.questions > 1 and (needed := questions_needed(change, len(changes))) is not None
    ]
    if not asked:
        return ""
    more, change = min(asked, key=lambda item: item[0])
    named = f"{named_plainly(change.metric)} {change.shown}"
    if more > _WORTH_ASKING * change.questions:
        return f" The clearest, {named}, is too small for so few questions."
    return f" About {more:,} more questions would be enough, if {named} holds."


def _listed(changes: Sequence[Change]) -> str:
    return ", ".join(f"{named_plainly(change.metric)} {change.difference:+z.3f}" for change in changes)


@dataclass(frozen=True, slots=True)
class Move:
    """The values of one metric for one question, before and after."""

    metric: str
    before: float
    after: float
    better: bool


@dataclass(frozen=True, slots=True)
class MovedQuestion:
    """A question that changed, with the metrics in which it did, the largest change first."""

    question: str
    moves: list[Move]

    @property
    def shown(self) -> str:
        """The moves as text."""
        return ", ".join(f"{move.metric} {move.before:.3f} → {move.after:.3f}" for move in self.moves)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of comparing two sets of runs."""

    changes: list[Change]
    fell: list[MovedQuestion]
    """The questions that became worse by `LEAST_MOVE` or more in a metric on which the verdict rests, also if its mean
    did not, with the metrics in which they became better; first that with the largest change in mean sizes of the
    metric's changes."""
    identical: bool
    """True where no question changed in any metric."""
    paired: int
    only_before: int
    only_after: int
    looks: int = 1
    """The number of comparisons that share the 5 %."""
    refused: list[str] = field(default_factory=list)
    """The metrics that were not compared, since K differs in every question."""
    notes: list[str] = field(default_factory=list)
    """The sentences that a reader of the numbers has to know of either side, such as what was not compared."""
    causes: list[CauseChange] = field(default_factory=list)
    """The causes of the answers before and after, over the questions that were judged on both sides."""
    rose: list[MovedQuestion] = field(default_factory=list)
    """The questions that became better in a metric on which the verdict rests and worse in none, ordered as those that
    fell."""

    @property
    def decisive(self) -> list[Change]:
        """The changes on which the verdict rests: of the primary metrics, or of all where none of these was
        compared."""
        return [change for change in self.changes if change.primary] or self.changes

    @property
    def verdict(self) -> ComparisonVerdict:
        """The verdict on the two sides."""
        on, lost = self._counted()
        if self.identical and not lost:
            scores = "score" if len(self.changes) == 1 else f"{len(self.changes)} scores"
            return ComparisonVerdict("identical", f"Identical: {on} with the same {scores} on both sides.")
        if not self.changes:
            return ComparisonVerdict(
                "undecided", f"Undecided: K differs, so that no metric can be compared over {on}."
            )
        decided = {word: [one for one in self.decisive if one.verdict == word] for word in _DECIDED}
        of_word = {word: some for word, some in decided.items() if some}
        if not of_word:
            more = _more_questions(self.decisive)
            return ComparisonVerdict(
                "undecided", f"Undecided: no difference is measurable over {on}{lost}.{more}"
            )
        moved = f"{on}{lost}. {len(self.rose):,} rose, {len(self.fell):,} fell."
        if len(of_word) == 1:
            ((word, some),) = of_word.items()
            said = f"{named_plainly(some[0].metric)} {some[0].shown}" if len(some) == 1 else _listed(some)
            return ComparisonVerdict(word, f"{word.capitalize()}: {said}, over {moved}")
        said = "; ".join(f"{word} in {_listed(some)}" for word, some in of_word.items())
        return ComparisonVerdict("mixed", f"Mixed: {said}, over {moved}")

    def _counted(self) -> tuple[str, str]:
        """Returns the number of questions that the verdict rests on, in words, and what could not be scored after."""
        counts = [change.questions for change in self.decisive] or [self.paired]
        least, most = min(counts), max(counts)
        every = self.paired + self.only_before
        on = "1 question" if every == 1 else f"{every:,} questions"
        if least < every:
            on = f"{least:,}{f' to {most:,}' if least < most else ''} of {on}"
        lost = max((change.lost for change in self.decisive), default=0)
        return on, f"; {lost:,} have no score on the new side" if lost else ""

    @property
    def about_fell(self) -> str:
        """How many questions fell, and what counts as a fall."""
        both = sum(any(move.better for move in one.moves) for one in self.fell)
        also = f", {both:,} of them rose in another number" if both else ""
        return (
            f"{len(self.fell):,} of {counted(self.paired, 'question')} fell by {LEAST_MOVE:g} or more{also}"
        )

    @property
    def about_right(self) -> str:
        """The sentence about answer_correct and the share of right answers if only one of them differs; "" for none."""
        mean = next((one for one in self.changes if one.metric.partition(".")[0] == "answer_correct"), None)
        is_clear = "right" in clear_causes(self.causes)
        if mean is None or (mean.verdict not in UNDECIDED) == is_clear:
            return ""
        share = "differs" if is_clear else "does not"
        return (
            f" The mean answer_correct is called {mean.verdict}, and the share of right answers {share}: each has a "
            "test of its own, corrected for its own table. The verdict on the two sides follows the mean."
        )

    @property
    def about_p(self) -> str:
        """The sentence about what p means."""
        number, first = len(self.changes), sum(change.primary for change in self.changes)
        together = "for one metric" if number == 1 else f"for all {number} metrics together"
        if 0 < first < number:
            together += f", of which the {first} that decide have four fifths of the 5 %"
        several = f" This is one of {self.looks} looks that share these 5 %." if self.looks > 1 else ""
        return (
            "p is the larger one of two tests, sign flips and a bootstrap of the questions' differences, "
            f"{together}: if nothing differs, any row is called different in at most one of {1 / SIGNIFICANT:.0f} "
            f"comparisons.{several}"
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
        for change, plain in zip(self.changes, data["changes"], strict=True):
            plain["verdict"] = change.verdict
            for name in ("effect", "low", "high"):
                plain[name] = plain[name] if math.isfinite(plain[name]) else None
        return data

"""Compares two sides, holds the result to bounds such as `udcg < -0.02`, and writes it as Markdown: what
`ragguard compare` and the pytest fixture do."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args

from ragguard.analysis.comparison import UNDECIDED, Change, Comparison, MovedQuestion, interval_text
from ragguard.analysis.labels.corrected import CorrectedChanges, corrected_changes
from ragguard.analysis.labels.label_file import read_label_file
from ragguard.analysis.pairs import Questions, compare, read_questions
from ragguard.analysis.validation.tables import Table
from ragguard.analysis.wording import question_line
from ragguard.errors import InvalidInput, UnknownName
from ragguard.records import Level
from ragguard.scorers.exam.record import failed_behind
from ragguard.storage.sqlite import baselines
from ragguard.storage.sqlite.database import is_store

_CONDITION = re.compile(r"^\s*([\w.]+)\s*(<=|>=|<|>)\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*$")
_OPERATORS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
T = TypeVar("T")
_LEVELS = get_args(Level)
"""The endings by which `titles` tells series of one name apart."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A bound on a metric's difference, such as `udcg < -0.02`."""

    metric: str
    sign: str
    bound: float

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Returns the condition that a text such as `udcg < -0.02` states."""
        match = _CONDITION.match(text) if isinstance(text, str) else None
        if match is None:
            raise InvalidInput("--fail-if", text, "METRIC <, <=, > or >= NUMBER, such as 'udcg < -0.02'")
        return cls(match[1], match[2], float(match[3]))

    def holds_for(self, difference: float) -> bool:
        """Returns whether a difference satisfies the bound."""
        return bool(_OPERATORS[self.sign](difference, self.bound))

    def among(self, compared: Mapping[str, T], why: str) -> tuple[str, T]:
        """Returns the name and the difference that the condition is about; raises UnknownName where there is none of
        its name, and where the name stands for several that `titles` tells apart by their levels."""
        names = [self.metric, *(f"{self.metric}.{level}" for level in _LEVELS)]
        meant = [name for name in names if name in compared][: 1 if self.metric in compared else None]
        if len(meant) != 1:
            allowed = f"one of {', '.join(sorted(meant or compared)) or 'none'}: {why}"
            raise UnknownName("--fail-if", self.metric, allowed)
        return meant[0], compared[meant[0]]

    def of(self, comparison: Comparison) -> Change:
        """Returns the change of a comparison that the condition is about."""
        compared = {change.metric: change for change in comparison.changes}
        return self.among(compared, "metrics that both sides have; score both with the same scorers")[1]

    def __str__(self) -> str:
        return f"{self.metric} {self.sign} {self.bound:g}"


@dataclass(frozen=True, slots=True)
class CheckedCondition:
    """A condition, and the difference to which it was held."""

    condition: Condition
    metric: str
    """The metric's name in the table."""
    difference: float
    low: float
    high: float

    @property
    def passed(self) -> bool:
        """True where the difference does not satisfy the bound."""
        return not self.condition.holds_for(self.difference)

    def __str__(self) -> str:
        verdict = f"passed: {self.condition} does not hold" if self.passed else f"FAILED: {self.condition}"
        return f"{verdict}; the difference is {self.difference:+.4g}{interval_text(self.low, self.high)}"

    def as_dict(self) -> dict[str, Any]:
        """Returns plain data for JSON."""
        ends = {} if math.isfinite(self.low) else {"low": None, "high": None}
        return asdict(self) | ends | {"condition": str(self.condition), "passed": self.passed}


_DECISIVE = dict.fromkeys(UNDECIDED, "not decisive")
_ALIKE = 0.5
"""The share of passages that both sides saw, under which other documents are suspected."""


@dataclass(frozen=True, slots=True)
class GateCheck:
    """A comparison, and the bounds on it that hold."""

    found: Comparison
    changes: CorrectedChanges | None
    """The means that labels of people correct; None without labels."""
    gates: list[CheckedCondition]
    """The bounds, each with the difference to which it was held."""
    thin: list[str]
    """The facts on which the bounds rest that a reader has to know."""
    documents: str = ""
    """The sentence about the passages that a baseline and the other side saw; "" without a baseline."""
    on_corrected: bool = False
    """True where the bounds are on the differences that labels correct."""

    @property
    def broken(self) -> list[Condition]:
        """The bounds that hold, so that the check fails."""
        return [gate.condition for gate in self.gates if not gate.passed]

    @property
    def decisive(self) -> list[Change]:
        """The changes that decide: those on which the verdict rests, and those that a bound is about."""
        gated = set() if self.on_corrected else {gate.metric for gate in self.gates}
        first = self.found.decisive
        return [*first, *(one for one in self.found.changes if one.metric in gated and one not in first)]

    def as_dict(self) -> dict[str, Any]:
        """Returns plain data for JSON."""
        more = {
            "gates": [gate.as_dict() for gate in self.gates],
            "failed": list(map(str, self.broken)),
            "fail_if_remarks": self.thin,
            "documents": self.documents,
        }
        corrected = {} if self.changes is None else {"corrected": self.changes.as_dict()}
        return self.found.as_dict() | more | corrected


def check(
    before: str | Path,
    after: str | Path | None,
    fail_if: str | Sequence[str] = (),
    *,
    baseline: str | None = None,
    labels: str | Path | None = None,
    corrected: bool = False,
    trust_failed: bool = False,
) -> GateCheck:
    """Compares two stores, folders of parts or score files, and holds the differences to bounds.

    Args:
        before: The first side.
        after: The second side; with a baseline None, which is the runs of the first side since its last baseline.
        fail_if: Bounds on differences, such as `udcg < -0.02`.
        baseline: The baseline of the first side that is compared; None: all of its runs.
        labels: A file of labels of people, of both sides.
        corrected: True: the bounds are on the differences that the labels correct.
        trust_failed: True: bounds may rest on numbers of a model that failed its examination in them.
    """
    wanted = [fail_if] if isinstance(fail_if, str) else fail_if
    if not isinstance(wanted, list | tuple):
        raise InvalidInput("fail_if", wanted, "a condition such as 'udcg < -0.02', or a list of them")
    conditions = list(map(Condition.parse, wanted))
    if corrected and (labels is None or not conditions):
        raise InvalidInput("--corrected", True, "--labels FILE and --fail-if beside it, which it is about")
    people = None if labels is None else read_label_file(labels, models=True)
    spans: tuple[range | None, range | None] = (None, None)
    said, doubts = "", list[str]()
    if baseline is not None:
        after, spans, said, doubts = _against(before, baseline, after)
    elif after is None:
        raise InvalidInput("AFTER", None, "a second side, or --baseline NAME")
    sides = read_questions(before, spans[0]), read_questions(after, spans[1])
    found = compare(*sides)
    changes = None
    if people is not None:
        changes = corrected_changes((before, spans[0]), (after, spans[1]), people)
    gates: list[CheckedCondition] = []
    if changes is not None and corrected:
        for one in conditions:
            name, gap = one.among(changes.differences, "metrics that the labels correct on both sides")
            gates.append(CheckedCondition(one, name, gap.value, low=gap.low, high=gap.high))
        return GateCheck(
            found, changes, gates, [*changes.remarks, *doubts], documents=said, on_corrected=True
        )
    for one in conditions:
        change = one.of(found)
        if not trust_failed:
            _refuse_failed(one, change.metric.partition(".")[0], sides)
        gates.append(
            CheckedCondition(one, change.metric, change.difference, low=change.low, high=change.high)
        )
    thin = [found.resting_on(metric) for metric in dict.fromkeys(gate.metric for gate in gates)]
    return GateCheck(found, changes, gates, [*filter(None, thin), *doubts], documents=said)


def _against(
    store: str | Path, name: str, after: str | Path | None
) -> tuple[str | Path, tuple[range, range | None], str, list[str]]:
    """Returns the second side, the spans of both, a sentence about their passages, and what makes the comparison
    doubtful; raises InvalidInput where they have no passage in common."""
    known = baselines.baseline(store, name)
    there = baselines.count_runs(store, known.span)
    if not there:
        raise InvalidInput(f"the baseline {name}", "no run: all were deleted", "one with runs; set it again")
    gone = f"{known.runs - there:,} of the {known.runs:,} runs of the baseline {name} were deleted since"
    doubts = [gone] if there < known.runs else []
    span = None if after is not None else baselines.runs_since(store)
    after = store if after is None else after
    said = f"The baseline {name} is of {known.at}: {known.runs:,} runs, documents {known.documents}."
    if not is_store(after):
        return after, (known.span, span), said, doubts
    seen, now = baselines.documents(store, known.span), baselines.documents(after, span)
    both = len(seen & now)
    if seen and now and not both:
        raise InvalidInput(
            f"the baseline {name}", "other documents: the sides have no passage in common",
            "runs over the same documents; set the baseline anew, or compare two stores without --baseline",
        )  # fmt: skip
    said += f" The other side saw {len(now):,} passages (documents {baselines.fingerprint(now)}), {both:,} of them too."
    if both < _ALIKE * min(len(seen), len(now)):
        doubts.append(
            f"the baseline {name} saw {len(seen):,} passages, of which the other side saw {both:,}: a difference may "
            "be that of the documents"
        )
    return after, (known.span, span), said, doubts


def _refuse_failed(condition: Condition, metric: str, sides: Sequence[Questions]) -> None:
    """Refuses a condition on numbers of a model that failed its examination in what they rest on."""
    series = [some for side in sides for one, some in side.origins.items() if one.name == metric]
    if remark := failed_behind(metric, set().union(*series)):
        allowed = f"metrics that their model can judge ({remark}); or --trust-failed"
        raise InvalidInput("--fail-if", str(condition), allowed)


MOST = 20
"""The most questions that are listed."""


def comment_of(checked: GateCheck) -> str:
    """Returns the verdict, the metrics on which it and the bounds rest, each bound with its difference, what labels
    correct, and the questions that fell."""
    found = checked.found
    rows = tuple(
        (one.metric, one.questions, one.before, one.after, one.shown, _DECISIVE.get(one.verdict, one.verdict))
        for one in checked.decisive
    )
    columns = ("metric", "questions", "before", "after", "difference (95 %)", "verdict")
    notes = filter(None, (found.left_out, checked.documents, *checked.thin, *found.remarks))
    table = Table("changes", found.verdict.sentence, columns, rows, notes=tuple(notes)).markdown()
    parts = [table]
    if checked.gates:
        parts.append("".join(f"- {gate if gate.passed else f'**{gate}**'}\n" for gate in checked.gates))
    if checked.changes is not None:
        corrected = tuple((name, one.shown, one.verdict) for name, one in checked.changes.differences.items())
        titles, remarks = ("metric", "difference (95 %)", "verdict"), tuple(checked.changes.remarks)
        parts.append(
            Table("corrected", "Corrected by labels of people", titles, corrected, notes=remarks).markdown()
        )
    if found.fell:
        more = len(found.fell) - MOST
        lines = [*map(_line, found.fell[:MOST]), *([f"- … and {more:,} more"] if more > 0 else [])]
        parts.append(f"<details><summary>{len(found.fell):,} of {found.paired:,} questions fell</summary>\n")
        parts.append("\n".join(lines) + "\n\n</details>\n")
    return "\n".join(parts)


def _line(item: MovedQuestion) -> str:
    """Returns a question as code, in which no markup and no @name means anything, and how far it fell."""
    moves = ", ".join(f"{move.metric} {move.before:.3f} → {move.after:.3f}" for move in item.moves)
    return f"- `{question_line(item.question).replace('`', chr(39))}`: {moves}"

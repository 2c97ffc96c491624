"""Compares two sides, holds the result to bounds such as `udcg < -0.02`, and puts it into tables: what `ragguard
compare` and the pytest fixture do."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, get_args

from ragguard.analysis.cause_tables import CAUSE_NAMES, change_table
from ragguard.analysis.comparison import TOO_FEW, UNDECIDED, Change, Comparison, interval_text
from ragguard.analysis.pairs import Questions, compare, read_questions
from ragguard.analysis.tables import Table
from ragguard.analysis.wording import question_line
from ragguard.errors import InvalidInput, UnknownName, did_you_mean
from ragguard.metrics.registry import shown_rank
from ragguard.records import Level
from ragguard.runtime.arguments import number_between, whole_number
from ragguard.scorers.exam.record import failed_behind
from ragguard.storage.sqlite import baselines
from ragguard.storage.sqlite.database import is_store

_CONDITION = re.compile(
    r"^\s*([\w.]+)\s*(<=|>=|<|>)\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(strict)?\s*$"
)
_OPERATORS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_ARROWS = {"higher": " ↑", "lower": " ↓"}
_ALIKE = 0.5
"""The share of passages that both sides saw, under which other documents are suspected."""
MOST_LOOKS = 1000
MOST = 20
"""The most questions that a comment lists."""


def _order(change: Change) -> tuple[int, bool, float]:
    """Returns the key of a change in a table: what words decide, then the metrics that a verdict rests on."""
    return shown_rank(change.metric.partition(".")[0]), not change.primary, change.p_corrected


@dataclass(frozen=True, slots=True)
class CheckedCondition:
    """A condition, and the difference to which it was held."""

    condition: str
    metric: str
    """The metric's name in the table."""
    difference: float
    low: float
    high: float
    passed: bool
    """True if the condition does not hold, or only by chance, and no question is missing."""
    by_chance: bool = False
    """True if the difference is beyond the bound and its interval leaves room for none."""
    lost: int = 0
    """The number of questions without a value on the new side, for which the check fails."""

    def __str__(self) -> str:
        said = f"; the difference is {self.difference:+.4g}{interval_text(self.low, self.high)}"
        if self.lost:
            missing = (
                f"{self.lost:,} {'question has' if self.lost == 1 else 'questions have'} no {self.metric}"
            )
            return f"FAILED: {missing} on the new side (--allow-unscored accepts it); {self.condition}{said}"
        if self.by_chance:
            return f"passed: {self.condition} may hold by chance{said}; '{self.condition} strict' would fail"
        return f"{f'passed: {self.condition} does not hold' if self.passed else f'FAILED: {self.condition}'}{said}"

    def as_dict(self) -> dict[str, Any]:
        """Returns plain data for JSON."""
        return asdict(self) | ({} if math.isfinite(self.low) else {"low": None, "high": None})


class Condition(NamedTuple):
    """A bound on the difference of a metric, such as `udcg < -0.02`."""

    metric: str
    sign: str
    bound: float
    strict: bool = False
    """True: the difference alone decides, also if it may be chance."""

    def __str__(self) -> str:
        return f"{self.metric} {self.sign} {self.bound:g}{' strict' if self.strict else ''}"


def parsed(condition: object) -> Condition:
    """Returns a condition such as `udcg < -0.02` or `udcg < -0.02 strict`."""
    match = _CONDITION.match(condition) if isinstance(condition, str) else None
    if match is None:
        raise InvalidInput(
            "--fail-if", condition, "METRIC <, <=, > or >= NUMBER, such as 'udcg < -0.02'; 'strict' behind it"
        )
    return Condition(match[1], match[2], float(match[3]), strict=match[4] is not None)


def hold(
    condition: Condition,
    compared: Mapping[str, tuple[float, float, float]],
    why: str,
    lost: Mapping[str, int] = {},
) -> CheckedCondition:
    """Holds a condition to the difference, with the ends of its interval, that it is about.

    The condition holds if the difference is beyond the bound and, unless the bound asks for more than no difference or
    is strict, the interval leaves no room for none. Raises UnknownName if no difference has this name, or several do
    that are told apart by their levels.

    Args:
        condition: The condition.
        compared: The differences by metric.
        why: Which metrics there are, for the error.
        lost: The number of questions without a value on the new side, by metric.
    """
    metric, sign, bound, strict = condition
    levels = [name for level in get_args(Level) if (name := f"{metric}.{level}") in compared]
    meant = [metric] if metric in compared else levels
    if len(meant) != 1:
        near = "" if meant else did_you_mean(metric, compared)
        allowed = f"{near or 'one of '}{', '.join(sorted(meant or compared)) or 'none'}: {why}"
        raise UnknownName("--fail-if", metric, allowed)
    difference, low, high = compared[meant[0]]
    beyond, none = (_OPERATORS[sign](value, bound) for value in (difference, 0.0))
    chance = beyond and not none and not strict and not (low > 0 or high < 0)
    missing = lost.get(meant[0], 0)
    passed = (not beyond or chance) and not missing
    return CheckedCondition(
        str(condition),
        meant[0],
        difference,
        low=low,
        high=high,
        passed=passed,
        by_chance=chance,
        lost=missing,
    )


class CorrectedMeans(Protocol):
    """The means of both sides that labels of people correct."""

    @property
    def differences(self) -> Mapping[str, tuple[float, float, float]]:
        """The difference of each corrected metric with the ends of its interval."""
        ...

    def table(self) -> Table:
        """Returns the means as a table."""
        ...

    def as_dict(self) -> dict[str, Any]:
        """Returns the means as plain data for JSON."""
        ...


Side = tuple[str | Path, range | None]
"""A store, folder of parts or score file, and the `seq` of its runs; None for all."""
Correct = Callable[[Sequence[Side]], CorrectedMeans]


@dataclass(frozen=True, slots=True)
class GateCheck:
    """A comparison, and the bounds to which it was held."""

    found: Comparison
    changes: CorrectedMeans | None
    """The means that labels of people correct; None without labels."""
    gates: list[CheckedCondition]
    thin: list[str]
    """The facts on which the bounds rest that a reader has to know."""
    documents: str = ""
    """The sentence about the passages that a baseline and the other side saw; "" without a baseline."""

    @property
    def broken(self) -> list[str]:
        """The bounds that hold, so that the check fails."""
        return [gate.condition for gate in self.gates if not gate.passed]

    def tables(self, *, every: bool = False) -> list[Table]:
        """Returns the verdict over the metrics on which it and the bounds rest, or over all, and what labels correct,
        with what a reader has to know of each."""
        found, gated = self.found, {gate.metric for gate in self.gates}
        shown = [one for one in found.changes if every or one in found.decisive or one.metric in gated]
        if found.identical and not every and not gated:
            shown = []
        notes = [note for note in (self.documents, found.about_p if shown else "", *found.notes) if note]
        if shown and (others := [one for one in found.changes if one not in shown]):
            differ = [one.metric for one in others if one.verdict not in UNDECIDED]
            which = f", of which these differ: {', '.join(differ)}" if differ else ""
            notes.append(f"More metrics: {len(others)}{which}; --all shows them.")
        if any(change.verdict == TOO_FEW for change in shown):
            notes.append(
                f"{TOO_FEW.capitalize()}: with so few questions and so many metrics, even a change of every question "
                "in one direction could be chance. That is not the same as no difference."
            )
        columns = ("metric", "difference (95 %)", "verdict", "p", "before", "after", "effect", "questions")
        rows = tuple(
            (f"{one.metric}{_ARROWS.get(one.direction, '')}", one.shown, one.verdict, one.p_corrected, one.before,
             one.after, one.effect, one.questions)
            for one in sorted(shown, key=_order)
        )  # fmt: skip
        tables = [Table("changes", found.verdict.sentence, columns, rows, notes=tuple(notes))]
        if found.causes and (every or any(one.came or one.went for one in found.causes)):
            tables.append(change_table(found.causes, found.about_right))
        return tables if self.changes is None else [*tables, self.changes.table()]

    def comment(self) -> str:
        """Returns all of it as Markdown: the tables, each bound with its difference, and the questions that fell."""
        parts = [table.markdown() for table in self.tables()]
        gates = [f"- {gate if gate.passed else f'**{gate}**'}\n" for gate in self.gates]
        parts += ["".join([*gates, *(f"- {said}\n" for said in self.thin)])] if gates or self.thin else []
        if fell := self.found.fell:
            # As code, in which no markup and no @name means anything.
            lines = [
                f"- `{question_line(one.question).replace('`', chr(39))}`: {one.shown}" for one in fell[:MOST]
            ]
            lines += [f"- … and {len(fell) - MOST:,} more"] if len(fell) > MOST else []
            parts.append(f"<details><summary>{self.found.about_fell}</summary>\n")
            parts.append("\n".join(lines) + "\n\n</details>\n")
        return "\n".join(parts)

    def as_dict(self) -> dict[str, Any]:
        """Returns plain data for JSON."""
        more = {
            "gates": [gate.as_dict() for gate in self.gates], "failed": self.broken, "fail_if_remarks": self.thin,
            "documents": self.documents,
        }  # fmt: skip
        corrected = {} if self.changes is None else {"corrected": self.changes.as_dict()}
        return self.found.as_dict() | more | corrected


def check(
    before: str | Path,
    after: str | Path | None,
    fail_if: str | Sequence[str] = (),
    *,
    baseline: str | None = None,
    correct: Correct | None = None,
    corrected: bool = False,
    trust_failed: bool = False,
    allow_unscored: bool = False,
    looks: int = 1,
) -> GateCheck:
    """Compares two stores, folders of parts or score files, and holds the differences to bounds.

    Args:
        before: The first side.
        after: The second side; with a baseline None, which is the runs of the first side since its last baseline.
        fail_if: Bounds on differences, such as `udcg < -0.02`.
        baseline: The baseline of the first side that is compared; None: all of its runs.
        correct: Corrects the means of both sides by labels of people, such as `corrected_by` of a label file.
        corrected: True: the bounds are on the differences that the labels correct.
        trust_failed: True: bounds may rest on numbers of a model that failed its examination in them.
        allow_unscored: True: questions without a value on the new side do not fail the check.
        looks: The number of checks that share the 5 % of false alarms, such as 30 of a daily gate.
    """
    number_between("--looks", whole_number("--looks", looks, 1), 1, MOST_LOOKS, f"1 to {MOST_LOOKS:,}")
    conditions = list(map(parsed, [fail_if] if isinstance(fail_if, str) else fail_if))
    if corrected and (correct is None or not conditions):
        raise InvalidInput("--corrected", True, "--labels FILE and --fail-if beside it, which it is about")
    spans: tuple[range | None, range | None] = (None, None)
    said, doubts = "", list[str]()
    if baseline is not None:
        after, spans, said, doubts = _against(before, baseline, after)
    elif after is None:
        raise InvalidInput("AFTER", None, "a second side, or --baseline NAME")
    chosen = (before, spans[0]), (after, spans[1])
    sides = read_questions(*chosen[0]), read_questions(*chosen[1])
    found = compare(*sides, looks=looks)
    changes = None if correct is None else correct(chosen)
    gaps: Mapping[str, tuple[float, float, float]] = {
        **{one.name: (one.difference, one.low, one.high) for one in found.causes},
        **{one.metric: (one.difference, one.low, one.high) for one in found.changes},
    }
    why = "metrics that both sides have; score both with the same scorers"
    if corrected and changes is not None:
        gaps, why = changes.differences, "metrics that the labels correct on both sides"
    for condition in conditions:
        if condition.metric in found.refused and not corrected:
            allowed = "a metric that does not count places: K differs in every question; or score both sides on one K"
            raise InvalidInput("--fail-if", str(condition), allowed)
        if condition.metric in CAUSE_NAMES and condition.metric not in gaps:
            allowed = (
                "a metric: a cause counts runs whose answers were judged on both sides, and there are none; give "
                f"references, or score with them (causes: {', '.join(CAUSE_NAMES)})"
            )
            raise InvalidInput("--fail-if", str(condition), allowed)
    lost = {} if allow_unscored or corrected else {change.metric: change.lost for change in found.changes}
    gates = [hold(condition, gaps, why, lost) for condition in conditions]
    if not corrected:
        if not trust_failed:
            _refuse_failed(gates, sides)
        thin = [found.resting_on(metric) for metric in dict.fromkeys(gate.metric for gate in gates)]
        doubts = [*filter(None, thin), *doubts]
        doubts += [
            f"{gate.condition} cannot fail on so few questions: their interval has no ends; 'strict' behind it "
            "decides only by the difference"
            for gate in gates if gate.by_chance and math.isnan(gate.low)
        ]  # fmt: skip
    if conditions and baseline is not None and looks == 1:
        doubts.append(
            "a check that runs again and again raises a false alarm in one of 20 runs; --looks 30 keeps 5 % over thirty"
        )
    return GateCheck(found, changes, gates, doubts, documents=said)


def _against(
    store: str | Path, name: str, after: str | Path | None
) -> tuple[str | Path, tuple[range, range | None], str, list[str]]:
    """Returns the second side, the spans of both, a sentence about their passages, and what makes the comparison
    doubtful; raises InvalidInput where they have no passage in common."""
    known = baselines.baseline(store, name)
    there = baselines.count_runs(store, known.span)
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
            "runs over the same documents; set the baseline again, or compare two stores without --baseline",
        )  # fmt: skip
    said += f" The other side saw {len(now):,} passages (documents {baselines.fingerprint(now)}), {both:,} of them too."
    if both < _ALIKE * min(len(seen), len(now)):
        doubts.append(
            f"the baseline {name} saw {len(seen):,} passages, of which the other side saw {both:,}: a difference may "
            "be that of the documents"
        )
    return after, (known.span, span), said, doubts


def _refuse_failed(gates: Sequence[CheckedCondition], sides: Sequence[Questions]) -> None:
    """Refuses conditions on numbers of a model that failed its examination in what they rest on."""
    for gate in gates:
        metric = gate.metric.partition(".")[0]
        origins = [some for side in sides for one, some in side.origins.items() if one.name == metric]
        if remark := failed_behind(metric, set().union(*origins)):
            allowed = f"metrics that their model can judge ({remark}); or --trust-failed"
            raise InvalidInput("--fail-if", gate.condition, allowed)

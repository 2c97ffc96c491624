"""Compares two sides and holds the result to bounds: what `ragguard compare` and the pytest fixture both do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragguard.analysis.comparison import Comparison, compare
from ragguard.analysis.condition import CheckedCondition, Condition
from ragguard.analysis.labels.corrected import CorrectedChanges, corrected_changes
from ragguard.analysis.labels.label_file import read_label_file
from ragguard.analysis.pairs import Questions, read_questions
from ragguard.analysis.verdict import Change
from ragguard.errors import InvalidInput
from ragguard.scorers.exam.record import failed_behind
from ragguard.storage.sqlite import baselines
from ragguard.storage.sqlite.database import is_store

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


@dataclass(frozen=True, slots=True)
class GateSettings:
    """The bounds to which two sides are held, and how these are compared."""

    fail_if: str | Sequence[str] = ()
    """Bounds on differences, such as `udcg < -0.02`."""
    baseline: str | None = None
    """The baseline of the first side that is compared; None: all of its runs."""
    labels: str | Path | None = None
    """A file of labels of people, of both sides."""
    corrected: bool = False
    """True: the bounds are on the differences that the labels correct."""
    trust_failed: bool = False
    """True: bounds may rest on numbers of a model that failed its examination in them."""
    draws: int = 9999
    seed: int = 0
    conditions: list[Condition] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        wanted = [self.fail_if] if isinstance(self.fail_if, str) else self.fail_if
        if not isinstance(wanted, list | tuple):
            raise InvalidInput("fail_if", wanted, "a condition such as 'udcg < -0.02', or a list of them")
        self.conditions.extend(map(Condition.parse, wanted))
        if self.corrected and self.labels is None:
            raise InvalidInput("--corrected", True, "--labels FILE beside it")
        if self.corrected and not self.conditions:
            raise InvalidInput("--corrected", True, "--fail-if beside it, which it is about")


def check(before: str | Path, after: str | Path | None, settings: GateSettings) -> GateCheck:
    """Compares two stores, folders of parts or score files; with a baseline the second one may be None, which is the
    runs of the first one since its last baseline."""
    labels = None if settings.labels is None else read_label_file(settings.labels, models=True)
    spans: tuple[range | None, range | None] = (None, None)
    said, doubts = "", list[str]()
    if settings.baseline is not None:
        after, spans, said, doubts = _against(before, settings.baseline, after)
    elif after is None:
        raise InvalidInput("AFTER", None, "a second side, or --baseline NAME")
    sides = read_questions(before, spans[0]), read_questions(after, spans[1])
    found = compare(*sides, settings.draws, settings.seed)
    changes = None
    if labels is not None:
        changes = corrected_changes((before, spans[0]), (after, spans[1]), labels)
    conditions = settings.conditions
    if changes is not None and settings.corrected:
        gaps = [(one, one.corrected(changes.differences)) for one in conditions]
        gates = [
            CheckedCondition(one, one.metric, gap.value, low=gap.low, high=gap.high) for one, gap in gaps
        ]
        return GateCheck(
            found, changes, gates, [*changes.remarks, *doubts], documents=said, on_corrected=True
        )
    if not settings.trust_failed:
        _refuse_failed(conditions, sides, found)
    meant = [(condition, condition.of(found)) for condition in conditions]
    gates = [
        CheckedCondition(one, gap.metric, gap.difference, low=gap.low, high=gap.high) for one, gap in meant
    ]
    thin = [
        one for metric in dict.fromkeys(gate.metric for gate in gates) if (one := found.resting_on(metric))
    ]
    return GateCheck(found, changes, gates, [*thin, *doubts], documents=said)


def _against(
    store: str | Path, name: str, after: str | Path | None
) -> tuple[str | Path, tuple[range, range | None], str, list[str]]:
    """Returns the second side, the spans of both, a sentence about their passages, and what makes the comparison
    doubtful; raises InvalidInput where they have no passage in common."""
    known = baselines.baseline(store, name)
    there = baselines.count_runs(store, known.span)
    if not there:
        raise InvalidInput(f"the baseline {name}", "no run: all were deleted", "one with runs; set it again")
    span = None if after is not None else baselines.runs_since(store)
    after = store if after is None else after
    said = f"The baseline {name} is of {known.at}: {known.runs:,} runs, documents {known.documents}."
    doubts = []
    if there < known.runs:
        doubts.append(
            f"{known.runs - there:,} of the {known.runs:,} runs of the baseline {name} were deleted since"
        )
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


def _refuse_failed(conditions: Sequence[Condition], sides: Sequence[Questions], found: Comparison) -> None:
    """Refuses conditions on numbers of a model that failed its examination in what they rest on."""
    for condition in conditions:
        metric = condition.of(found).metric.partition(".")[0]
        origins = {
            one
            for side in sides
            for series, some in side.origins.items()
            if series.name == metric
            for one in some
        }
        if remark := failed_behind(metric, origins):
            raise InvalidInput(
                "--fail-if",
                str(condition),
                f"metrics that their model can judge ({remark}); or --trust-failed",
            )

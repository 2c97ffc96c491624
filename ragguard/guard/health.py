"""Counts what guards decided, and why they kept everything where they could not judge.

A guard fails open: without these numbers and warnings, one whose engine is gone seems to find nothing to drop.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ragguard._version import __version__
from ragguard.errors import (
    BudgetExceeded,
    CircuitOpen,
    Closed,
    EngineOverloaded,
    EngineProtocolError,
    EngineRejected,
    EngineTimeout,
    EngineUnreachable,
    ProbeFailed,
    PromptTooLong,
    UnfitText,
)
from ragguard.records import Decision, Dropped, GuardStatus
from ragguard.runtime.faults import NOTICES
from ragguard.runtime.per_process import PerProcess
from ragguard.telemetry.names import METRICS

if TYPE_CHECKING:
    from opentelemetry.metrics import Counter as MetricCounter

_COUNTER = "ragguard.guard.decisions"
_CAUSES: tuple[tuple[type[BaseException], str], ...] = (
    (EngineUnreachable, "unreachable"),
    (EngineOverloaded, "overloaded"),
    (EngineTimeout, "too_slow"),
    (EngineRejected, "rejected"),
    (PromptTooLong, "prompt_too_long"),
    (UnfitText, "unfit"),
    (ProbeFailed, "examination"),
    (EngineProtocolError, "protocol"),
    (CircuitOpen, "circuit_open"),
    (BudgetExceeded, "out_of_budget"),
    (Closed, "closed"),
)
_WAYS_OUT = {
    "too_slow": "Allow more time with `budget_ms`, or give the engine fewer passages or a quicker model.",
    "queued": "More passages come in than the engine judges in time: allow more time, or guard fewer calls.",
    "out_of_budget": "Raise the engine's budget, or give the guard an engine with a budget of its own.",
    "policy": "A policy must return within the budget and must not raise.",
    "unclear": "The judge answers with something else than its labels: choose another model or prompt set.",
}


class GuardOutcome(NamedTuple):
    """The result of a guard for one list of passages, from which its decision is made."""

    status: GuardStatus
    reason: str
    cause: str = ""
    """The cause of passages that could not be judged, as a word such as `unreachable`, by which decisions count."""
    dropped: Sequence[Dropped] = ()


@dataclass(frozen=True, slots=True)
class GuardHealth:
    """The decisions of one guard since it was made, as `guard.health()` returns them."""

    decisions: int = 0
    statuses: Mapping[str, int] = field(default_factory=dict)
    """Decisions by status: pruned, kept_all, shadow, unfit, timeout, error."""
    causes: Mapping[str, int] = field(default_factory=dict)
    """Decisions in which passages could not be judged, by cause: unreachable, overloaded, too_slow, rejected,
    prompt_too_long, unfit (the engine does not know the words), examination (the model failed in what it would be
    asked), protocol, circuit_open, out_of_budget, closed, cancelled, paused (the engine missed several budgets in a row
    and is left alone), queued (too many calls at once), policy, guard_thread, unclear (the judge named no label), or
    the type of another error."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """The latest reason of each cause, in full."""
    without_text: int = 0
    """The number of passages that were kept unjudged since they have no text."""

    @property
    def ok(self) -> bool:
        """True where every decision was made with all passages judged."""
        return not self.causes


class DecisionCounts:
    """Counts the decisions of one guard, warns about those that could not judge, and adds them to OpenTelemetry."""

    def __init__(self) -> None:
        self._statuses: Counter[str] = Counter()
        self._causes: Counter[str] = Counter()
        self._reasons: dict[str, str] = {}
        self._without_text = 0

    def count(self, decision: Decision, cause: str, without_text: int = 0) -> None:
        """Counts a decision; warns, at most once a minute a cause, where there is a cause."""
        with _lock.get():
            self._statuses[decision.status] += 1
            self._without_text += without_text
            if cause:
                self._causes[cause] += 1
                self._reasons[cause] = decision.reason
        _measure(decision.status, cause)
        if cause:
            NOTICES.warn(f"guard {cause}", lambda: self._warning(cause, decision.reason))

    def snapshot(self) -> GuardHealth:
        """Returns the numbers so far."""
        with _lock.get():
            return GuardHealth(
                self._statuses.total(), dict(self._statuses), dict(self._causes), dict(self._reasons),
                without_text=self._without_text
            )  # fmt: skip

    def _warning(self, cause: str, reason: str) -> str:
        parts = [f"A guard kept passages unjudged ({cause}): {reason.rstrip('.')}.", _WAYS_OUT.get(cause, "")]
        return " ".join(part for part in [*parts, "`guard.health()` has the numbers."] if part)


def cause_of(error: BaseException) -> str:
    """Returns the word under which a decision that failed with this error is counted."""
    return next((cause for kind, cause in _CAUSES if isinstance(error, kind)), type(error).__name__)


def _measure(status: str, cause: str) -> None:
    """Adds one decision to the application's OpenTelemetry metrics, where it has set up any."""
    if not _counter and "opentelemetry.metrics" in sys.modules:  # not imported: no meter provider is set
        from opentelemetry import metrics

        _, unit, meaning = METRICS[_COUNTER]
        _counter.append(metrics.get_meter("ragguard", __version__).create_counter(_COUNTER, unit, meaning))
    for counter in _counter:
        counter.add(1, {"status": status, "cause": cause} if cause else {"status": status})


_counter: list[MetricCounter] = []


_lock = PerProcess(threading.Lock)
"""The lock of all counts, which a forked child must not share with its parent."""

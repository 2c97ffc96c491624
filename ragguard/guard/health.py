"""Counts what guards decided, and why they kept everything where they could not judge.

A guard fails open: without these numbers and warnings, one whose engine is gone seems to find nothing to drop.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ragguard.errors import UnfitText
from ragguard.records import Decision, Dropped, GuardStatus
from ragguard.runtime.faults import NOTICES, describe


class GuardOutcome(NamedTuple):
    """The result of a guard for one list of passages, from which its decision is made."""

    status: GuardStatus
    reason: str
    cause: str = ""
    """The cause of passages that could not be judged, by which decisions are counted."""
    dropped: Sequence[Dropped] = ()

    @classmethod
    def failed(cls, error: BaseException) -> GuardOutcome:
        """Returns the outcome where the judgement has failed."""
        status: GuardStatus = "unfit" if isinstance(error, UnfitText) else "error"
        return cls(status, describe(error), type(error).__name__)


@dataclass(frozen=True, slots=True)
class GuardHealth:
    """The decisions of one guard since it was made, as `guard.health()` returns them."""

    decisions: int = 0
    statuses: Mapping[str, int] = field(default_factory=dict)
    """Decisions by status: pruned, kept_all, shadow, unfit, timeout, error."""
    causes: Mapping[str, int] = field(default_factory=dict)
    """Decisions in which passages could not be judged, by cause: the type of the error (`EngineUnreachable`;
    `CircuitOpen` where the engine is left alone after several misses in a row), or `too_slow` (the engine), `queued`
    (too many calls at once), `thread` (the guard's thread was busy), `policy`, `unclear` (the judge named no label)."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """The latest reason of each cause, in full."""

    @property
    def ok(self) -> bool:
        """True where every decision was made with all passages judged."""
        return not self.causes


class DecisionCounts:
    """Counts the decisions of one guard, and warns about those that could not judge."""

    def __init__(self) -> None:
        self._statuses, self._causes = Counter[str](), Counter[str]()
        self._reasons: dict[str, str] = {}
        self._lock = threading.Lock()

    def count(self, decision: Decision, cause: str) -> None:
        """Counts a decision; warns, at most once a minute a cause, where there is a cause."""
        with self._lock:
            self._statuses[decision.status] += 1
            if cause:
                self._causes[cause] += 1
                self._reasons[cause] = decision.reason
        if cause:
            why = f"A guard kept passages unjudged ({cause}): {decision.reason.rstrip('.')}."
            NOTICES.warn(f"guard {cause}", f"{why} `guard.health()` has the numbers.")

    def snapshot(self) -> GuardHealth:
        """Returns the numbers so far."""
        with self._lock:
            return GuardHealth(
                self._statuses.total(), dict(self._statuses), dict(self._causes), reasons=dict(self._reasons)
            )

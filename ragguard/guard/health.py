"""Counts what guards decided and why they kept everything, and tests whether the promise of a calibration holds.

A guard fails open: without these numbers and warnings, one whose engine is gone seems to find nothing to drop.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ragguard.capture.handle import Thumb
from ragguard.errors import InvalidInput, UnfitText
from ragguard.metrics.conformal import LossWatch
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
class PromiseHealth:
    """The state of a calibration's promise, by labelled decisions."""

    limit: float
    """The share of gold passages that may be dropped."""
    labelled: int
    """The decisions of which `note` was told the gold passages, those in which nothing was dropped for a trial, too."""
    gold_loss: float | None
    """The mean share of gold that they dropped, or would have dropped; None without any."""
    broken: bool
    """True if so much loss would be seen with a probability of at most 1/20 if the promise held, however often it is
    looked at. Calibrate again, on recent retrievals."""


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
    promise: PromiseHealth | None = None
    """The state of the promise of the calibration in use; None without a calibration."""
    thumbs: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The thumbs (`up`, `down`) that `note` was told, of decisions that `dropped` passages and of those that `kept`
    all."""

    @property
    def ok(self) -> bool:
        """True if every decision was made with all passages judged, and no promise is broken."""
        return not self.causes and not (self.promise and self.promise.broken)


class DecisionCounts:
    """Counts the decisions of one guard, and warns about those that could not judge."""

    def __init__(self) -> None:
        self._statuses, self._causes = Counter[str](), Counter[str]()
        self._reasons: dict[str, str] = {}
        self._thumbs: dict[str, Counter[str]] = {}
        self._watch: LossWatch | None = None
        self._lock = threading.Lock()

    def promise(self, max_gold_loss: float) -> None:
        """Watches a promise from now on, in place of an earlier one."""
        with self._lock:
            self._watch = LossWatch(max_gold_loss)

    def note(self, decision: Decision, gold: Sequence[bool] | None, thumb: Thumb | None) -> None:
        """Takes what became known about a decision; warns if its promise turns out to be broken."""
        gone = decision.dropped or decision.would_drop
        given = len(decision.kept) + len(decision.dropped)
        if gold is not None and len(gold) != given:
            raise InvalidInput(
                "gold", gold, f"a flag for each of the {given} passages that were given, in their order"
            )
        if thumb not in (None, "up", "down"):
            raise InvalidInput("thumb", thumb, "'up' or 'down'")
        broken = ""
        with self._lock:
            if thumb is not None:
                self._thumbs.setdefault("dropped" if decision.dropped else "kept", Counter())[thumb] += 1
            if gold is not None and any(gold) and (watch := self._watch) is not None:
                was_broken = watch.is_broken
                watch.add(sum(bool(gold[drop.position - 1]) for drop in gone) / sum(map(bool, gold)))
                if watch.is_broken and not was_broken:
                    broken = f"{watch.total / watch.count:.1%} of gold in {watch.count} labelled decisions"
        if broken:
            NOTICES.warn(
                "guard promise",
                f"A guard drops more gold than its calibration promised: {broken}. Calibrate again, on recent "
                "retrievals.",
            )

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
            watch, promise = self._watch, None
            if watch is not None:
                loss = watch.total / watch.count if watch.count else None
                promise = PromiseHealth(
                    watch.limit, labelled=watch.count, gold_loss=loss, broken=watch.is_broken
                )
            return GuardHealth(
                decisions=self._statuses.total(),
                statuses=dict(self._statuses),
                causes=dict(self._causes),
                reasons=dict(self._reasons),
                promise=promise,
                thumbs={name: dict(counts) for name, counts in self._thumbs.items()},
            )

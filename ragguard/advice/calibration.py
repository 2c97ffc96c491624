"""Chooses the sufficiency from which on advice is to stop, by conformal risk control.

Each example is a run whose answer is known to be right or not after each of its steps: c(1), …, c(T) in [0, 1], with
the sufficiency s(1), …, s(T) at the same places. The rule with the setting λ stops at τ(λ), the first step with s > λ,
and at T where there is none. Its loss is what stopping costs beside going on to the end:

    L(λ) = max over λ' ≥ λ of max(0, c(T) − c(τ(λ')))

The maximum makes the loss fall with λ, as conformal risk control asks for, and is never less than the loss of λ itself.
The smallest λ that keeps the promise on n runs is chosen (`ragguard.metrics.conformal`); then, for a run that is
exchangeable with these, the correctness lost by stopping when advised is at most `max_loss`, in expectation or with a
confidence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np

from ragguard.errors import InvalidInput
from ragguard.metrics.conformal import ChosenThreshold, Losses, Promise
from ragguard.records import Run
from ragguard.storage.files.calibration import load_calibration, save_calibration

KIND, FORMAT = "advice", 3


@dataclass(frozen=True, slots=True)
class KnownOutcome:
    """A run, and how right its answer would have been after each of its steps."""

    run: Run
    """The run to its end: as many steps as an agent makes that nobody stops."""
    correct: Sequence[float] | None = None
    """The correctness of the answer after each turn of retrieval, from 0 (wrong) to 1 (right). None: the engine is
    asked what it would answer, and whether that means a reference of the run."""
    stages: Sequence[Run] = ()
    """The run as it was after each turn, if its question or its sub-questions changed meanwhile; else empty."""


@dataclass(frozen=True, slots=True)
class Trace:
    """The numbers of a run in a calibration: the sufficiency and the correctness of the answer after each turn."""

    sufficiency: Sequence[float]
    correct: Sequence[float]

    def __post_init__(self) -> None:
        if len(self.correct) != len(self.sufficiency):
            raise InvalidInput(
                "correct",
                len(self.correct),
                f"one number for each turn of retrieval, {len(self.sufficiency)} here",
            )
        if not all(isinstance(one, int | float) and 0 <= one <= 1 for one in self.correct):
            raise InvalidInput("correct", list(self.correct), "numbers from 0 to 1")


@dataclass(frozen=True, slots=True)
class AdviceCalibration:
    """The sufficiency from which stopping is advised, the promise that it keeps, and the models with which it was
    found."""

    threshold: float
    """The action is `answer` where the sufficiency is at least this; over 1: never."""
    max_loss: float
    """The correctness lost by stopping when advised is at most this, in expectation or with the `confidence`."""
    runs: int
    """The number of runs from which it was learnt."""
    skipped: int
    """Runs that say nothing: without a question, a step, or a known outcome."""
    loss: float
    """The mean loss on these runs themselves."""
    steps_saved: float
    """The share of their steps after which stopping is advised, so that the rest is saved."""
    engine: str
    judge: str
    entailer: str
    prompts: str
    judge_prompts: str
    confidence: float | None = None
    """The probability, over calibrations, with which the promise holds. None: it holds in expectation."""
    loss_low: float | None = None
    """The loss that 5 % of calibrations on as many runs are under, by drawing the runs again."""
    loss_high: float | None = None
    """The loss that 5 % of these are over."""
    over_limit: float | None = None
    """The share of these that lose more than `max_loss`."""

    def save(self, path: str | Path) -> None:
        """Writes the calibration as JSON."""
        save_calibration(self, path, kind=KIND, format=FORMAT)

    @classmethod
    def load(cls, path: str | Path) -> AdviceCalibration:
        """Reads a calibration that `save` wrote; raises `CalibrationError` where the file is none."""
        return load_calibration(cls, path, kind=KIND, format=FORMAT)


def check_runs(runs: int, max_loss: float, skipped: int = 0, confidence: float | None = None) -> Promise:
    """Returns the promise; raises `CalibrationError` if the runs with a known outcome are too few for it. Others were
    skipped."""
    promise = Promise(max_loss, confidence, "max_loss")
    others = f" ({skipped} without references, a question or a step were skipped)" if skipped else ""
    sure = "" if confidence is None else f", with confidence {confidence:g}"
    aim = f"lose at most {max_loss:g} of correctness by stopping{sure}"
    promise.check(runs, f"runs with a known outcome were given{others}", aim)
    return promise


def choose_threshold(traces: Sequence[Trace], promise: Promise) -> ChosenThreshold:
    """Returns the least sufficiency that keeps the promise."""
    curves = [_losses(trace) for trace in traces]
    levels = np.unique([level for curve in curves for level, _ in curve])
    # From never stopping to stopping at once: each level that a threshold is over takes a part of the loss away.
    thresholds = np.array([*np.nextafter(levels, np.inf)[::-1], 0.0])
    losses: Losses = np.zeros((len(traces), len(thresholds)))
    for row, curve in zip(losses, curves, strict=True):
        for level, drop in curve:
            row[thresholds <= level] += drop
    best = promise.boldest(losses)
    threshold = float(thresholds[best])
    steps = sum(len(trace.correct) for trace in traces)
    made = sum(stop_at(trace.sufficiency, threshold) for trace in traces)
    loss = max(0.0, float(losses[:, best].mean()))
    return ChosenThreshold(threshold, loss, 1 - made / steps, promise.spread(losses))


def stop_at(sufficiency: Sequence[float], threshold: float) -> int:
    """Returns after how many steps a run stops that answers when advised."""
    stops = (number for number, value in enumerate(sufficiency, 1) if value >= threshold)
    return next(stops, len(sufficiency))


def _losses(trace: Trace) -> list[tuple[float, float]]:
    """Returns the loss of a run as the levels of λ at which it falls, and by how much."""
    # A run can stop only where the sufficiency is more than ever before: at these places, the last one first.
    highest = [-math.inf, *accumulate(trace.sufficiency, max)]
    places = [at for at, value in enumerate(trace.sufficiency) if value > highest[at]]
    found, worst = [], 0.0
    for at in reversed(places):
        loss = max(0.0, trace.correct[-1] - trace.correct[at])
        if loss > worst:
            found.append((float(trace.sufficiency[at]), loss - worst))
            worst = loss
    return found

"""Chooses a threshold that bounds how much gold the guard drops, by conformal risk control.

The loss of an example is the share of its gold passages that a threshold would drop; it can only
grow with the threshold, so that `ragguard.metrics.conformal` has the bounds: in expectation, or with a confidence.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ragguard.errors import CalibrationError, InvalidInput
from ragguard.guard.policies import HelpThreshold, Judged, Policy, UtilityThreshold
from ragguard.metrics.conformal import ChosenThreshold, Losses, Promise
from ragguard.metrics.distraction import Relevance
from ragguard.records import Passage, RetrievalStep
from ragguard.runtime.arguments import one_of
from ragguard.scorers.grades import RELEVANT
from ragguard.storage.files.calibration import load_calibration, save_calibration

Floats = NDArray[np.float64]
FORMAT = 2
Order = Literal["help", "utility"]
"""A number that passages are ordered by: the probability that they help, or the paper's utility."""


@dataclass(frozen=True, slots=True)
class Example:
    """A labelled example: a query, the passages that were retrieved for it, and which of them are gold."""

    query: str
    """The query that the retriever was asked."""
    passages: Sequence[Passage]
    """The passages that the retriever gave, in its order."""
    gold: Sequence[bool]
    """True for each passage that helps to answer."""

    def __post_init__(self) -> None:
        if len(self.gold) != len(self.passages):
            raise InvalidInput("gold", len(self.gold), f"one flag a passage, {len(self.passages)} here")


@dataclass(frozen=True, slots=True)
class Calibration:
    """A threshold, the bound that it keeps, and the models with which it was found."""

    threshold: float
    """Passages with a lower number of their `order` are dropped."""
    max_gold_loss: float
    examples: int
    skipped: int
    """Examples without gold passages, which say nothing about a loss of gold."""
    gold_loss: float
    """The mean share of gold passages that the threshold drops from the examples themselves."""
    distractors_dropped: float
    """The mean share of all other passages that the threshold drops from the examples themselves."""
    min_keep: int
    engine: str
    judge: str
    prompts: str
    passages_kept: float
    """The mean number of passages of an example that the threshold keeps. Where that is `min_keep`, the bound had no
    effect: the best passages of each example held all the gold, and all others could be dropped."""
    order: Order = "help"
    relevance: Relevance = "probability"
    """The form of relevance in the utilities."""
    confidence: float | None = None
    """The probability, over calibrations, with which the bound holds. None: it holds in expectation."""
    gold_loss_low: float | None = None
    """The loss of gold that 5 % of calibrations on as many examples are under, by drawing the examples again."""
    gold_loss_high: float | None = None
    """The loss of gold that 5 % of these are over."""
    over_limit: float | None = None
    """The share of these that lose more than `max_gold_loss`."""

    @property
    def policy(self) -> Policy:
        """The policy that drops what is under the threshold."""
        return (HelpThreshold if self.order == "help" else UtilityThreshold)(self.threshold)

    def save(self, path: str | Path) -> None:
        """Writes the calibration as JSON."""
        save_calibration(self, path, format=FORMAT)

    @classmethod
    def load(cls, path: str | Path) -> Calibration:
        """Reads a calibration that `save` wrote; raises `CalibrationError` where the file holds none."""
        return load_calibration(cls, path, format=FORMAT)


def gold_of(passage: Passage) -> bool | None:
    """Returns whether a passage is gold, by its grade (4 or 5) or its metadata; None where neither says."""
    if passage.grade is not None:
        return passage.grade >= RELEVANT
    if "gold" in passage.metadata:
        return bool(passage.metadata["gold"])
    kind = passage.metadata.get("kind")
    return None if kind is None else kind == "gold"


def examples_of(steps: Iterable[RetrievalStep]) -> list[Example]:
    """Returns an example for each step in which every candidate is known to be gold or not."""
    found = []
    for step in steps:
        passages = step.retrieved
        flags = [gold_of(passage) for passage in passages]
        if passages and None not in flags:
            found.append(Example(step.query, passages, [bool(flag) for flag in flags]))
    return found


def check_promise(
    examples: int, max_gold_loss: float, order: str = "help", confidence: float | None = None
) -> Promise:
    """Returns the promise; raises `CalibrationError` if the examples are too few for it, `InvalidInput` for an unknown
    order, limit or confidence."""
    one_of("order", order, get_args(Order))
    promise = Promise(max_gold_loss, confidence, "max_gold_loss")
    kept = (
        "the expected gold loss" if confidence is None else f"the gold loss, with confidence {confidence:g},"
    )
    promise.check(
        examples, "examples with gold passages were given", f"keep {kept} at {max_gold_loss:g} or less"
    )
    return promise


def calibrated(
    judged: Sequence[Sequence[Judged]], gold: Sequence[Sequence[bool]], max_gold_loss: float, min_keep: int,
    order: Order = "help", relevance: Relevance = "probability", confidence: float | None = None, *, skipped: int,
    engine: str, judge: str, prompts: str,
) -> Calibration:  # fmt: skip
    """Returns the calibration that the judged passages of labelled examples give; refuses examples without a passage
    that may be dropped."""
    if gold and all(all(flags) for flags in gold):
        raise CalibrationError(
            f"all passages of the {len(gold)} examples are gold, so nothing says what to drop: give retrievals with "
            "the other candidates as well"
        )
    promise = check_promise(len(judged), max_gold_loss, order, confidence)
    values = [[item.p_helps if order == "help" else item.utility for item in row] for row in judged]
    choice = choose_threshold(values, gold, promise, min_keep, 0.0 if order == "help" else -1.0)
    low, high, over = choice.spread
    return Calibration(
        choice.threshold, max_gold_loss, len(values), skipped=skipped, gold_loss=choice.loss,
        distractors_dropped=choice.saved, min_keep=min_keep, engine=engine, judge=judge, prompts=prompts,
        passages_kept=mean_kept(values, choice.threshold, min_keep), order=order, relevance=relevance,
        confidence=confidence, gold_loss_low=low, gold_loss_high=high, over_limit=over,
    )  # fmt: skip


def choose_threshold(
    values: Sequence[Sequence[float | None]],
    gold: Sequence[Sequence[bool]],
    promise: Promise,
    min_keep: int,
    lowest: float = -1.0,
) -> ChosenThreshold:
    """Returns the threshold that keeps the promise and drops the most.

    Args:
        values: The numbers by which the passages of each example are ordered.
        gold: Which of these are gold.
        promise: The share of gold that may be lost.
        min_keep: How many passages always stay.
        lowest: A threshold that drops nothing.
    """
    falls = [_falls_at(row, min_keep) for row in values]
    marks = [np.asarray(flags, dtype=bool) for flags in gold]
    gold_falls = [fall[is_gold] for fall, is_gold in zip(falls, marks, strict=True)]
    others = np.concatenate([fall[~is_gold] for fall, is_gold in zip(falls, marks, strict=True)])
    # Of all thresholds that drop the same distractors, the lowest drops the least gold: just over the last of these
    # distractors. Passages that `min_keep` keeps are at no level, so a gap between two levels may hold all gold.
    levels = np.array([lowest, *np.nextafter(np.unique(others[others < 1.0]), np.inf)])
    losses: Losses = np.array([np.searchsorted(np.sort(fall), levels) / len(fall) for fall in gold_falls])
    best = max(0, promise.boldest(losses))
    drops = float(np.mean(others < levels[best])) if len(others) else math.nan
    return ChosenThreshold(float(levels[best]), float(losses[:, best].mean()), drops, promise.spread(losses))


def mean_kept(values: Sequence[Sequence[float | None]], threshold: float, min_keep: int) -> float:
    """Returns the mean number of passages of an example that a threshold keeps."""
    return float(np.mean([np.sum(_falls_at(row, min_keep) >= threshold) for row in values]))


def _falls_at(values: Sequence[float | None], min_keep: int) -> Floats:
    """Returns for each passage the highest threshold that keeps it; infinity where it is always kept."""
    falls = np.array([np.inf if value is None else value for value in values], dtype=np.float64)
    spare = min_keep - int(np.isinf(falls).sum())
    if spare > 0:
        best = np.argsort(-np.where(np.isinf(falls), -np.inf, falls), kind="stable")[:spare]
        falls[best] = np.inf
    return falls

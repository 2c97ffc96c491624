"""Chooses a threshold that bounds how much gold the guard drops, by conformal risk control.

The loss of an example is the share of its gold passages that a threshold would drop; it can only
grow with the threshold. On exchangeable data the largest threshold whose corrected mean loss stays
under the limit keeps the expected loss of the next example under it (`ragguard.metrics.conformal` has the bound).
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
from ragguard.metrics.conformal import keeps_bound, least_examples
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
        passages = step.candidates or step.passages
        flags = [gold_of(passage) for passage in passages]
        if passages and None not in flags:
            found.append(Example(step.query, passages, [bool(flag) for flag in flags]))
    return found


def check_promise(examples: int, max_gold_loss: float, order: str = "help") -> None:
    """Raises `CalibrationError` where the examples are too few for the bound, `InvalidInput` for an unknown order."""
    one_of("order", order, get_args(Order))
    least = least_examples("max_gold_loss", max_gold_loss)
    if examples < least:
        raise CalibrationError(
            f"{examples} examples with gold passages were given; to keep the expected gold loss at {max_gold_loss:g} "
            f"or less, at least {least} are needed: give more, or allow a larger loss"
        )


def calibrated(
    judged: Sequence[Sequence[Judged]], gold: Sequence[Sequence[bool]], max_gold_loss: float, min_keep: int,
    order: Order = "help", relevance: Relevance = "probability", *, skipped: int, engine: str, judge: str, prompts: str,
) -> Calibration:  # fmt: skip
    """Returns the calibration that the judged passages of labelled examples give; refuses examples without a passage
    that may be dropped."""
    if gold and all(all(flags) for flags in gold):
        raise CalibrationError(
            f"all passages of the {len(gold)} examples are gold, so nothing says what to drop: give retrievals with "
            "the other candidates as well"
        )
    values = [[item.p_helps if order == "help" else item.utility for item in row] for row in judged]
    lowest = 0.0 if order == "help" else -1.0
    threshold, loss, dropped = choose_threshold(values, gold, max_gold_loss, min_keep, lowest)
    return Calibration(
        threshold, max_gold_loss, len(values), skipped=skipped, gold_loss=loss, distractors_dropped=dropped,
        min_keep=min_keep, engine=engine, judge=judge, prompts=prompts,
        passages_kept=mean_kept(values, threshold, min_keep), order=order, relevance=relevance,
    )  # fmt: skip


def choose_threshold(
    values: Sequence[Sequence[float | None]],
    gold: Sequence[Sequence[bool]],
    max_gold_loss: float,
    min_keep: int,
    lowest: float = -1.0,
) -> tuple[float, float, float]:
    """Returns the threshold that keeps the bound and drops the most, the loss, and the share of distractors dropped.

    Args:
        values: The numbers by which the passages of each example are ordered.
        gold: Which of these are gold.
        max_gold_loss: The share of gold that may be lost.
        min_keep: How many passages always stay.
        lowest: A threshold that drops nothing.
    """
    n = len(values)
    check_promise(n, max_gold_loss)
    falls = [_falls_at(row, min_keep) for row in values]
    marks = [np.asarray(flags, dtype=bool) for flags in gold]
    gold_falls = [fall[is_gold] for fall, is_gold in zip(falls, marks, strict=True)]
    others = np.concatenate([fall[~is_gold] for fall, is_gold in zip(falls, marks, strict=True)])
    # Of all thresholds that drop the same distractors, the lowest drops the least gold: just over the last of these
    # distractors. Passages that `min_keep` keeps are at no level, so a gap between two levels may hold all gold.
    levels = np.array([lowest, *np.nextafter(np.unique(others[others < 1.0]), np.inf)])
    losses = np.mean([np.searchsorted(np.sort(fall), levels) / len(fall) for fall in gold_falls], axis=0)
    # The loss grows with the threshold: the first one that breaks the bound ends the search.
    broken = [at for at, loss in enumerate(losses) if not keeps_bound(loss, n, max_gold_loss)]
    best = (broken[0] if broken else len(levels)) - 1
    drops = float(np.mean(others < levels[best])) if len(others) else math.nan
    return float(levels[best]), float(losses[best]), drops


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

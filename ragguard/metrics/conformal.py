"""Conformal risk control: the arithmetic of the promises that the guard and advice make.

A rule has one setting. The loss of each example is from 0 to 1, and does not fall from one setting to the next bolder
one. On n examples that are exchangeable with the next one, two promises can be made of the boldest setting that keeps
a bound at the setting and at all safer ones:

- in expectation: (n · mean loss + 1) / (n + 1) ≤ limit keeps the expected loss of the next example at the limit or
  under it, where the expectation is over calibrations, too (Angelopoulos et al., 2022, theorem 1);
- with a confidence of 1 − δ over calibrations: a mean loss so small that a rule whose loss is the limit shows it with
  a probability of at most δ (the bound of Hoeffding and Bentkus; Bates et al., 2021, theorem 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ragguard.errors import CalibrationError, InvalidInput

_BISECTIONS = 50
_DRAWS = 400
"""The calibrations that are drawn again for a spread."""
_SURE = 20.0
"""The evidence at which a promise counts as broken: it is reached with a probability of at most 1/20 if it holds."""
_STAKES = (0.1, 0.25, 0.5, 0.9)
"""The shares of the highest possible stake against a promise; the evidence is the mean over them."""

Losses = NDArray[np.float64]
"""(examples, settings): the loss of each example at each setting, the safest setting first."""


@dataclass(frozen=True, slots=True)
class Promise:
    """A bound on the mean loss of a rule."""

    limit: float
    confidence: float | None = None
    """The probability, over calibrations, with which the bound holds. None: it holds in expectation."""
    name: str = "limit"
    """The name under which the caller knows the limit, for the error of one that cannot be right."""

    def __post_init__(self) -> None:
        given = {self.name: self.limit} | ({} if self.confidence is None else {"confidence": self.confidence})
        for name, value in given.items():
            if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1:
                raise InvalidInput(name, value, "a share in (0, 1)")

    def check(self, examples: int, kind: str, aim: str) -> None:
        """Raises CalibrationError for too few examples; `given` says what they are, `aim` what is promised."""
        if examples < self.least_examples:
            raise CalibrationError(
                f"{examples} {kind}; to {aim}, at least {self.least_examples} are needed: give more, or allow a "
                "larger loss"
            )

    @property
    def least_examples(self) -> int:
        """How many examples without any loss are needed at the least."""
        if self.confidence is None:
            return math.ceil(1 / self.limit - 1 - 1e-9)
        return math.ceil(math.log(1 - self.confidence) / math.log(1 - self.limit) - 1e-9)

    def largest_loss(self, n: int) -> float:
        """Returns the largest mean loss on n examples with which the promise may be made; negative if there is none."""
        if self.confidence is None:
            return ((n + 1) * self.limit - 1) / n
        if _p_value(0.0, n, self.limit) > 1 - self.confidence:
            return -1.0
        low, high = 0.0, self.limit
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            fits = _p_value(middle, n, self.limit) <= 1 - self.confidence
            low, high = (middle, high) if fits else (low, middle)
        return low

    def boldest(self, losses: Losses) -> int:
        """Returns the boldest setting that keeps the promise, and at which all safer ones do; −1 if there is none."""
        return int(self._kept(losses.mean(axis=0)[None], len(losses))[0])

    def spread(self, losses: Losses) -> Spread:
        """Returns how the loss varies over calibrations: examples are drawn again with replacement, a setting is chosen
        on each draw, and its loss is taken over all examples."""
        n = len(losses)
        counts = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), _DRAWS)
        chosen = self._kept(counts @ losses / n, n)
        found = np.where(chosen < 0, 0.0, losses.mean(axis=0)[chosen])
        low, high = np.percentile(found, [5, 95])
        return Spread(float(low), float(high), float((found > self.limit).mean()))

    def _kept(self, means: Losses, n: int) -> NDArray[np.intp]:
        """Returns the boldest setting of each row of mean losses; they do not fall along a row."""
        return np.asarray((means <= self.largest_loss(n) + 1e-12).sum(axis=1) - 1)


class ChosenThreshold(NamedTuple):
    """The boldest threshold that keeps a promise."""

    threshold: float
    loss: float
    """The mean loss on the examples themselves."""
    saved: float
    """The share that it saves: of distractors (nan if there are none), or of steps."""
    spread: Spread


class Spread(NamedTuple):
    """How the loss of a rule varies over calibrations of the same size."""

    low: float
    """The loss that 5 % of calibrations are under."""
    high: float
    """The loss that 5 % of calibrations are over."""
    over: float
    """The share of calibrations whose loss is over the limit."""


def _p_value(loss: float, n: int, limit: float) -> float:
    """Returns a bound on the probability that n examples show a mean loss this small, if its expectation is the limit:
    the lower one of Hoeffding's and Bentkus's."""
    entropy = (1 - loss) * math.log((1 - loss) / (1 - limit)) if loss < 1 else 0.0
    entropy += loss * math.log(loss / limit) if loss else 0.0
    most = math.ceil(n * loss - 1e-9)
    log_terms = [
        math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
        + k * math.log(limit) + (n - k) * math.log(1 - limit)
        for k in range(most + 1)
    ]  # fmt: skip
    return min(math.exp(-n * entropy) if loss < limit else 1.0, math.e * math.fsum(map(math.exp, log_terms)))


class LossWatch:
    """Watches whether a bound on a mean loss holds, loss by loss, however often somebody looks.

    The evidence is what a gambler has who bets against the promise: while it holds, that grows to twenty times the
    stake with a probability of at most 1/20, at any time (Ville's inequality).
    """

    def __init__(self, limit: float) -> None:
        self.limit, self.count, self.total = limit, 0, 0.0
        self.evidence = 1.0
        """The largest evidence against the promise so far."""
        self._fortunes = np.ones(len(_STAKES))

    @property
    def is_broken(self) -> bool:
        """True if the losses so far would be seen with a probability of at most 1/20 if the promise held."""
        return self.evidence >= _SURE

    def add(self, loss: float) -> None:
        """Takes one more loss, from 0 to 1."""
        self.count, self.total = self.count + 1, self.total + loss
        self._fortunes *= 1 + np.array(_STAKES) / self.limit * (loss - self.limit)
        self.evidence = max(self.evidence, float(self._fortunes.mean()))

"""Labels as tokens: which tokens must be asked for, and how their probabilities make a label's.

`first_token` is the probability of the first token of a label (the paper's p(NO-RESPONSE));
`sequence` is the exact probability of all its tokens in a row: the product along the path. Labels
that begin with the same tokens share them, so nothing is asked twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ragguard.engines.base import LabelMode
from ragguard.errors import EngineProtocolError

ABSTENTION = "NO-RESPONSE"
CONTRASTS = ("No", "Norway", "None", "N")
"""Words that must not begin like the abstention, or its first token says nothing."""


class NextTokenAsk(NamedTuple):
    """After these tokens of a label, the probabilities of those are needed."""

    after: tuple[int, ...]
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LabelPlan:
    """What to ask for some labels, and which answers make up which label."""

    asks: tuple[NextTokenAsk, ...]
    paths: tuple[tuple[tuple[int, int], ...], ...]
    """Per label, the (ask, column) pairs whose probabilities are multiplied."""

    def combine(self, logprobs: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        """(prompts, labels) from one (prompts, tokens) array of log-probabilities for each ask."""
        columns = [sum(logprobs[ask][:, column] for ask, column in path) for path in self.paths]
        return np.exp(np.stack(columns, axis=-1).astype(np.float64))

    def any_of(self, flags: Sequence[NDArray[np.bool_]]) -> NDArray[np.bool_]:
        """(prompts, labels): whether a flag is up anywhere along a label's path."""
        columns = [np.logical_or.reduce([flags[a][:, c] for a, c in path]) for path in self.paths]
        return np.stack(columns, axis=-1)


def plan_labels(ids: Sequence[Sequence[int]], mode: LabelMode) -> LabelPlan:
    """The plan for labels given as token ids, each as it would follow the prompt."""
    wanted: dict[tuple[int, ...], dict[int, int]] = {}
    places = []
    for label in ids:
        length = 1 if mode == "first_token" else len(label)
        path = []
        for at in range(length):
            columns = wanted.setdefault(tuple(label[:at]), {})
            path.append((tuple(label[:at]), columns.setdefault(label[at], len(columns))))
        places.append(path)
    order = {after: index for index, after in enumerate(wanted)}
    return LabelPlan(
        tuple(NextTokenAsk(after, tuple(columns)) for after, columns in wanted.items()),
        tuple(tuple((order[after], column) for after, column in path) for path in places),
    )


def colliding(ids: Sequence[Sequence[int]]) -> bool:
    """Whether two labels begin with the same token, so that it cannot tell them apart."""
    return len({label[0] for label in ids}) < len(ids)


def checked_logprob(value: Any) -> float:
    """Returns a log-probability that is one: rounding above 0 is cut, −inf is a probability of 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value) or value > 1e-3:
        raise EngineProtocolError(f"the model gave {value!r} as a log-probability")
    return min(0.0, float(value))


def upper_bound(listed: Iterable[float]) -> float:
    """Returns the most that the log-probability of a token outside this list can be."""
    values = list(listed)
    rest = 1.0 - math.fsum(math.exp(value) for value in values)
    return min(0.0, *values, math.log(rest) if rest > 0 else -math.inf)

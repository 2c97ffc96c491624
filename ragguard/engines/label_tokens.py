"""Plans which log-probabilities of tokens a model must be asked for, and combines them into the probabilities of
labels.

`first_token` is the probability of the first token of a label (the paper's p(NO-RESPONSE)); `sequence` is the exact
probability of all tokens of the label, one after another: their product. Labels that begin with the same tokens
share these, so that no log-probability is asked for twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ragguard.engines.base import LabelMode
from ragguard.errors import EngineProtocolError
from ragguard.text.language import ABSTENTION as ABSTENTION

CONTRASTS = ("No", "Norway", "None", "N")
"""Common words. Where one begins with the same token as the abstention, that token does not identify the abstention."""


class NextTokenAsk(NamedTuple):
    """A question for the next token: the log-probabilities of `tokens`, behind the prompt and the tokens `after`."""

    after: tuple[int, ...]
    tokens: tuple[int, ...]


Asks: TypeAlias = Sequence[NextTokenAsk]
Logprobs: TypeAlias = list[NDArray[np.float64]]
"""The log-probabilities of each ask: (prompts, its tokens)."""


@dataclass(frozen=True, slots=True)
class LabelPlan:
    """The asks for some labels, and which of their log-probabilities belong to which label."""

    asks: tuple[NextTokenAsk, ...]
    paths: tuple[tuple[tuple[int, int], ...], ...]
    """The (ask, column) pairs whose probabilities are multiplied, one tuple a label."""

    def combine(self, logprobs: Logprobs) -> NDArray[np.float64]:
        """Returns the probabilities (prompts, labels)."""
        columns = [sum(logprobs[ask][:, column] for ask, column in path) for path in self.paths]
        return np.exp(np.stack(columns, axis=-1).astype(np.float64))


def plan_labels(ids: Sequence[Sequence[int]], mode: LabelMode) -> LabelPlan:
    """Returns the plan for labels, given as the token ids with which each would follow the prompt."""
    wanted: dict[tuple[int, ...], dict[int, int]] = {}
    paths = []
    for label in ids:
        length = 1 if mode == "first_token" else len(label)
        path = []
        for at in range(length):
            columns = wanted.setdefault(tuple(label[:at]), {})
            path.append((tuple(label[:at]), columns.setdefault(label[at], len(columns))))
        paths.append(path)
    order = {after: index for index, after in enumerate(wanted)}
    return LabelPlan(
        tuple(NextTokenAsk(after, tuple(columns)) for after, columns in wanted.items()),
        tuple(tuple((order[after], column) for after, column in path) for path in paths),
    )


def colliding(ids: Sequence[Sequence[int]]) -> bool:
    """True where two labels begin with the same token, which then cannot tell them apart."""
    return len({label[0] for label in ids}) < len(ids)


def checked_logprob(value: Any) -> float:
    """Returns a valid log-probability: rounding above 0 is cut, −inf is a probability of 0."""
    try:
        found = math.nan if isinstance(value, bool) or not isinstance(value, int | float) else float(value)
    except OverflowError:  # an integer of hundreds of digits
        found = math.nan
    if math.isnan(found) or found > 1e-3:
        raise EngineProtocolError(f"the model gave {value!r:.80} as a log-probability")
    return min(0.0, found)


def upper_bound(listed: Iterable[float]) -> float:
    """Returns the most that the log-probability of a token outside this list can be."""
    values = list(listed)
    rest = 1.0 - math.fsum(math.exp(value) for value in values)
    return min(0.0, *values, math.log(rest) if rest > 0 else -math.inf)

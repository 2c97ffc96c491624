"""Bounds on the differences of a comparison, such as `udcg < -0.02`, for a gate."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar, get_args

from ragguard.analysis.comparison import Comparison
from ragguard.analysis.verdict import Change, interval_text
from ragguard.errors import InvalidInput, UnknownName
from ragguard.records import Level

_CONDITION = re.compile(r"^\s*([\w.]+)\s*(<=|>=|<|>)\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*$")
_OPERATORS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
T = TypeVar("T")
_LEVELS = get_args(Level)
"""The endings by which `titles` tells series of one name apart."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A bound on a metric's difference, such as `udcg < -0.02`."""

    metric: str
    sign: str
    bound: float

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Returns the condition that a text such as `udcg < -0.02` states."""
        match = _CONDITION.match(text) if isinstance(text, str) else None
        if match is None:
            raise InvalidInput("--fail-if", text, "METRIC <, <=, > or >= NUMBER, such as 'udcg < -0.02'")
        return cls(match[1], match[2], float(match[3]))

    def holds_for(self, difference: float) -> bool:
        """Returns whether a difference satisfies the bound."""
        return bool(_OPERATORS[self.sign](difference, self.bound))

    def corrected(self, differences: Mapping[str, T]) -> T:
        """Returns the metric's difference among those that labels correct; raises where it is not corrected."""
        if self.metric not in differences:
            known = ", ".join(sorted(differences)) or "none: label both sides"
            raise UnknownName(
                "--fail-if", self.metric, f"a metric that the labels correct on both sides: {known}"
            )
        return differences[self.metric]

    def of(self, comparison: Comparison) -> Change:
        """Returns the change that the condition is about; raises where the metric was not compared, and where its name
        stands for several that were."""
        compared = {change.metric: change for change in comparison.changes}
        if self.metric in compared:
            return compared[self.metric]
        meant = sorted(name for name in compared if self._may_mean(name))
        if len(meant) == 1:
            return compared[meant[0]]
        if meant:
            raise UnknownName(
                "--fail-if", self.metric, f"one of the metrics of that name: {', '.join(meant)}"
            )
        lacking = (
            "; one side lacks it: score both with the same scorers"
            if self.metric in comparison.missing or any(map(self._may_mean, comparison.missing))
            else ""
        )
        raise UnknownName(
            "--fail-if", self.metric, f"a metric of both sides: {', '.join(sorted(compared))}{lacking}"
        )

    def _may_mean(self, title: str) -> bool:
        """True for a title that `titles` made longer, as several series share the name."""
        return title in (self.metric, *(f"{self.metric}.{level}" for level in _LEVELS))

    def __str__(self) -> str:
        return f"{self.metric} {self.sign} {self.bound:g}"


@dataclass(frozen=True, slots=True)
class CheckedCondition:
    """A condition, and the difference to which it was held."""

    condition: Condition
    metric: str
    """The metric's name in the table."""
    difference: float
    low: float
    high: float

    @property
    def passed(self) -> bool:
        """True where the difference does not satisfy the bound."""
        return not self.condition.holds_for(self.difference)

    def __str__(self) -> str:
        verdict = f"passed: {self.condition} does not hold" if self.passed else f"FAILED: {self.condition}"
        return f"{verdict}; the difference is {self.difference:+.4g}{interval_text(self.low, self.high)}"

    def as_dict(self) -> dict[str, Any]:
        """Returns plain data for JSON."""
        found = (
            {"low": self.low, "high": self.high} if math.isfinite(self.low) else {"low": None, "high": None}
        )
        return asdict(self) | found | {"condition": str(self.condition), "passed": self.passed}

"""The declarations of metrics: name, range, direction, unit, what is needed, and the paper.

Each family has one table of declarations behind its functions. The page docs/reference/metrics.md,
`ragguard metrics`, captions of reports and OpenTelemetry descriptions are all made from these declarations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from types import MappingProxyType
from typing import Any, Literal

from ragguard.errors import UnknownName, did_you_mean
from ragguard.records import Level

Direction = Literal["higher", "lower", "neither"]


@dataclass(frozen=True, slots=True)
class Metric:
    """The declaration of one number that ragguard can give."""

    name: str
    title: str
    description: str
    """The meaning of the number, in one line."""
    _: KW_ONLY
    range: tuple[float, float] = (0, 1)
    direction: Direction = "higher"
    """The better direction."""
    unit: str = ""
    needs: str
    """The data that must be known to compute the number."""
    source: str
    levels: tuple[Level, ...] = ()
    """The things that a score of this name can be about; empty where no scorer gives such a score."""
    by_places: bool = False
    """True for a number that counts empty or harmless places, so that values on different K are not comparable."""
    function: Callable[..., Any] | None = None
    """The function of `ragguard.metrics` that computes the number; None where a probe gives it."""

    @property
    def call(self) -> str:
        """The name of the function; empty where there is none."""
        return self.function.__name__ if self.function else ""

    def cells(self) -> dict[str, str]:
        """The declaration as a row of a table, by its headings; a function of another name stands in brackets."""
        low, high = (f"{end:.3g}".replace("inf", "∞").replace("-", "−") for end in self.range)
        other = f" ({self.call})" if self.call not in ("", self.name) else ""
        return {
            "name": self.name + other,
            "what it says": f"{self.title}. {self.description}",
            "range": f"{low} … {high} {self.unit}".rstrip(),
            "better": self.direction,
            "score of a": ", ".join(self.levels) or "–",
            "needs": self.needs,
            "from": self.source,
        }


_declared: dict[str, Metric] = {}
METRICS: Mapping[str, Metric] = MappingProxyType(_declared)
"""All declarations by name, in the order of the families."""


BY_WORDS = ("answer_correct", "answer_in_context", "ungrounded")
"""The metrics that words alone decide, as far as they do. They cost nothing and are nearly sure, and come first in
every list."""


def shown_rank(name: str) -> int:
    """Returns the place of a metric in a list: those by words in their order, then all others alike."""
    return BY_WORDS.index(name) if name in BY_WORDS else len(BY_WORDS)


def declare(*metrics: Metric) -> None:
    """Adds declarations; a name can be declared once."""
    for metric in metrics:
        if metric.name in _declared:
            raise ValueError(f"the metric {metric.name!r} is declared twice")
        _declared[metric.name] = metric


def find(name: str) -> Metric:
    """Returns the declaration of a name; raises UnknownName with similar names."""
    found = _declared.get(name) if isinstance(name, str) else None
    if found is None:
        known = f"the {len(_declared)} that `ragguard metrics --all` prints"
        raise UnknownName("metric", name, f"{did_you_mean(name, _declared)}{known}")
    return found


def by_level() -> list[Metric]:
    """Returns all declarations: those of scores of passages, of steps and of runs, then those that no scorer gives."""
    order: dict[Level | None, int] = {"passage": 0, "step": 1, "run": 2, None: 3}
    return sorted(_declared.values(), key=lambda metric: order[metric.levels[0] if metric.levels else None])

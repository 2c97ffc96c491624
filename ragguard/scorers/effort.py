"""The levels of effort: what each has scored, and the most that it asks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ragguard.scorers.belief import Belief
from ragguard.scorers.pipeline import USUAL
from ragguard.scorers.scorer import Scorer
from ragguard.scorers.view import Caps

Effort = Literal["low", "medium", "high"]


@dataclass(frozen=True, slots=True)
class Level:
    """The scorers and caps of one effort."""

    gives: str
    """The meaning of its scores, as the settings page shows it."""
    scorers: tuple[str | Scorer, ...]
    caps: Caps


LEVELS: Mapping[Effort, Level] = {
    "low": Level(
        "how much likelier each hop and each passage makes the right answer, and how well a passage fits its query",
        ("likelihood",), Caps(prompt_tokens=20_000),
    ),
    "medium": Level(
        "belief, by likelihood and by answers only where that leaves it open (ΔSePer, likelihood); utility of each "
        "passage, UDCG",
        (Belief(by="auto", credit=1), "utility"), Caps(prompt_tokens=40_000),
    ),
    "high": Level(
        "belief from ten answers in each context, with credit over hops; utility, UDCG; coverage of sub-questions, "
        "contradictions, verdicts on the answer",
        USUAL, Caps(),
    ),
}  # fmt: skip
"""The level of each effort, the cheapest first."""

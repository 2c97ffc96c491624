"""Explains why a guard dropped a passage that its score calls useful, or the reverse: they were asked otherwise."""

from __future__ import annotations

from collections.abc import Iterable

from ragguard.records import Decision, Dropped, Score

NOTICEABLE = 0.05
"""Utilities that are closer than this agree."""
_ROUNDING = 0.005


def difference(drop: Dropped, utility: float, *, saw_references: bool) -> str:
    """Explains why guard and scorer give a dropped passage different utilities; empty where the two agree."""
    if drop.utility is None or abs(utility - drop.utility) < NOTICEABLE:
        return ""
    if saw_references:
        why = "the scorer's judge saw the references, the guard's did not"
    elif drop.p_relevant is not None and _as_yes_or_no(drop, utility):
        answer = "yes" if drop.p_relevant >= 0.5 else "no"
        why = f"the scorer takes a relevance of {drop.p_relevant:.2f} as {answer}, the guard as a probability"
    else:
        why = "scorer and guard asked different models or prompts"
    return f"scored {utility:+.2f}, by the guard {drop.utility:+.2f}: {why}"


def disagreements(decision: Decision, scores: Iterable[Score]) -> dict[int, str]:
    """Explains, by position, where guard and scorer differ about a step's dropped passages; takes the step's scores."""
    utilities = {
        score.position: score for score in scores if score.name == "utility" and score.position is not None
    }
    found = {}
    for drop in decision.dropped:
        score = utilities.get(drop.position)
        if score is not None:
            why = difference(drop, score.value, saw_references=score.reference_source == "gold")
            if why:
                found[drop.position] = why
    return found


def _as_yes_or_no(drop: Dropped, utility: float) -> bool:
    """True where the guard's own numbers give the scorer's utility once relevance is rounded to yes or no."""
    if drop.p_abstain is None or drop.p_relevant is None:
        return False
    rounded = (1.0 if drop.p_relevant >= 0.5 else -1.0) * (1 - drop.p_abstain)
    return abs(rounded - utility) < _ROUNDING
